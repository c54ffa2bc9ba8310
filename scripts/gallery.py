"""Draw the networks of the scenarios for the docs: docs/images/scenarios/*.png.

python scripts/gallery.py [NAME ...]

Groups are the network edges, and all take part, so that a picture shows what a network is and who
serves. A wide link carries much of a group mean.
"""

import sys
from pathlib import Path

from coterie.config.files import load_experiment
from coterie.config.shipped import scenarios
from coterie.preview.network import views
from coterie.render.page.html import png
from coterie.render.page.network import map_of

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "images" / "scenarios"
SHOWN = ("algorithm.name=hierfavg", "participation.fraction=1", "participation.dropout=0")


def main() -> None:
    """Draw all, or those that are named."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name in sys.argv[1:] or scenarios():
        configs = load_experiment(scenarios()[name], SHOWN)
        (view,) = views(configs, against=False, progress=lambda *_: None)
        (FOLDER / f"{name}.png").write_bytes(png(map_of(view)))


if __name__ == "__main__":
    main()
