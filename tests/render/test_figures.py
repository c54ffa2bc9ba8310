"""Figures for a paper."""

import csv
import io
import re
import shutil
import warnings
import zlib
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import matplotlib as mpl
import pytest

from coterie.analysis.compare import compare, targets_of
from coterie.analysis.curves import curve
from coterie.analysis.lines import lines_of, read_view
from coterie.analysis.palette import COLOURS, PLACED, look_numbers
from coterie.config.files import expand
from coterie.render.figures import FORMATS, draw_figures
from coterie.render.figures.bars import time_to_target
from coterie.render.figures.curves import CURVES
from coterie.render.figures.latex import escape, latex_table
from coterie.render.figures.style import DASHES, MARKERS, WIDTHS, looks, save, short, styled
from coterie.runs.execute import execute
from coterie.runs.record import RecordedRun, find_runs
from coterie.runs.sweep import plan_jobs
from recorded import recorded
from resuming import coterie

SWEEP = {
    "data": {"sample": 0.1},
    "partition": {"num_nodes": 20},
    "train": {"steps": 5, "eval_every": 1},
    "sweep": {"seed": [0, 1], "algorithm.name": ["fedavg", "hierfavg", "fedavg-ic"]},
}
NAMES = [
    "accuracy-by-epoch",
    "accuracy-by-time",
    "bytes-by-tier",
    "delta-by-time",
    "groups",
    "loss",
    "seconds-by-kind",
    "time-to-target",
]
NASTY = r"$\frac{1}{0}$ _a^b & 50% #{x}~ <b> \input{/etc/passwd}"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    for job in plan_jobs(expand(SWEEP), folder):
        execute(job.config, job.folder)
    return folder


@pytest.fixture(scope="module")
def runs(folder: Path) -> list[RecordedRun]:
    return find_runs([folder])[0]


@pytest.fixture(scope="module")
def pdfs(runs: list[RecordedRun]) -> dict[str, bytes]:
    return draw_figures(runs)


def with_setting(run: RecordedRun, section: str, **values: object) -> RecordedRun:
    return replace(run, config={**run.config, section: {**run.config[section], **values}})


def made_up(points: list[tuple[int, float, float | None]], seed: int = 0) -> RecordedRun:
    rows = [{"t": t, "seconds": s, "test_accuracy": a} for t, s, a in points]
    return RecordedRun(Path("r"), {"seed": seed}, {}, rows, {}, {})


def size_in_inches(pdf: bytes) -> tuple[float, float]:
    box = re.search(rb"/MediaBox \[ 0 0 ([\d.]+) ([\d.]+) \]", pdf)
    assert box
    return float(box[1]) / 72, float(box[2]) / 72


def test_a_figure_can_be_of_every_format() -> None:
    assert set(FORMATS) == {"pdf", "svg", "png"}


@pytest.mark.parametrize("suffix", ["pdf", "svg", pytest.param("png", marks=pytest.mark.long)])
def test_every_figure_is_one_file_and_the_same_runs_give_the_same_bytes(
    suffix: str,
    folder: Path,
    runs: list[RecordedRun],
    pdfs: dict[str, bytes],
    tmp_path: Path,
) -> None:
    done = coterie("figures", folder, "-o", tmp_path, "--format", suffix)
    assert done.exit_code == 0, done.output
    found = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert sorted(found) == sorted(
        [*(f"{name}.{suffix}" for name in NAMES), "comparison.csv", "comparison.tex"]
    )
    assert found == (pdfs if suffix == "pdf" else draw_figures(runs, suffix=suffix))
    for content in found.values():
        assert b"CreationDate" not in content
        assert b"<dc:date>" not in content


def test_a_pdf_has_the_width_asked_for_and_its_fonts_inside(
    runs: list[RecordedRun], pdfs: dict[str, bytes]
) -> None:
    for files, inches in ((pdfs, 3.5), (draw_figures(runs, width="page"), 7.2)):
        for name, content in files.items():
            if name.endswith(".pdf"):
                assert size_in_inches(content)[0] == pytest.approx(inches), name
                assert b"/FontFile2" in content  # TrueType, embedded
                assert b"/Type3" not in content


