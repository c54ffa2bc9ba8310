import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import torch

from coterie.config.files import make_config
from coterie.config.prepare import Prepared, prepare
from coterie.config.settings import Config
from coterie.core.errors import RecordError
from coterie.engine.contract import Models
from coterie.runs import checkpoint, execute
from coterie.runs.checkpoint import (
    Checkpoint,
    Damaged,
    Keeper,
    Origin,
    checkpoints,
    difference,
    last_good,
    origin,
    pack,
    read_checkpoint,
    tidy,
)
from coterie.runs.record import RunWriter
from coterie.simulation.loop import rounds
from coterie.simulation.schedule import Schedule
from coterie.simulation.state import Plan, State

CONFIG = make_config(
    {
        "data": {"sample": 0.1},
        "partition": {"num_nodes": 20, "num_edges": 10},
        "algorithm": {"name": "fedavg-ic", "num_groups": 4, "tau2": 2, "regroup_every": 2},
        "train": {"steps": 8},
    }
)


@pytest.fixture(scope="module")
def prepared() -> Prepared:
    return prepare(CONFIG)


@pytest.fixture(scope="module")
def states(prepared: Prepared) -> list[State]:
    return list(rounds(prepared.problem))


@pytest.fixture(scope="module")
def belongs(prepared: Prepared) -> Origin:
    return origin(CONFIG, prepared)


def written(folder: Path, state: State, belongs: Origin) -> Path:
    """A folder with one row and a checkpoint after it."""
    (folder / "rows.jsonl").write_text("{}\n")
    path = folder / f"checkpoint-{state.t}"
    path.write_bytes(b"".join(pack(Checkpoint(state, 1, 3, 1.5, 0.25, {"a": "b"}), belongs)))
    return path


def test_a_checkpoint_reads_back_as_what_was_written(
    tmp_path: Path, states: list[State], belongs: Origin
) -> None:
    for state in (states[0], states[-1]):
        found = read_checkpoint(written(tmp_path, state, belongs), belongs)
        assert (found.n_rows, found.offset, found.wall_s) == (1, 3, 1.5)
        assert (found.Delta_first, found.engine) == (0.25, {"a": "b"})
        assert asdict(found.state.row) == asdict(state.row)
        assert found.state.clock == state.clock
        assert found.state.plan.memory == state.plan.memory
        assert torch.equal(found.state.models.w, state.models.w)
        assert found.state.models.of_node.tolist() == state.models.of_node.tolist()
        assert found.state.models.of_node.dtype == np.int64
    assert found.state.groups is not None
    assert state.groups is not None
    assert found.state.groups.grouping.z.tolist() == state.groups.grouping.z.tolist()
    assert found.state.groups.grouping.servers.tolist() == state.groups.grouping.servers.tolist()
    assert found.state.groups.grouping.cost_trace == state.groups.grouping.cost_trace
    assert found.state.groups.transfer == state.groups.transfer


def test_a_run_goes_on_from_every_checkpoint_to_the_same_bits(
    tmp_path: Path, prepared: Prepared, states: list[State], belongs: Origin
) -> None:
    for at, state in enumerate(states[:-1]):
        found = read_checkpoint(written(tmp_path, state, belongs), belongs).state
        for a, b in zip(rounds(prepared.problem, found), states[at + 1 :], strict=True):
            assert asdict(a.row) == asdict(b.row)
            assert torch.equal(a.models.w, b.models.w)


def test_what_an_optimiser_remembers_comes_along(
    tmp_path: Path, states: list[State], belongs: Origin
) -> None:
    w = states[-1].models.w
    kept = {
        "momentum": w * 3,
        "the same model": w,
        "a view": w.T,
        "steps": torch.tensor(7),
        "none": torch.zeros(0, 3),
        "half": torch.tensor([1.5], dtype=torch.bfloat16),
        "some": torch.tensor([True, False]),
    }
    state = replace(states[-1], models=Models(w, states[-1].models.of_node, kept))
    found = read_checkpoint(written(tmp_path, state, belongs), belongs).state.models.memory
    assert list(found) == list(kept)
    for name, tensor in kept.items():
        assert found[name].dtype == tensor.dtype
        assert torch.equal(found[name], tensor)


