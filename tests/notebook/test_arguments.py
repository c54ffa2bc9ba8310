"""What the Python interface is called with: what is wrong is one line, and nothing is written."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import coterie
from coterie.core.errors import CoterieError
from made_runs import made_run, write_run

ANY: Any = coterie  # as a caller has it who checks no types
SETTINGS: dict[str, Any] = {
    "partition": {"kind": "iid", "num_nodes": 4, "num_edges": 2},
    "algorithm": {"name": "fedavg"},
    "train": {"steps": 4, "batch_size": 8},
}


def readings() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return rng.normal(size=(60, 5)).astype(np.float32), rng.integers(0, 3, 60)


def begin(dataset: Any) -> object:
    return next(coterie.simulate(SETTINGS, dataset=dataset))


def refused(call: Callable[[], object]) -> str:
    with pytest.raises(CoterieError) as caught:
        call()
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        *(
            ({"threads": threads}, f"threads must be a whole number >= 1, got {threads!r}")
            for threads in (0, -1, "2", 1.5, True)
        ),
        *(
            ({"folder": folder}, f"folder must be a path, as a string or Path, got {folder!r}")
            for folder in (3, b"x", "a\0b", "")
        ),
        ({"on_state": None}, "on_state must be a function, got None"),
        ({"say": "x"}, "say must be a function, got 'x'"),
    ],
)
def test_arguments_of_a_run_are_refused_in_a_line_before_anything_is_written(
    given: dict[str, Any], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert refused(lambda: coterie.run(SETTINGS, **{"folder": "mine", **given})) == says
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda run: ANY.read_run(3), "folder must be a path"),
        (
            lambda run: ANY.read_run(None),
            "folder must be a path, as a string or Path, got None",
        ),
        *(
            (lambda run, runs=runs: ANY.compare(runs), "runs must be runs, or paths of their")
            for runs in (None, 3, [3], [None], [""])
        ),
        *(
            (
                lambda run, target=target: ANY.compare(run, target=target),
                f"target must be a number from 0 to 1, got {target!r}",
            )
            for target in ("x", -1, 2, float("nan"), True)
        ),
        (lambda run: ANY.compare(run, lines=3), "lines must be a string, got 3"),
        (lambda run: ANY.compare(run, view="x"), "view must be a View, got 'x'"),
        (lambda run: run.plot(3), "y must be a string, got 3"),
        (lambda run: run.plot(x=3), "x must be a string, got 3"),
        (lambda run: ANY.compare(run).plot(3), "y must be a string, got 3"),
        (lambda run: ANY.compare(run).plot(block="0"), "block must be a whole number, got '0'"),
        (lambda run: ANY.compare(run).plot(block=0.5), "block must be a whole number, got 0.5"),
        (lambda run: ANY.plan(SETTINGS, methods=3), "methods must be a list of strings, got 3"),
        (lambda run: ANY.plan(SETTINGS, methods=[3]), "methods must be a list of strings"),
        (lambda run: ANY.plan(SETTINGS, budget_s=-1), "budget_s must be a number of seconds"),
        (lambda run: ANY.plan(nodes=3), "nodes must be a path"),
        (lambda run: ANY.plan(epsilon="x"), "epsilon must be a number from 1e-9 to 1e9"),
    ],
)
def test_other_arguments_are_refused_in_a_line(
    call: Callable[[Any], object], says: str, tmp_path: Path
) -> None:
    made = made_run(tmp_path / "run")
    write_run(made)
    assert refused(lambda: call(coterie.Run(made))).startswith(says)


def test_a_target_of_numpy_is_a_number(tmp_path: Path) -> None:
    made = made_run(tmp_path / "run")
    assert ANY.compare([made], target=np.float32(0.5))[0].target == "50.0%"


def test_errors_and_tables_name_arguments_and_not_options(tmp_path: Path) -> None:
    first, second = (made_run(tmp_path / name, name) for name in ("hierfavg", "fedavg-ic"))
    for given, says in (
        ({"score": "foo"}, "score must be last, best or mean:K, such as mean:5, got 'foo'"),
        ({"score": "mean:999"}, "score mean:999 needs as many evaluations"),
        ({"lines": "foo.bar"}, "lines: unknown setting 'foo.bar'"),
        ({"baseline": "nope"}, "baseline: no line is called 'nope'"),
        ({"best": "label"}, "best takes settings that change a result"),
    ):
        told = refused(partial(ANY.compare, [first, second], **given))
        assert says in told
        assert "--" not in told
    assert "no line is called fedavg, baseline names another" in repr(
        coterie.compare([first, second])
    )


def test_settings_beside_a_view_are_not_ignored(tmp_path: Path) -> None:
    from coterie.analysis.lines import read_view

    made = made_run(tmp_path / "run")
    told = refused(lambda: coterie.compare(made, view=read_view("train.lr"), score="best"))
    assert told == "a view has lines, baseline, best and score; leave one out"


def test_settings_take_paths_of_files(tmp_path: Path) -> None:
    config = coterie.make_config(
        {
            "data": {"name": "table", "path": tmp_path / "a.csv", "target": "y"},
            "model": {"weights": tmp_path / "run"},
            "partition": {"kind": "file", "file": tmp_path / "p.csv"},
        }
    )
    found = config.data.path, config.model.weights, config.partition.file
    assert found == tuple(str(tmp_path / name) for name in ("a.csv", "run", "p.csv"))
    assert "must be a string" in refused(lambda: coterie.make_config({"data": {"name": Path("x")}}))


@pytest.mark.parametrize(
    "setting",
    [
        {"path": "/nowhere"},
        {"target": ["y"]},
        {"window": 7},
        {"side": 7},
        {"missing": "drop"},
        {"user": "u"},
        {"num_users": 7},
    ],
)
def test_settings_about_files_are_refused_with_a_dataset_that_is_an_object(
    setting: dict[str, Any],
) -> None:
    told = refused(lambda: next(coterie.simulate({"data": setting}, dataset=readings())))
    (name,) = setting
    assert told == f"data.{name} is not read with a dataset that is an object; leave it out"


def test_masked_values_are_refused_and_masks_of_nothing_are_not() -> None:
    x, y = readings()
    users = np.arange(60)
    says = "has masked values, and masks are not read; leave those examples out"
    hidden = np.arange(60) == 3
    pairs = {"x": (np.ma.masked_array(x, x > 1), y), "y": (x, np.ma.masked_array(y, hidden))}
    for what, pair in pairs.items():
        told = refused(partial(begin, pair))
        assert f"dataset (x, y): {what} {says}" in told
        mine = coterie.Dataset("mine", *pair, 3)
        told = refused(partial(begin, mine))
        assert f"mine: {what} {says}" in told
    for what, values in {"users": users, "strata": users, "test": hidden}.items():
        given: dict[str, Any] = {what: np.ma.masked_array(values, hidden)}
        mine = coterie.Dataset("mine", x, y, 3, **given)
        told = refused(partial(begin, mine))
        assert f"mine: {what} {says}" in told
    next(coterie.simulate(SETTINGS, dataset=(np.ma.masked_array(x), y)))


def stopped(folder: Path, **given: Any) -> None:
    """Leave a run that was interrupted, and no checkpoint of it."""

    def stop(state: coterie.State) -> None:
        if state.t >= 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        coterie.run(SETTINGS, folder, on_state=stop, **given)
    for path in folder.glob("checkpoint-*"):
        path.unlink()


def test_a_run_goes_on_with_what_it_was_begun_with_alone(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    stopped(folder, dataset=readings())
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    said: list[str] = []
    more: dict[str, Any] = {"resume": True, "say": said.append}
    told = refused(lambda: coterie.run(SETTINGS, folder, **more))
    assert "run of other settings, data.name is mnist-f-mini and was object:arrays; pass" in told
    longer = {**SETTINGS, "train": {"steps": 6, "batch_size": 8}}
    told = refused(lambda: coterie.run(longer, folder, dataset=readings(), **more))
    assert "train.steps is 6 and was 4" in told
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    again = coterie.run(SETTINGS, folder, dataset=readings(), **more)
    assert said == ["no checkpoint to go on from; starts from the beginning"]
    assert again.summary["status"] == "complete"
    assert "train.steps is 6" in refused(
        lambda: coterie.run(longer, folder, dataset=readings(), **more)
    )


def test_a_folder_that_is_taken_is_told_as_an_argument(tmp_path: Path) -> None:
    coterie.run(SETTINGS, tmp_path / "run", dataset=readings())
    told = refused(lambda: coterie.run(SETTINGS, tmp_path / "run", dataset=readings()))
    assert "already holds a run; choose another folder, or go on" in told