def test_a_users_matplotlibrc_changes_nothing_and_is_not_changed(runs: list[RecordedRun]) -> None:
    plain = draw_figures(runs[:1], suffix="svg")
    with mpl.rc_context({"font.size": 30, "axes.facecolor": "red", "text.usetex": False}):
        before = dict(mpl.rcParams)
        assert draw_figures(runs[:1], suffix="svg") == plain
        assert dict(mpl.rcParams) == before


def test_blocks_of_settings_have_figures_of_their_own(runs: list[RecordedRun]) -> None:
    other = [with_setting(run, "train", lr=0.25) for run in runs]
    files = draw_figures([*runs, *other], suffix="png")
    assert {name for name in files if name.endswith("-loss.png")} == {
        "lr-0-1-loss.png",
        "lr-0-25-loss.png",
    }
    lines = list(csv.DictReader(io.StringIO(files["comparison.csv"].decode())))
    assert [line["train.lr"] for line in lines] == ["0.1"] * 3 + ["0.25"] * 3
    assert [float(line["accuracy"]) for line in lines[:3]] == [
        line.accuracy for line in compare(runs)[0].lines
    ]


def test_a_curve_worked_by_hand() -> None:
    one = made_up([(0, 0.0, 0.1), (1, 1.0, 0.2), (2, 2.0, None), (3, 4.0, 0.6)])
    two = made_up([(0, 0.0, 0.1), (1, 3.0, 0.4), (2, 4.0, 0.5), (3, 6.0, 0.6)], seed=1)
    sd = 2**0.5 / 10  # of 0.2 and 0.4
    found = curve([one, two], "seconds", "test_accuracy")
    assert found.x == [2.0, 5.0]  # neither the start, nor what one did not measure
    assert found.mean == pytest.approx([0.3, 0.6])
    assert (found.low, found.high) == ([0.2, 0.6], [0.4, 0.6])
    assert found.sd == pytest.approx([sd, 0.0])
    alone = curve([one], "seconds", "test_accuracy", 100)
    assert (alone.x[-1], alone.mean[-1], alone.sd[-1]) == (4.0, 60.0, 0.0)


def test_targets_are_those_of_the_comparison(
    runs: list[RecordedRun], pdfs: dict[str, bytes]
) -> None:
    lines: dict[str, list[RecordedRun]] = {}
    for run in runs:
        lines.setdefault(run.config["algorithm"]["name"], []).append(run)
    final = {run.config["seed"]: run.summary["test_accuracy"] for run in lines["fedavg"]}
    assert targets_of(runs, None) == final
    assert targets_of(runs, 0.5) == {0: 0.5, 1: 0.5}
    assert targets_of(lines["hierfavg"], None) == {}
    (block,) = compare(runs)
    assert "time-to-target.pdf" in pdfs
    assert block.lines[0].reached == 2
    assert "time-to-target.svg" not in draw_figures(lines["hierfavg"], suffix="svg")


def test_what_has_nothing_to_show_is_left_out(runs: list[RecordedRun]) -> None:
    fedavg = [run for run in runs if run.config["algorithm"]["name"] == "fedavg"]
    files = draw_figures(fedavg, suffix="svg")
    assert "loss.svg" in files
    assert {"groups.svg", "delta-by-time.svg"}.isdisjoint(files)
    bare = [
        replace(run, rows=[{**row, "train_loss": None, "test_loss": None} for row in run.rows])
        for run in fedavg
    ]
    assert "loss.svg" not in draw_figures(bare, suffix="svg")


def test_no_look_is_given_twice_and_neighbours_differ_in_everything() -> None:
    made = list(looks([str(number) for number in range(100)]).values())
    seen = {(look.colour, look.dashes, look.marker) for look in made}
    assert len(seen) == 100
    for one, two in pairwise(made):
        assert one.colour != two.colour
        assert one.dashes != two.dashes
        assert one.marker != two.marker
    assert len({len(COLOURS), len(DASHES), len(MARKERS)}) == 3


