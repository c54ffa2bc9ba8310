"""Algorithms of a user's own: what is wrong with one is said in a line, and a run goes on after."""

import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from coterie.cli import main
from coterie.runs.record import read_run
from resuming import outcome

NODES = ("partition.kind=iid", "partition.num_nodes=6", "partition.num_edges=2", "data.sample=0.1")
ALGORITHM = ("algorithm.groups=edge", "algorithm.tau1=2", "algorithm.tau2=2", "train.steps=8")
WHOLE = """
import numpy as np
import torch
from coterie import Algorithm, At, Kept, Mean, Pull, Update

def begin(n, w):
    zeros = torch.zeros(n, len(w))
    return Kept(
        node={"a": zeros, "s": torch.zeros(n)},
        group={"a": torch.zeros(len(w))},
        server={"a": torch.zeros(len(w)), "s": torch.zeros(())},
    )

def pull(at):
    return Pull(offset=at.node["a"] * 0, towards=at.given, strength=0.1)

def correct(g, w, at):
    return g + 0.01 * w

def beside(g, w, at):
    return g

def renew(w, at):
    return {"a": w - at.given, "s": at.steps}

def send(w, at):
    return w

def group(mean):
    return {"a": mean.by_group(mean.node["a"])}

def server(w, mean):
    return w, {"a": mean.over_all(mean.node["a"]), "s": mean.server["s"] + 1}

def personal(model):
    return []
"""
MADE = """
def bad(rate: float = 0.1, times: int = 1, loud: bool = False, word: str = "a"):
    update = Update(begin, pull, correct, renew, send, group, server, beside=beside)
    return Algorithm("mine", update)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the user works: their module `algos` is imported from there, as it is now."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    return tmp_path


def write(text: str, hook: str = "", body: str = "") -> int:
    """Write the module, with another body of one function; return the line of its `def`."""
    sys.modules.pop("algos", None)
    if hook:
        head, _, rest = text.partition(f"def {hook}(")
        arguments, _, rest = rest.partition("\n")
        _, blank, rest = rest.partition("\n\n")
        text = f"{head}def {hook}({arguments}\n{body}{blank}{rest}"
    Path("algos.py").write_text(text)
    return text.partition(f"def {hook}(")[0].count("\n") + 1


def run(*words: str, settings: tuple[str, ...] = ()) -> Any:
    chosen = (*NODES, *ALGORITHM, "algorithm.name=algos:bad", *settings)
    sets = [word for each in chosen for word in ("--set", each)]
    return CliRunner().invoke(main, ["run", "quickstart", *sets, *words])


def test_an_algorithm_of_ones_own_runs_and_goes_on(folder: Path) -> None:
    write(WHOLE + MADE)
    done = run("-o", "r")
    assert done.exit_code == 0, done.output
    assert read_run(Path("r")).summary["status"] == "complete"


HOOKS = ("begin", "pull", "correct", "beside", "renew", "send", "group", "server")


@pytest.mark.parametrize("hook", HOOKS)
def test_what_a_part_raises_is_a_line_with_the_place_and_the_run_goes_on_once_mended(
    folder: Path, hook: str
) -> None:
    line = write(WHOLE + MADE, hook, "    x = 1\n    raise ValueError('no such luck')\n")
    done = run("-o", "r")
    place = f"(algos.py, line {line + 2})"
    refused(done.output, f"'algos:bad', {hook}: ValueError: no such luck {place}", hook)
    assert done.exit_code == 2
    if hook == "begin":  # before anything is written
        assert not Path("r").exists()
        return
    goes_on(folder)


def refused(output: str, says: str, hook: str) -> None:
    """Look at the one line that says what is wrong, and how to go on if anything began."""
    lines = [line for line in output.splitlines() if line.startswith("coterie: ")]
    assert len(lines) == 1, output
    assert lines[0].startswith(f"coterie: {says}"), output
    way = "; once that is mended, go on with: coterie run --resume r --set algorithm.name=algos:bad"
    assert lines[0].endswith(way) == (hook != "begin"), output
    assert "Traceback" not in output


def goes_on(folder: Path) -> None:
    """Mend the module, and compare with a run that never failed."""
    write(WHOLE + MADE)
    done = CliRunner().invoke(main, ["run", "--resume", "r", "--set", "algorithm.name=algos:bad"])
    assert done.exit_code == 0, done.output
    assert run("-o", "undisturbed").exit_code == 0
    assert outcome(folder / "r") == outcome(folder / "undisturbed")


RETURNS = [
    ("begin", "None", "must return a coterie.Kept, got NoneType"),
    ("begin", "Kept(node={'a': np.zeros((n, len(w)))})", "'a' must be a tensor, got ndarray"),
    ("begin", "Kept(node={'a': [0.0] * n})", "'a' must be a tensor, got list"),
    ("begin", "Kept(server={'a': 0.0})", "'a' must be a tensor, got float"),
    ("begin", "Kept(node=[1])", "must return arrays by name, got list"),
    ("begin", "Kept(node={1: w})", "must return arrays by name, got dict"),
    ("begin", "Kept(node={'~a': torch.zeros(n)})", "the name '~a' must not begin with '~'"),
    (
        "begin",
        "Kept(node={'a': torch.zeros(n, 3)})",
        "'a' must have the shape [6, 7850] or [6], got [6, 3]",
    ),
    (
        "begin",
        "Kept(server={'a': torch.zeros(3)})",
        "'a' must have the shape [7850] or [], got [3]",
    ),
    (
        "begin",
        "Kept(server={'a': torch.zeros(len(w)).double()})",
        "'a' must be torch.float32, got torch.float64",
    ),
    ("begin", "Kept(server={'a': torch.tensor(1)})", "'a' must be torch.float32, got torch.int64"),
    ("begin", "Kept(node={'a': torch.full((n,), torch.nan)})", "'a' is not finite"),
    ("pull", "0.1", "must return a coterie.Pull, got float"),
    ("pull", "Pull(offset=1.0)", "offset must be a tensor, got float"),
    ("pull", "Pull(towards=at.given[:, :5])", "towards must have the shape"),
    (
        "pull",
        "Pull(towards=at.given, strength=torch.ones(3))",
        "strength must be a finite number, got",
    ),
    (
        "pull",
        "Pull(towards=at.given, strength=float('nan'))",
        "strength must be a finite number, got nan",
    ),
    ("pull", "Pull(offset=at.given * torch.nan)", "offset is not finite"),
    ("pull", "Pull(offset=at.given.double())", "offset must be torch.float32"),
    ("correct", "None", "the gradient must be a tensor, got NoneType"),
    ("correct", "g.sum()", "the gradient must have the shape"),
    ("correct", "g / 0 * 0", "the gradient is not finite"),
    ("correct", "g.double()", "the gradient must be torch.float32, got torch.float64"),
    ("beside", "g[:, :1]", "the gradient must have the shape"),
    ("beside", "g * torch.nan", "the gradient is not finite"),
    ("renew", "w", "must return arrays by name, got Tensor"),
    ("renew", "{'b': w}", "'b' is not among what begin keeps"),
    ("renew", "{'a': w.numpy()}", "'a' must be a tensor, got ndarray"),
    ("renew", "{'a': w[:, :5]}", "'a' must have the shape"),
    ("renew", "{'a': at.steps}", "'a' must have the shape"),
    ("renew", "{'s': w}", "'s' must have the shape"),
    ("renew", "{'a': w * torch.inf}", "'a' is not finite"),
    ("renew", "{'a': w.double()}", "'a' must be torch.float32, got torch.float64"),
    ("send", "w[0]", "the model must have the shape"),
    ("send", "w.tolist()", "the model must be a tensor, got list"),
    ("send", "w * torch.nan", "the model is not finite"),
    ("group", "None", "must return arrays by name, got NoneType"),
    ("group", "{'a': mean.group['a'][0]}", "'a' must have the shape"),
    ("group", "{'z': mean.group['a']}", "'z' is not among what begin keeps"),
    ("server", "w", "must return (model, what the server keeps), got Tensor"),
    ("server", "(w,)", "must return (model, what the server keeps), got a tuple of 1"),
    ("server", "(None, {})", "the model must be a tensor, got NoneType"),
    ("server", "(w[:3], {})", "the model must have the shape [7850], got [3]"),
    ("server", "(w * torch.nan, {})", "the model is not finite"),
    ("server", "(w.double(), {})", "the model must be torch.float32, got torch.float64"),
    ("server", "(w, {'s': w})", "'s' must have the shape [], got [7850]"),
    ("server", "(w, {'q': w})", "'q' is not among what begin keeps"),
    ("server", "(w, [w])", "must return arrays by name, got list"),
]


@pytest.mark.parametrize(("hook", "value", "says"), RETURNS)
def test_what_a_part_should_not_return_is_a_line_with_the_place(
    folder: Path, hook: str, value: str, says: str
) -> None:
    line = write(WHOLE + MADE, hook, f"    return {value}\n")
    done = run("-o", "r")
    assert done.exit_code == 2, done.output
    refused(done.output, f"'algos:bad', {hook}: {says}", hook)
    assert f"(algos.py, line {line})" in done.output


@pytest.mark.parametrize(
    ("made", "says"),
    [
        (
            "def bad():\n    return 3",
            "'algos:bad' must return a coterie.Algorithm or Update, got int",
        ),
        ("def bad():\n    pass", "'algos:bad' must return a coterie.Algorithm or Update, got None"),
        ("def bad():\n    return 1 / 0", "'algos:bad' cannot be made: ZeroDivisionError: division"),
        ("def bad(mu):\n    return Update()", "'algos:bad' cannot be made: TypeError: bad()"),
        ("bad = 3", "'algos:bad': algos has no function 'bad'"),
        ("def good(): pass", "'algos:bad': algos has no function 'bad'"),
        ("1 +", "'algos:bad': algos cannot be imported: SyntaxError"),
        (
            "def bad():\n    return Update(pull=3)",
            "'algos:bad': pull must be a function, got int",
        ),
        (
            "def bad():\n    return Algorithm('x', update=3)",
            "'algos:bad' cannot be made: AttributeError: 'int' object has no attribute",
        ),
        (
            "def bad():\n    return Algorithm('x', groups='some')",
            "'algos:bad': groups must be 'none', 'edge' or 'search', got 'some'",
        ),
        (
            "def bad():\n    return Update(work='much')",
            "'algos:bad': work must be a number above 0, got 'much'",
        ),
        (
            "def bad():\n    return Update(work=-1)",
            "'algos:bad': work must be a number above 0, got -1",
        ),
        (
            "def bad():\n    return Update(extra=lambda d: d)",
            "'algos:bad', extra: TypeError: bad.<locals>.<lambda>() takes 1 positional argument",
        ),
        (
            "def bad():\n    return Update(extra=lambda d, scope: -d)",
            "'algos:bad', extra: must return a whole number above -7850, got -",
        ),
        (
            "def bad():\n    return Update(personal=lambda model: ['nose'])",
            "'algos:bad', personal: unknown tensor 'nose'",
        ),
        (
            "def bad():\n    return Update(personal=lambda model: 1 / 0)",
            "'algos:bad', personal: ZeroDivisionError",
        ),
        (
            "def bad():\n    return Update(personal=lambda model: 3)",
            "'algos:bad', personal: must return names of tensors, got int",
        ),
    ],
)
def test_what_is_no_algorithm_is_said_before_anything_is_written(
    folder: Path, made: str, says: str
) -> None:
    write(f"{WHOLE}\n{made}\n")
    done = run("-o", "r")
    assert done.exit_code == 2, done.output
    assert done.output.startswith(f"coterie: {says}"), done.output
    assert done.output.count("\n") == 1, done.output
    assert not Path("r").exists()


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        (
            "rat=1",
            "unknown algorithm.options of algos:bad 'rat'; did you mean 'rate'? (it has rate = 0.1,"
            " times = 1, loud = False, word = a)",
        ),
        ("rate=much", "algorithm.options.rate must be a number, got 'much'"),
        ("rate=true", "algorithm.options.rate must be a number, got True"),
        ("times=1.5", "algorithm.options.times must be a whole number, got 1.5"),
        ("loud=1", "algorithm.options.loud must be true or false, got 1"),
        ("word=1", "algorithm.options.word must be a string, got 1"),
    ],
)
def test_a_wrong_option_of_ones_own_is_one_line(folder: Path, setting: str, says: str) -> None:
    write(WHOLE + MADE)
    done = run("-o", "r", settings=(f"algorithm.options.{setting}",))
    assert done.exit_code == 2
    assert done.output == f"coterie: {says}\n"
    assert not Path("r").exists()


def test_options_of_ones_own_reach_the_function(folder: Path) -> None:
    made = "def bad(rate: float = 0.0):\n    return Update(correct=lambda g, w, at: g + rate * w)\n"
    write(f"{WHOLE}\n{made}")
    assert run("-o", "one", settings=("algorithm.options.rate=0.5",)).exit_code == 0
    assert run("-o", "other", settings=("algorithm.options.rate=0",)).exit_code == 0
    one, other = (read_run(Path(name)).summary["train_loss"] for name in ("one", "other"))
    assert one > other


def test_an_update_that_is_no_function_takes_no_options(folder: Path) -> None:
    write(f"{WHOLE}\nbad = Update(correct=correct)\n")
    assert run("-o", "r").exit_code == 0
    done = run("-o", "s", settings=("algorithm.options.rate=0.5",))
    assert done.exit_code == 2
    assert "algorithm.options are not read: 'algos:bad' is no function of any" in done.output
