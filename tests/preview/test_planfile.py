"""The plan file: what is written can be read, by others too, and what is wrong is named."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from click.testing import CliRunner

from altered import bytes_of, texts_of
from coterie.cli import main
from coterie.config.files import expand
from coterie.preview.plan import plans
from coterie.preview.planfile import (
    SCHEMA,
    Plan,
    PlanError,
    PlannedNode,
    check_nodes,
    checked,
)
from coterie.preview.planfile.reading import read_plan
from coterie.preview.planfile.writing import as_json, contents, plan_of
from plans import EXAMPLE

SETS = ["data.sample=0.2", "partition.num_nodes=20", "algorithm.num_groups=2"]
Change = Callable[[dict[str, Any]], object]


def written(plan: Plan, path: Path) -> Path:
    path.write_bytes(contents(plan, path.suffix))
    return path


def changed(tmp_path: Path, change: Change) -> Path:
    raw = json.loads(json.dumps(as_json(EXAMPLE)))
    change(raw)
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(raw))
    return path


def test_a_plan_is_read_as_it_was_written(tmp_path: Path) -> None:
    assert read_plan(written(EXAMPLE, tmp_path / "plan.json")) == EXAMPLE
    bare = replace(EXAMPLE, title="", found_by="")  # a CSV has no place for them
    assert read_plan(written(EXAMPLE, tmp_path / "plan.csv")) == bare


def test_the_chosen_groups_are_exported_with_schedule_and_times(tmp_path: Path) -> None:
    raw = {
        "data": {"sample": 0.2},
        "partition": {"num_nodes": 20},
        "algorithm": {"num_groups": 2, "tau1": 2, "tau2": 3},
    }
    view = plans(expand(raw), methods=("coterie",))
    plan = read_plan(written(plan_of(view), tmp_path / "plan.json"))
    assert [node.group for node in plan.nodes] == view.chosen.grouping.z.tolist()
    assert plan.servers == tuple(str(s) for s in view.chosen.grouping.servers)
    assert (plan.tau1, plan.tau2, plan.steps) == (2, 3, 100)
    assert sum(node.examples for node in plan.nodes) == view.fleet.class_counts.sum()
    times = plan.predicted
    assert times.group_s == view.chosen.group_s
    assert times.global_s == view.global_s
    whole = 6 * times.step_s + 2 * times.group_s + times.global_s
    assert times.round_s == pytest.approx(whole)
    assert times.step_s == max(node.step_s for node in plan.nodes)


@pytest.mark.parametrize("suffix", ["json", "csv"])
def test_the_command_exports_a_plan(tmp_path: Path, suffix: str) -> None:
    sets = [part for key in SETS for part in ("--set", key)]
    out = tmp_path / f"plan.{suffix}"
    words = ["plan", "quickstart", *sets, "--methods", "coterie", "--json", "--export", str(out)]
    done = CliRunner().invoke(main, words)
    assert done.exit_code == 0, done.output
    plan = read_plan(out)
    assert len(plan.nodes) == 20
    assert len(plan.servers) == 2


def test_the_command_refuses_an_export_that_is_no_plan_file(tmp_path: Path) -> None:
    for words, said in (
        (["--export", str(tmp_path / "plan.txt")], "--export must end in .json or .csv, got"),
        (["--export", str(tmp_path)], "--export must name a file, such as plan.json, got"),
        (
            ["--export", str(tmp_path / "x.csv"), "--save", str(tmp_path / "x.csv")],
            "--export and --save must be different files, got",
        ),
    ):
        done = CliRunner().invoke(main, ["plan", "quickstart", "--json", *words])
        assert done.exit_code == 2
        assert said in done.output
        assert len(done.output.splitlines()) == 1


def test_the_schema_is_one_and_takes_what_is_written() -> None:
    schema = json.loads(SCHEMA.read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(as_json(EXAMPLE), schema)


WRONG: list[tuple[str, Change, str]] = [
    ("version", lambda r: r.update(version=2), "version 2, and this coterie reads version 1"),
    ("no version", lambda r: r.pop("version"), "a plan of version None"),
    ("format", lambda r: r.update(format="x"), "is not a plan"),
    ("no nodes", lambda r: r.update(nodes=[]), "nodes must be of length >= 1, got []"),
    ("no groups", lambda r: r.update(groups=[]), "groups must be of length >= 1, got []"),
    ("gone", lambda r: r.pop("schedule"), "has no 'schedule'"),
    ("unknown", lambda r: r.update(colour="red"), "unknown 'colour'"),
    ("deep", lambda r: r["schedule"].update(tau3=1), "schedule: unknown 'tau3'"),
    ("tau", lambda r: r["schedule"].update(tau2=0), "schedule.tau2 must be >= 1, got 0"),
    ("text", lambda r: r["schedule"].update(tau1="2"), "tau1 must be a whole number, got '2'"),
    ("bool", lambda r: r["schedule"].update(tau1=True), "tau1 must be a whole number"),
    (
        "part",
        lambda r: r["nodes"][0].update(group=0.5),
        "nodes[0].group must be a whole",
    ),
    (
        "minus",
        lambda r: r["predicted"].update(group_s=-1),
        "predicted.group_s must be >= 0.0, got",
    ),
    ("name", lambda r: r["nodes"][0].update(node=" "), "node must be a name"),
    ("list", lambda r: r.update(nodes=["a"]), "nodes[0] must be an object, got 'a'"),
    ("long", lambda r: r["nodes"][0].update(node=256 * "a"), "nodes[0].node must be a name of 1"),
    ("many", lambda r: r["schedule"].update(steps=2**53 + 1), "steps must be <= 9007199254740992"),
]
TORN: list[tuple[str, Change, str]] = [  # more than a schema can say
    ("twice", lambda r: r["nodes"][1].update(node="a"), "node 'a' is there twice"),
    ("far", lambda r: r["nodes"][1].update(group=2), "is in group 2, and there are 2"),
    ("empty", lambda r: r["nodes"][2].update(group=0), "group 1 has no node"),
    ("order", lambda r: r["groups"].reverse(), "groups must be 0, 1, 2, ... in order, got 1"),
    ("server", lambda r: r["groups"][0].update(server="c"), "which is a node of group 1"),
]


@pytest.mark.parametrize(("change", "said"), [w[1:] for w in WRONG], ids=[w[0] for w in WRONG])
def test_schema_and_reader_refuse_the_same(tmp_path: Path, change: Change, said: str) -> None:
    path = changed(tmp_path, change)
    with pytest.raises(PlanError) as refused:
        read_plan(path)
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(json.loads(path.read_text()), json.loads(SCHEMA.read_text()))


@pytest.mark.parametrize(("change", "said"), [w[1:] for w in TORN], ids=[w[0] for w in TORN])
def test_parts_that_do_not_fit_are_named(tmp_path: Path, change: Change, said: str) -> None:
    with pytest.raises(PlanError) as refused:
        read_plan(changed(tmp_path, change))
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "is not JSON"),
        ("[]", "is not a plan"),
        ('{"format": "coterie-plan", "format": "coterie-plan"}', "'format' is there twice"),
        ('{"format": "coterie-plan", "version": NaN}', "NaN is not a number"),
        ("[" * 100_000, "is not"),
    ],
)
def test_what_is_no_json_is_refused(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "plan.json"
    path.write_text(text)
    with pytest.raises(PlanError, match=said):
        read_plan(path)
    with pytest.raises(PlanError, match="cannot be read"):
        read_plan(tmp_path / "nothing.json")


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("1,a,", "2,a,", "version 2, and this coterie reads version 1"),
        ("1,b,", "1,a,", "node 'a' is there twice"),
        ("1,b,0,8", "1,b,0,none", "line 3: examples must be a whole number, got 'none'"),
        ("1,b,0,8,0.001,a", "1,b,0,8,0.001,b", "group 0 has two servers"),
        ("1,c,1,", "1,c,2,", "groups must be 0, 1, 2, ... in order, got 2"),
        ("version", "vision", "has no column 'version'"),
        ("tau1", "tau3", "columns must be version, node"),
        ("0.25,0.01,0.02,0.032\n1,b", "0.5,0.01,0.02,0.032\n1,b", "Delta must be the same in"),
    ],
)
def test_a_csv_that_is_no_plan_is_refused(tmp_path: Path, old: str, new: str, said: str) -> None:
    path = written(EXAMPLE, tmp_path / "plan.csv")
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new, 1))
    with pytest.raises(PlanError) as refused:
        read_plan(path)
    assert said in str(refused.value)


def test_nodes_that_are_missing_or_unknown_are_named() -> None:
    check_nodes(EXAMPLE, ["c", "b", "a"], "here")
    with pytest.raises(PlanError, match="node 'z' is not in the plan"):
        check_nodes(EXAMPLE, ["a", "b", "c", "z"], "here")
    with pytest.raises(PlanError, match="node 'a' of the plan is missing, and 1 more"):
        check_nodes(EXAMPLE, ["c"], "here")


@pytest.mark.parametrize("name", ["plan.json", "plan.csv", "plan.CSV"])
def test_a_plan_that_a_spreadsheet_saved_is_read(tmp_path: Path, name: str) -> None:
    plain, saved = tmp_path / name.lower(), tmp_path / "saved" / name
    saved.parent.mkdir()
    plain.write_bytes(contents(EXAMPLE, plain.suffix))
    saved.write_bytes(b"\xef\xbb\xbf" + plain.read_bytes())
    assert read_plan(saved) == read_plan(plain)


@pytest.mark.parametrize(
    ("place", "value", "said"),
    [
        (("schedule", "steps"), 400 * "9", "schedule.steps must be <= 9007199254740992, got 9"),
        (("schedule", "tau1"), 5000 * "9", "schedule.tau1 must be <= 9007199254740992, got 9"),
        (("model_bytes",), "-" + 5000 * "9", "model_bytes must be >= 1, got -9"),
        (("Delta",), 400 * "9", "Delta must be a number, got 9"),
        (("Delta",), "1e400", "Delta must be <= 1.7"),
        (("nodes", 1, "examples"), "9007199254740993", "nodes[1].examples must be <= 900719925474"),
        (("nodes", 1, "node"), json.dumps(256 * "x"), "nodes[1].node must be a name of 1 to 255"),
        (("nodes", 1, "node"), json.dumps("a\x00b"), "nodes[1].node must be a name of 1 to 255"),
        (("nodes", 1, "node"), json.dumps("\x1b[2J"), "nodes[1].node must be a name of 1 to 255"),
        (("groups", 1, "server"), json.dumps("a\nb"), "groups[1].server must be a name of 1 to"),
        (("groups", 1, "server"), json.dumps("\ud800"), "groups[1].server must be a name of 1 to"),
        (("predicted", "step_s"), "-Infinity", "is not JSON (-Infinity is not a number)"),
        (("title",), 100 * "[" + 100 * "]", "title must be text, got [["),
        (("title",), 90_000 * "[" + 90_000 * "]", "is not a plan; it is nested too deep"),
    ],
)
def test_a_value_that_no_plan_has_is_named_with_its_place(
    tmp_path: Path, place: tuple[Any, ...], value: str, said: str
) -> None:
    raw = json.loads(json.dumps(as_json(EXAMPLE)))
    within = raw
    for key in place[:-1]:
        within = within[key]
    within[place[-1]] = "@here@"
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(raw).replace('"@here@"', value))
    with pytest.raises(PlanError) as refused:
        read_plan(path)
    assert str(refused.value).startswith(f"{path}: {said}")
    assert len(str(refused.value)) < 600
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("suffix", [".json", ".csv"])
def test_a_plan_that_was_altered_is_read_or_refused_in_one_line(
    tmp_path: Path, suffix: str
) -> None:
    path = written(EXAMPLE, tmp_path / f"plan{suffix}")
    good = path.read_bytes()
    texts = [text.encode(errors="surrogatepass") for _, text in texts_of(as_json(EXAMPLE))]
    for data in [*bytes_of(good, 300), *(texts[::7] if suffix == ".json" else [])]:
        path.write_bytes(data)
        try:
            read_plan(path)
        except PlanError as error:
            assert str(error).startswith(f"{path}: "), error
            assert "\n" not in str(error)
            assert len(str(error)) < 1000


def test_what_is_written_keeps_the_rules_of_the_reader() -> None:
    nodes = (PlannedNode(256 * "x", 0, 9, 0.001), *EXAMPLE.nodes[1:])
    with pytest.raises(PlanError, match=r"nodes\[0\]\.node must be a name of 1 to 255 printable"):
        checked(replace(EXAMPLE, nodes=nodes), "the plan")
