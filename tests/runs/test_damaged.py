"""Run folders that were damaged since: noticed when a run goes on, before anything is trained."""

import json
from pathlib import Path

import pytest

from coterie.core.errors import RecordError
from coterie.runs.execute import execute
from resuming import outcome, stopped_at, tiny


@pytest.mark.parametrize("content", [None, b"", b"{", b"[]", b"{}", b"\xff"])
def test_a_lost_meta_is_said_before_training_with_the_way_out(
    tmp_path: Path, content: bytes | None
) -> None:
    run = tmp_path / "run"
    stopped_at(5, tiny(), run)
    meta, trained = run / "meta.json", list[int]()
    good = meta.read_bytes()
    meta.unlink()
    if content is not None:
        meta.write_bytes(content)
    with pytest.raises(
        RecordError, match=r"meta\.json cannot .* start anew with: coterie run "
    ) as e:
        execute(tiny(), run, resume=True, on_state=lambda state: trained.append(state.t))
    assert "\n" not in str(e.value)
    assert trained == []
    meta.write_bytes(good)
    execute(tiny(), run, resume=True)
    assert json.loads((run / "summary.json").read_text())["status"] == "complete"


def test_a_meta_that_is_lost_on_the_way_is_written_at_the_end(tmp_path: Path) -> None:
    execute(tiny(), tmp_path / "undisturbed")
    meta = tmp_path / "run" / "meta.json"
    execute(tiny(), tmp_path / "run", on_state=lambda state: meta.unlink(missing_ok=True))
    assert outcome(tmp_path / "run") == outcome(tmp_path / "undisturbed")


def test_a_changed_byte_in_the_rows_before_a_checkpoint_is_noticed(tmp_path: Path) -> None:
    execute(tiny(), tmp_path / "undisturbed")
    run, said = tmp_path / "run", list[str]()
    stopped_at(5, tiny(), run)
    rows = (run / "rows.jsonl").read_bytes()
    at = rows.index(b'"seconds": ') + len(b'"seconds": ')
    (run / "rows.jsonl").write_bytes(rows[:at] + b"7" + rows[at + 1 :])
    execute(tiny(), run, resume=True, say=said.append)
    assert "rows.jsonl was changed within its" in said[0]
    assert outcome(run) == outcome(tmp_path / "undisturbed")


def test_a_folder_called_as_a_checkpoint_is_let_alone(tmp_path: Path) -> None:
    run, said = tmp_path / "run", list[str]()
    stopped_at(5, tiny(), run)
    (run / "checkpoint-99999").mkdir()
    (run / ".checkpoint-7.abcdefgh").mkdir()
    execute(tiny(), run, resume=True, say=said.append)
    assert said == ["goes on from step 5"]
    assert (run / "checkpoint-99999").is_dir()
