"""A run by one's own code: what it notes when the code has changed."""

from pathlib import Path

import pytest

from coterie.config.files import make_config
from coterie.runs.execute import Interrupted, execute

ALGORITHM = """
from coterie import Pull, Update

def pulled(mu: float = 0.1) -> Update:
    return Update(pull=lambda at: Pull(towards=at.given, strength=mu))
"""


def test_code_that_changed_under_a_run_is_noted_when_it_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    file = tmp_path / "changing.py"
    file.write_text(ALGORITHM, encoding="utf-8")
    config = make_config(
        {
            "algorithm": {"name": "changing:pulled", "tau2": 1},
            "data": {"sample": 0.2},
            "partition": {"num_nodes": 10, "num_edges": 10},
            "train": {"steps": 4},
        }
    )
    told: list[str] = []
    for text in (ALGORITHM, ALGORITHM, ALGORITHM + "# mended\n"):
        file.write_text(text, encoding="utf-8")
        with pytest.raises(Interrupted):
            execute(config, tmp_path / "run", resume=True, stop=lambda: True, say=told.append)
    notes = [line for line in told if line.startswith("note:")]
    assert notes == [
        "note: the file of changing:pulled has changed since; the steps so far are by the old one"
    ]
