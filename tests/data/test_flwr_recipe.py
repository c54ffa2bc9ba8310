"""The recipe of docs/howto/data.md for flwr-datasets, run with a dataset that is made in memory."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import coterie

PAGE = Path(__file__).resolve().parents[2] / "docs" / "howto" / "data.md"


@pytest.mark.filterwarnings("ignore")  # flwr-datasets warns when it draws anew
def test_the_recipe_gives_every_partition_to_a_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reason = "needs coterie[flwr-datasets]"
    hub: Any = pytest.importorskip("datasets", reason=reason)
    pytest.importorskip("flwr_datasets", reason=reason)
    monkeypatch.chdir(tmp_path)
    y = np.arange(4000) % 4
    noise = np.random.default_rng(0).integers(0, 100, (len(y), 8, 8))
    bright = np.arange(8)[:, None] // 2 == y[:, None, None]  # two rows for each class
    pictures = (noise + 100 * bright).astype(np.uint8)
    made = hub.Dataset.from_dict(
        {"image": list(pictures), "label": y.tolist()},
        features=hub.Features({"image": hub.Image(), "label": hub.ClassLabel(num_classes=4)}),
    )
    monkeypatch.setattr(hub, "load_dataset", lambda name, split: made)
    recipe = re.search(r'```python title="from_flwr.py"\n(.*?)```', PAGE.read_text(), re.DOTALL)
    assert recipe is not None
    shorter = '{"partition": {"kind": "natural"}, "model": {"name": "sr"}, "train": {"steps": 10}}'
    code = recipe[1].replace('{"partition": {"kind": "natural"}}', shorter)
    assert shorter in code
    told: dict[str, Any] = {}
    exec(code, told)
    sizes = [len(part) for part in told["parts"]]
    assert told["data"].x.shape == (4000, 1, 8, 8)
    assert np.bincount(told["data"].users).tolist() == sizes
    assert sorted(told["data"].x.sum(axis=(1, 2, 3))) == sorted(pictures.sum(axis=(1, 2)))
    run = told["run"]
    assert isinstance(run, coterie.Run)
    assert len(run.grouping["z"]) == 20
    assert run.summary["test_accuracy"] > 0.3