def test_a_tag_is_all_that_a_new_value_needs_whatever_its_fields(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, states: list[State], belongs: Origin
) -> None:
    @dataclass(frozen=True)
    class More:
        seen: dict[int, float]
        pair: tuple[int, list[None]]
        here: np.float64
        there: bool

    monkeypatch.setitem(checkpoint.TAGS, "more", More)
    monkeypatch.setitem(checkpoint._TAG_OF, More, "more")
    more = More({3: 0.1, 1: float("inf")}, (1, [None]), np.float64(1 / 3), True)
    state = replace(states[0], plan=Plan(Schedule(1, 1), None, more))  # type: ignore[arg-type]
    found: object = read_checkpoint(written(tmp_path, state, belongs), belongs).state.plan.memory
    assert found == more


def test_what_cannot_be_kept_is_refused_when_it_is_written(
    states: list[State], belongs: Origin
) -> None:
    for what, name in (({1, 2}, "set"), (belongs, "Origin")):
        state = replace(states[0], plan=Plan(Schedule(1, 1), None, what))  # type: ignore[arg-type]
        with pytest.raises(TypeError, match=f"a checkpoint cannot hold a {name}"):
            pack(Checkpoint(state, 1, 3, 0.0, None, {}), belongs)


def test_no_damaged_byte_goes_unnoticed(
    tmp_path: Path, states: list[State], belongs: Origin
) -> None:
    path = written(tmp_path, states[1], belongs)
    whole = path.read_bytes()
    rng = np.random.default_rng(0)
    for at in [*range(100), *rng.integers(0, len(whole), 300)]:
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << rng.integers(8)]) + whole[at + 1 :])
        with pytest.raises((Damaged, RecordError)):
            read_checkpoint(path, belongs)
    for length in [*range(100), *rng.integers(0, len(whole), 100)]:
        path.write_bytes(whole[:length])
        with pytest.raises(Damaged):
            read_checkpoint(path, belongs)
    path.write_bytes(whole)
    read_checkpoint(path, belongs)


def test_a_damaged_checkpoint_gives_way_to_the_one_before(
    tmp_path: Path, states: list[State], belongs: Origin
) -> None:
    for state in states[2:4]:
        written(tmp_path, state, belongs)
    new, old = checkpoints(tmp_path)
    new.write_bytes(new.read_bytes()[:-1])
    said: list[str] = []
    found = last_good(tmp_path, belongs, said.append)
    assert found is not None
    assert found.state.t == states[2].t
    assert said == [f"{new.name} cannot be used: its sum is wrong"]
    old.write_bytes(b"")
    assert last_good(tmp_path, belongs, said.append) is None
    assert said[-1] == f"{old.name} cannot be used: it does not begin as a checkpoint does"


@pytest.mark.parametrize("rows", ["", "{}", "\n\n\n"])
def test_a_checkpoint_without_its_rows_cannot_be_used(
    tmp_path: Path, states: list[State], belongs: Origin, rows: str
) -> None:
    written(tmp_path, states[2], belongs)
    (tmp_path / "rows.jsonl").write_text(rows)
    said: list[str] = []
    assert last_good(tmp_path, belongs, said.append) is None
    assert "rows.jsonl does not hold its 1 rows" in said[0]


def refused(folder: Path, belongs: Origin) -> str:
    with pytest.raises(RecordError) as caught:
        last_good(folder, belongs, print)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_checkpoint_of_another_version_is_refused(
    tmp_path: Path, states: list[State], belongs: Origin
) -> None:
    older = replace(belongs, versions={**belongs.versions, "torch": "1.0"})
    path = written(tmp_path, states[2], older)
    said = refused(tmp_path, belongs)
    assert f"begun with torch 1.0 and this is torch {belongs.versions['torch']}" in said
    assert said.endswith(f"start anew with: coterie run {tmp_path}/config.toml")
    path.write_bytes(path.read_bytes().replace(b"checkpoint 4 ", b"checkpoint 3 ", 1))
    assert "written by another coterie; resume with that one" in refused(tmp_path, belongs)


def test_a_checkpoint_of_another_config_is_refused_by_the_setting_that_differs(
    tmp_path: Path, prepared: Prepared, states: list[State], belongs: Origin
) -> None:
    written(tmp_path, states[2], belongs)
    other = replace(CONFIG, train=replace(CONFIG.train, lr=0.5))
    said = refused(tmp_path, origin(other, prepared))
    assert "config.toml was changed, train.lr is 0.5 and was 0.1; put it back, or start" in said