def test_an_algorithm_looks_the_same_whatever_else_is_drawn() -> None:
    every = look_numbers(PLACED)
    assert every == {name: at for at, name in enumerate(PLACED)}
    for name in PLACED:
        assert look_numbers([f"{name} (reference)", name])[name] == every[name]
        assert look_numbers([f"{name} (reference)"]) == {f"{name} (reference)": every[name]}
    assert look_numbers(["fedavg-ic (b)", "fedavg-ic (a)"]) == {
        "fedavg-ic (a)": every["fedavg-ic"],
        "fedavg-ic (b)": 6,
    }
    likely = looks([*PLACED, "fedavg-ic (auto)", "fedavg-ic (reference)"]).values()
    for part in ("colour", "dashes", "marker"):
        assert len({getattr(look, part) for look in likely}) == len(likely)
    ways = [f"fedavg-ic ({way})" for way in "abcdefghij"]
    numbers = look_numbers(["fedavg-ic", "fedavg", *ways])
    assert sorted(numbers.values()) == list(range(12))
    assert look_numbers(["my own", "fedavg"]) == {"my own": 6, "fedavg": 0}


def svg_text(svg: bytes) -> list[str]:
    """Texts of an SVG, which matplotlib writes as comments beside their outlines."""
    found = re.findall(r"<!-- (.*?) -->", svg.decode(), re.S)
    return [text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&") for text in found]


def test_names_of_users_are_drawn_as_they_are(runs: list[RecordedRun]) -> None:
    names = [NASTY, "名前 🙂", "two\nlines\x00", "x" * 300, "$x", "_under"]
    plain = next(run for run in runs if run.config["algorithm"]["name"] == "fedavg-ic")
    tiers = {name: 7 + at for at, name in enumerate(names)}
    named = [
        replace(
            with_setting(plain, "algorithm", grouping=name),
            summary={**plain.summary, "bytes_by_tier": tiers},
        )
        for name in names
    ]
    files = draw_figures(named, suffix="svg")
    assert {short(f"fedavg-ic ({name})") for name in names} <= set(svg_text(files["loss.svg"]))
    assert {short(name) for name in names} <= set(svg_text(files["bytes-by-tier.svg"]))


def unescaped(text: str) -> str:
    """Undo `escape` the way LaTeX would print it."""
    words = {"backslash": "\\", "asciicircum": "^", "asciitilde": "~", "less": "<"}
    words |= {"greater": ">", "bar": "|", "quotedbl": '"', "asciigrave": "`", "quotesingle": "'"}
    text = re.sub(r"\\text(\w+)\{\}", lambda m: f"\0{words[m[1]]}", text)
    text = re.sub(r"\\([{}$&#%_])", r"\1", re.sub(r"(?<!\\)\{\}", "", text))
    return text.replace("\0", "")


@pytest.mark.parametrize("text", [NASTY, "a--b", "---", "?`!`,,", "'\"`|", "plain"])
def test_latex_prints_a_text_as_it_is(text: str) -> None:
    assert unescaped(escape(text)) == text
    assert not re.search(r"(?<!\\)[$&#%_^~]|--", escape(text))


def test_the_latex_table_has_the_comparison(runs: list[RecordedRun]) -> None:
    own = [with_setting(run, "algorithm", grouping=NASTY) for run in runs]
    made = latex_table(compare(own)).decode()
    body = [line for line in made.splitlines() if line.endswith(r"\\")]
    assert {line.replace(r"\&", "").count("&") for line in body} == {9}
    assert [line.split(" & ")[0] for line in body[2:4]] == ["fedavg", "hierfavg"]
    assert escape(NASTY) in body[4]
    assert r"$\pm$" in body[2]
    assert made.count(r"\midrule") == 1
    assert r"10$\times$2" in body[3]
    both = latex_table(compare([*runs, *(with_setting(run, "train", lr=0.25) for run in runs)]))
    assert r"\textit{lr 0.25}" in both.decode()


def test_an_error_leaves_nothing_behind(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> Any:
        raise MemoryError

    monkeypatch.setattr("coterie.render.figures.latex_table", fail)
    one = next(path for path in sorted(folder.iterdir()) if path.is_dir())
    done = coterie("figures", one, "-o", tmp_path / "out", "--format", "svg")
    assert done.exit_code == 2
    assert "there is not enough memory for it" in done.output
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["-o", "file"], "--out must be a folder, got 'file'"),
        (["-o", "out", "--format", "eps"], "'eps' is not one of"),
        (["-o", "out", "--width", "3"], "'3' is not one of"),
        (["-o", "out", "--target", "80"], "is not in the range"),
        ([], "Missing option '-o'"),
    ],
)
def test_bad_input_is_one_line(
    words: list[str],
    says: str,
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("file").write_text("")
    done = coterie("figures", folder, *words)
    assert done.exit_code == 2
    assert says in done.output
    assert done.output.count("\n") == 1
    assert not Path("out").exists()


def test_a_damaged_run_is_left_out_and_told_of(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path / "runs")
    first = next(path for path in sorted((tmp_path / "runs").iterdir()) if path.is_dir())
    (first / "summary.json").write_text("{")
    done = coterie("figures", tmp_path / "runs", "-o", tmp_path / "out", "--format", "png")
    assert done.exit_code == 0
    assert "left out: " in done.output
    assert (tmp_path / "out" / "loss.png").read_bytes()[:4] == b"\x89PNG"


def test_a_band_is_drawn_only_for_several_seeds(
    runs: list[RecordedRun], pdfs: dict[str, bytes]
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        one = [run for run in runs if run.config["seed"] == 0]
        look = looks(list(lines_of(runs)))
        with styled():
            alone = save(CURVES["accuracy-by-epoch"](lines_of(one), look, 3.5), "pdf")
    assert b"/ca 0.18" in unpacked(pdfs["accuracy-by-epoch.pdf"])
    assert b"/ca 0.18" not in unpacked(alone)


def unpacked(pdf: bytes) -> bytes:
    """A PDF with its streams unpacked where they can be."""
    out = [pdf]
    for stream in re.findall(rb"stream\r?\n(.*?)\r?\nendstream", pdf, re.S):
        try:
            out.append(zlib.decompress(stream))
        except zlib.error:
            continue
    return b"".join(out)


def test_legends_and_tables_have_the_names_baseline_and_best_that_were_chosen(
    runs: list[RecordedRun],
) -> None:
    slow = [with_setting(run, "train", lr=0.01) for run in runs]
    worse = [replace(run, summary={**run.summary, "val_accuracy": 0.0}) for run in slow]
    named = [
        replace(run, config={**run.config, "label": run.config["algorithm"]["name"].upper()})
        for run in [*runs, *worse]
    ]
    view = read_view(best="train.lr", baseline="HIERFAVG", score="best")
    files = draw_figures(named, suffix="svg", view=view)
    assert {"FEDAVG", "HIERFAVG", "FEDAVG-IC"} <= set(svg_text(files["loss.svg"]))
    said = "simulated seconds to HIERFAVG's best accuracy"
    assert said in " ".join(svg_text(files["time-to-target.svg"]))
    lines = list(csv.DictReader(io.StringIO(files["comparison.csv"].decode())))
    rates = {run.config["train"]["lr"] for run in runs}
    assert {float(line["best.train.lr"]) for line in lines} == rates
    assert {(line["baseline"], line["score"]) for line in lines} == {("HIERFAVG", "best")}
    head, units = files["comparison.tex"].decode().splitlines()[3:5]
    assert head.startswith(" & best & best accuracy & time")
    assert units.startswith(r" & lr & \% & s")


@pytest.mark.parametrize("width", WIDTHS.values())
@pytest.mark.parametrize(
    "whose", ["scaffold", "$x_", "SCAFFOLD with " + "many words " * 4, "W" * 40]
)
def test_the_label_below_bars_is_within_the_figure(width: float, whose: str) -> None:
    names = ["fedavg", "hier-scaffold (groups = edge)"]
    lines = {name: [recorded([(0.0, 0.1), (3.0, 0.5)])] for name in names}
    said = f"{whose}'s accuracy, mean of the last 5 evaluations"
    with styled():
        figure = time_to_target(lines, width, {0: 0.5}, said)
        figure.draw_without_rendering()
        (axis,) = figure.axes
        box = axis.xaxis.label.get_window_extent()
    assert 0 <= box.x0 < box.x1 <= figure.bbox.width
    assert 0 <= box.y0
    words = axis.get_xlabel().split()
    assert "".join(words) == "".join(f"simulated seconds to {said}".split())
