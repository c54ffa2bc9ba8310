"""How the figures of a table are written: decimals by column, deviations where they are seen."""

from dataclasses import replace

from coterie.analysis.compare import compare
from coterie.analysis.export import comparison_table
from coterie.analysis.format import cells, columns, footing
from coterie.analysis.lines import read_view
from coterie.render.figures.latex import latex_table
from coterie.runs.record import RecordedRun
from recorded import recorded


def run(algorithm: str, seed: int, last_s: float, lr: float = 0.1) -> RecordedRun:
    curve = [(0.0, 0.1), (last_s, 0.5 + 0.1 * seed)]
    summary = {"Delta": 0.02 * seed, "d_local": 0.004}
    return recorded(curve, seed, summary, algorithm={"name": algorithm}, train={"lr": lr})


RUNS = [
    run(name, seed, last_s)
    for name, times in (("fedavg", (3.74, 3.76)), ("fedavg-ic", (0.9, 1.1)))
    for seed, last_s in enumerate(times)
]


def test_a_column_has_as_many_decimals_in_every_line() -> None:
    (block,) = compare(RUNS)
    rows = [dict(zip(columns([block]), row, strict=True)) for row in cells(block.lines)]
    assert [row["accuracy\n%"] for row in rows] == ["55.0 ± 7.1"] * 2
    assert [row["sim\ns"] for row in rows] == ["3.75 ± 0.01", "1.00 ± 0.14"]
    assert [row["speed\nup"] for row in rows] == ["1.00 ± 0.00x", "3.75 ± 0.52x"]
    assert [row["Delta"] for row in rows] == ["0.0100 ± 0.0141"] * 2


def test_a_deviation_that_no_line_shows_is_left_out_of_its_column() -> None:
    (block,) = compare(RUNS)
    assert [row[5] for row in cells(block.lines)] == ["4.00", "4.00"]


def test_who_did_not_always_reach_the_target_is_told() -> None:
    (block,) = compare(RUNS, 0.55)
    assert [row[3] for row in cells(block.lines)] == ["3.76 (1/2)", "1.10 (1/2)"]


def test_the_heading_says_what_the_accuracy_is_and_what_lines_are() -> None:
    heads = {
        score: columns(compare(RUNS, None, read_view(score=score)))[1]
        for score in ("last", "best", "mean:2")
    }
    assert heads == {
        "last": "accuracy\n%",
        "best": "accuracy %\nbest",
        "mean:2": "accuracy %\nlast 2",
    }
    assert columns(compare(RUNS, None, read_view("train.lr,algorithm.name")))[0] == "line"


def test_the_best_value_of_a_setting_has_a_column() -> None:
    both = [*RUNS, *(run("fedavg", seed, 1.0, lr=0.5) for seed in (0, 1))]
    (block,) = compare(both, None, read_view(best="train.lr"))
    assert columns([block])[1] == "best\nlr"
    assert [row[1] for row in cells(block.lines)] == ["0.1", "0.1"]
    assert "lr: best of every line by the validation part" in footing(block)


def test_figures_about_nodes_have_columns_where_all_lines_have_them() -> None:
    nodes = {"node_mean": 0.5, "node_sd": 0.125, "node_worst": 0.25}
    measured = [replace(run, summary={**run.summary, **nodes}) for run in RUNS]
    for run in measured:
        run.summary["node_worst"] += 0.1 * run.config["seed"]
    (block,) = compare(measured)
    names, rows = columns([block]), cells(block.lines)
    assert names[1:4] == ["accuracy\n%", "nodes\n%", "worst\ntenth %"]
    assert [row[2:4] for row in rows] == [["50.0 ± 12.5", "30.0 ± 7.1"]] * 2
    assert {len(row) for row in rows} == {len(names)}
    assert "nodes: mean ± SD over nodes" in footing(block)
    table = comparison_table([block])
    assert table["node_mean"] == [0.5, 0.5]
    assert latex_table([block]).decode().count(r"50.0 $\pm$ 12.5 & 30.0 $\pm$ 7.1") == 2


def test_figures_about_nodes_have_no_columns_where_one_run_has_none() -> None:
    nodes = {"node_mean": 0.5, "node_sd": 0.125, "node_worst": 0.25}
    some = [*RUNS[:1], *(replace(run, summary={**run.summary, **nodes}) for run in RUNS[1:])]
    (block,) = compare(some)
    assert "nodes\n%" not in columns([block])
    assert {len(row) for row in cells(block.lines)} == {len(columns([block]))}
    assert "node_mean" not in comparison_table(compare(RUNS))