def test_a_checkpoint_of_other_data_is_refused(
    tmp_path: Path, prepared: Prepared, states: list[State], belongs: Origin
) -> None:
    written(tmp_path, states[2], belongs)
    problem, fleet = prepared.problem, prepared.problem.fleet
    more = replace(fleet, class_counts=fleet.class_counts + 1)
    other = replace(prepared, problem=replace(problem, fleet=more))
    said = refused(tmp_path, origin(CONFIG, other))
    assert "the data, its partition or the model is not what the run was begun with" in said


@pytest.mark.parametrize("kind", ["os:system", "coterie.simulation.loop:State", "problem"])
def test_a_checkpoint_makes_values_that_have_a_tag_and_nothing_else(
    tmp_path: Path, states: list[State], belongs: Origin, kind: str
) -> None:
    path = written(tmp_path, states[2], belongs)
    _, head, body = path.read_bytes().split(b"\n", 2)
    told = json.loads(head)
    told["checkpoint"]["fields"]["state"]["tag"] = kind
    rest = json.dumps(told).encode() + b"\n" + body
    total = hashlib.sha256(rest).hexdigest().encode()
    path.write_bytes(b"coterie checkpoint 4 " + total + b"\n" + rest)
    assert "written by another coterie" in refused(tmp_path, belongs)


def test_the_last_two_are_kept(tmp_path: Path, states: list[State], belongs: Origin) -> None:
    with RunWriter(tmp_path) as writer:
        writer.begin("", {})
        keeper = Keeper(writer, belongs, 0.0)
        for state in states[:5]:
            writer.add(state.row)
            assert keeper.due
            keeper.keep(state, None, {})
    assert [path.name for path in checkpoints(tmp_path)] == ["checkpoint-4", "checkpoint-3"]


def test_dear_checkpoints_take_a_twentieth_of_the_time_at_most(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, states: list[State], belongs: Origin
) -> None:
    now = [0.0]

    def slow(path: Path, *_: bytes) -> None:
        now[0] += 2.0

    with RunWriter(tmp_path) as writer:
        writer.begin("", {})
        monkeypatch.setattr(checkpoint, "write_atomically", slow)
        keeper = Keeper(writer, belongs, 1.0, clock=lambda: now[0])
        assert not keeper.due
        now[0] = 1.0
        assert keeper.due
        keeper.keep(states[0], None, {})
        now[0] = 3.0 + 39.0
        assert not keeper.due
        now[0] = 3.0 + 41.0
        assert keeper.due


def test_tidying_leaves_what_is_not_its_own(tmp_path: Path) -> None:
    ours = ["checkpoint-3", ".checkpoint-3.abcd1234", ".summary.json.abcd_234"]
    others = ["checkpoint-x", "checkpoint-3.bak", ".gitignore", ".notes.json", "rows.jsonl"]
    for name in [*ours, *others]:
        (tmp_path / name).write_text("")
    tidy(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == set(others)


def test_settings_that_differ_are_named() -> None:
    assert difference(CONFIG, CONFIG) is None
    other = replace(CONFIG, algorithm=replace(CONFIG.algorithm, tau2=3))
    assert difference(other, CONFIG) == "algorithm.tau2 is 3 and was 2"


def test_a_resumed_run_executes_as_it_did_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, prepared: Prepared
) -> None:
    """An engine that chose one of several ways is told which it was."""
    told: list[dict[str, str]] = []

    def with_choice(config: Config, *_: object) -> Prepared:
        ready = prepare(config)
        monkeypatch.setattr(ready.problem.engine, "choice", lambda: {"kernel": "this"})
        monkeypatch.setattr(ready.problem.engine, "choose", told.append)
        return ready

    monkeypatch.setattr(execute, "prepare", with_choice)
    asked: Iterator[bool] = iter([False, True])
    with pytest.raises(execute.Interrupted, match="1"):
        execute.execute(CONFIG, tmp_path / "run", stop=lambda: next(asked))
    assert told == []
    meta = json.loads((tmp_path / "run" / "meta.json").read_text())
    assert meta["engine"] == {"kernel": "this"}
    execute.execute(CONFIG, tmp_path / "run", resume=True)
    assert told == [{"kernel": "this"}]


def test_what_cannot_be_removed_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "checkpoint-3").touch()

    def fail(path: Path, missing_ok: bool = False) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(Path, "unlink", fail)
    with pytest.raises(
        RecordError, match=r"checkpoint-3: cannot be written \(Input/output error\)"
    ):
        tidy(tmp_path)
