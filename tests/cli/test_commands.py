import json
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from coterie.cli import main
from coterie.render.page import page_data
from coterie.runs.record import find_runs
from made_runs import made_run, write_run

SMALL = ["--set", "partition.num_nodes=20", "--set", "train.steps=5"]


def coterie(*words: str) -> Result:
    return CliRunner().invoke(main, list(words))


def test_help_teaches_the_way_in() -> None:
    said = coterie("--help").output
    assert "coterie demo" in said
    assert "coterie run quickstart" in said
    for words in ([], ["data"], ["flower"]):
        assert coterie(*words).output == coterie(*words, "--help").output
        assert coterie(*words).exit_code == 0
    said = coterie("run", "--help").output
    assert "num_edge_aggregation" in said
    assert "coterie run --resume runs/my " in said
    assert "coterie run my.toml --checkpoint-every 60 " in said


def test_a_shipped_experiment_runs_by_name_and_compares(tmp_path: Path) -> None:
    done = coterie("run", "quickstart", *SMALL, "--out", str(tmp_path / "a"))
    assert done.exit_code == 0, done.output
    assert "fedavg-ic" in done.output
    page = done.output.splitlines()[-1].removeprefix("as a page: coterie ")
    assert coterie(*shlex.split(page)).exit_code == 0
    assert (tmp_path / "a" / "report.html").stat().st_size > 10_000
    more = ["--set", "algorithm.name=fedavg", "--out", str(tmp_path / "b")]
    assert coterie("run", "quickstart", *SMALL, *more).exit_code == 0
    table = json.loads(coterie("compare", str(tmp_path), "--json").output)
    assert [line["algorithm"] for line in table[0]["lines"]] == ["fedavg", "fedavg-ic"]
    assert table[0]["lines"][0]["speed_up"] == 1.0
    assert table[0]["repeated"] == 0
    shutil.copytree(tmp_path / "a", tmp_path / "again")
    assert "1 run repeats another" in coterie("compare", str(tmp_path)).output
    blocks = page_data(find_runs([tmp_path])[0])["blocks"]
    assert "1 run repeats another" in blocks[0]["footing"]
    assert len(blocks[0]["pareto"]) == 1
    report = coterie("report", str(tmp_path), "-o", str(tmp_path / "r.html"))
    assert report.exit_code == 0
    assert (tmp_path / "r.html").stat().st_size > 10_000


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Result, Path]]:
    """One sweep by itself and in two processes; one of its runs fails."""
    folder = tmp_path_factory.mktemp("swept")
    (folder / "sweep.toml").write_text(
        "[partition]\nnum_nodes = 20\n[train]\nsteps = 5\nlr_decay = 1.0\n"
        '[sweep]\n"train.lr" = [1e38, 0.1, 0.2]\n'
    )
    words = ("run", str(folder / "sweep.toml"), "--jobs")
    return {
        jobs: (coterie(*words, jobs, "--out", str(folder / jobs)), folder / jobs)
        for jobs in ("1", "2")
    }


def test_a_sweep_runs_in_worker_processes_with_the_same_rows(
    swept: dict[str, tuple[Result, Path]],
) -> None:
    for name in ("lr1e+38", "lr0.1", "lr0.2"):
        one, two = (
            [{**json.loads(line), "wall_s": 0} for line in path.read_text().splitlines()]
            for path in (folder / name / "rows.jsonl" for _, folder in swept.values())
        )
        assert len(one) == (6 if name != "lr1e+38" else 1)
        assert one == two


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_a_log_has_a_line_for_every_run_that_is_done(
    swept: dict[str, tuple[Result, Path]], jobs: str
) -> None:
    lines = [line for line in swept[jobs][0].stderr.splitlines() if "runs done" in line]
    assert [line.partition(":")[0] for line in lines] == ["1 of 3 runs done", "2 of 3 runs done"]
    assert {line.partition(": ")[2] for line in lines} == {"lr0.1", "lr0.2"}


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_one_failed_run_does_not_stop_the_others(
    swept: dict[str, tuple[Result, Path]], jobs: str
) -> None:
    done, folder = swept[jobs]
    assert done.exit_code == 2
    assert "1 of 3 runs failed; lr1e+38: the loss is" in done.output
    for name in ("lr0.1", "lr0.2"):
        summary = json.loads((folder / name / "summary.json").read_text())
        assert summary["status"] == "complete"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["run", "quikstart"], "quikstart: no such file; did you mean 'quickstart'?"),
        (["run", "quickstart", "--set", "algorithm.tau2=0"], "must be >= 1, got 0"),
        (["run", "quickstart", "--set", "model.name=nowhere:make"], "no module 'nowhere'"),
        (["run", "quickstart", "--set", "algorithm.grouping=nowhere:plan"], "no module 'nowhere'"),
        (["run", "quickstart", "--set", "data.name=mnist-f", "--set", "data.path=/no"], "/no: no"),
        (["run", "quickstart", "--set", "partition.num_nodes=5000"], "num_nodes must be <="),
        (["compare", "nowhere"], "nowhere: no such folder"),
        (["comprae", "x"], "unknown command 'comprae'; did you mean 'compare'?"),
        (["list", "modles"], "did you mean 'models'?"),
        (["run"], "Missing argument 'FILE'"),
        (["run", "quickstart", "--ste", "a=1"], "No such option"),
        (["run", "quickstart", "--checkpoint-every", "-1"], "--checkpoint-every must be a time"),
        (["run", "--resume", "nowhere"], "nowhere: no such folder"),
        (["compare", "x", "--target", "2"], "2.0 is not in the range"),
    ],
)
def test_bad_input_is_one_line_exit_2_and_nothing_written(
    words: list[str], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = coterie(*words)
    assert done.exit_code == 2
    assert done.output.startswith("coterie: ")
    assert says in done.output
    assert done.output.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_a_model_of_the_wrong_width_is_said_before_anything_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "narrow_model.py").write_text(
        "from torch import nn\ndef make(): return nn.Sequential(nn.Flatten(), nn.Linear(784, 3))\n"
    )
    monkeypatch.chdir(tmp_path)
    done = coterie("run", "quickstart", "--set", "model.name=narrow_model:make")
    assert done.exit_code == 2
    assert "must return one number per class, [batch, 10], got [2, 3]" in done.output
    assert not (tmp_path / "runs").exists()


def test_a_folder_with_runs_is_not_added_to(tmp_path: Path) -> None:
    assert coterie("run", "quickstart", *SMALL, "--out", str(tmp_path / "r")).exit_code == 0
    for out in (tmp_path / "r", tmp_path):
        again = coterie("run", "quickstart", *SMALL, "--out", str(out))
        assert again.exit_code == 2
        assert "already holds a run" in again.output


def test_a_sweep_does_not_move_into_the_folder_of_a_run(tmp_path: Path) -> None:
    run = tmp_path / "r"
    assert coterie("run", "quickstart", *SMALL, "-o", str(run)).exit_code == 0
    before = sorted(path.name for path in run.iterdir())
    for command in ("sweep", "reproduce"):
        name = "quickstart" if command == "sweep" else "group-counts"
        done = coterie(command, name, "-o", str(run))
        assert done.exit_code == 2
        assert "r already holds a run; choose another --out, or go on with: coterie" in done.output
    assert sorted(path.name for path in run.iterdir()) == before


OWN_GROUPING = """
def crashes(evidence, rng):
    return evidence.no_such_thing
def one_argument(evidence):
    return evidence
def a_list(evidence, rng):
    return []
def within_json(evidence, rng):
    import json
    return json.loads("{")
"""


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("crashes", "'Evidence' object has no attribute 'no_such_thing' (my_groups.py, line 3)"),
        ("one_argument", "TypeError: one_argument() takes 1 positional argument but 2 were given"),
        ("a_list", "a planner must return a coterie.Grouping, got list"),
        ("within_json", "(my_groups.py, line 10)"),
    ],
)
def test_an_error_in_a_grouping_of_ones_own_is_one_line_and_how_to_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, says: str
) -> None:
    (tmp_path / "my_groups.py").write_text(OWN_GROUPING)
    monkeypatch.chdir(tmp_path)
    own = ("--set", f"algorithm.grouping=my_groups:{name}", "-o", "r")
    done = coterie("run", "quickstart", *SMALL, *own)
    assert done.exit_code == 2
    assert says in done.output
    way = f"coterie run --resume r --set algorithm.grouping=my_groups:{name}"
    assert done.output.endswith(f"; once that is mended, go on with: {way}\n")


def test_a_failure_that_other_settings_would_mend_does_not_advise_to_go_on(tmp_path: Path) -> None:
    names = ("num_groups=auto", "tau1=auto", "tau2=auto", "max_gbytes=0.000001")
    words = [word for name in names for word in ("--set", f"algorithm.{name}")]
    done = coterie(
        "run", "quickstart", *SMALL, *words, "--set", "train.steps=9", "-o", str(tmp_path)
    )
    assert done.exit_code == 2
    assert "no plan keeps to algorithm.max_gbytes" in done.output
    assert "go on with" not in done.output


@pytest.mark.parametrize("text", ["import no_such_package", "1 +", "raise ValueError('no')"])
def test_a_module_that_cannot_be_imported_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    name = f"broken_{len(text)}"
    (tmp_path / f"{name}.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    done = coterie("run", "quickstart", *SMALL, "--set", f"algorithm.grouping={name}:plan")
    assert done.exit_code == 2
    assert done.output.count("\n") == 1
    assert "import" in done.output
    assert not (tmp_path / "runs").exists()


def test_an_address_of_ray_without_ray_is_refused(tmp_path: Path) -> None:
    words = ("--ray-address", "auto", "-o", str(tmp_path / "r"))
    done = coterie("run", "quickstart", *SMALL, *words)
    assert done.exit_code == 2
    assert "--ray-address is for runs on Ray: train.engine = 'ray'" in done.output
    assert not (tmp_path / "r").exists()


def test_a_file_is_not_called_a_folder_that_is_missing(tmp_path: Path) -> None:
    (tmp_path / "my.toml").touch()
    done = coterie("compare", str(tmp_path / "my.toml"))
    assert done.exit_code == 2
    assert "my.toml: a file; name the folder of a run" in done.output


def test_a_report_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    assert coterie("run", "quickstart", *SMALL, "--out", str(tmp_path / "r")).exit_code == 0
    (tmp_path / "file").write_text("")
    for out in (tmp_path / "file" / "x.html", tmp_path / "r"):
        done = coterie("report", str(tmp_path / "r"), "-o", str(out))
        assert done.exit_code == 2
        assert "cannot be written" in done.output


def test_default_folders_are_never_written_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for expected in ("quickstart", "quickstart-2"):
        assert coterie("run", "quickstart", *SMALL).exit_code == 0
        assert (tmp_path / "runs" / expected / "summary.json").exists()


def test_lists_name_everything() -> None:
    said = coterie("list").output
    for word in ("fedavg-ic", "mnist-f-mini", "2nn", "jellyfish", "Dqh", "reference", "train.lr"):
        assert word in said


@pytest.fixture(scope="module")
def rated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Plain FedAvg and SCAFFOLD with two learning rates and two seeds, the higher one better."""
    folder = tmp_path_factory.mktemp("rated")
    for scaffold in (False, True):
        for lr, end in ((0.1, 0.5), (0.5, 0.7)):
            for seed in (0, 1):
                wanted: dict[str, dict[str, Any]] = {
                    "optimizer": {"scaffold": scaffold},
                    "train": {"lr": lr},
                }
                accuracies = (0.1, end + 0.02 * seed)
                at = folder / f"{scaffold}-{lr}-{seed}"
                write_run(made_run(at, "fedavg", seed, accuracies, settings=wanted))
    return folder


def test_lines_baseline_best_and_score_are_chosen_on_the_command_line(rated: Path) -> None:
    chosen = ["--best", "train.lr", "--baseline", "fedavg (scaffold)", "--score", "mean:2"]
    (block,) = json.loads(coterie("compare", str(rated), *chosen, "--json").output)
    assert (block["baseline"], block["score"]) == ("fedavg (scaffold)", "mean:2")
    for line, name in zip(block["lines"], ("fedavg", "fedavg (scaffold)"), strict=True):
        assert (line["algorithm"], line["best"]) == (name, {"train.lr": 0.5})
        assert line["accuracy"] == pytest.approx(0.405)
        assert line["target_s_sd"] == line["speed_up_sd"] == 0
    said = coterie("compare", str(rated), *chosen).output
    assert "fedavg (scaffold)  0.5 40.5 ± 0.7" in said
    blocks = json.loads(coterie("compare", str(rated), "--lines", "train.lr", "--json").output)
    assert [[line["algorithm"] for line in block["lines"]] for block in blocks] == [
        ["lr = 0.1", "lr = 0.5"]
    ] * 2


@pytest.mark.parametrize("command", ["compare", "figures", "report", "watch"])
def test_a_line_that_is_not_there_is_one_line_in_every_command(
    rated: Path, tmp_path: Path, command: str
) -> None:
    out = ["-o", str(tmp_path / "out")] if command in ("figures", "report") else []
    done = coterie(command, str(rated), *out, "--baseline", "fedavg (scafold)")
    assert done.exit_code == 2
    assert done.output.splitlines() == [
        "coterie: --baseline: no line is called 'fedavg (scafold)'; "
        "did you mean 'fedavg (scaffold)'?"
    ]


def test_the_help_of_the_comparison_teaches_by_examples() -> None:
    said = coterie("compare", "--help").output
    for example in ("--best train.lr", "--baseline hierfavg", "--score mean:5"):
        assert f"coterie compare runs/my {example} " in said


def ended(code: str, *words: str) -> tuple[int, str, str]:
    """Run the command line after some code; return the exit code and what was printed."""
    program = (
        f"{code}\nimport sys\nsys.argv[0] = 'coterie'\nfrom coterie.__main__ import main\nmain()"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, *words], capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_a_signal_while_the_command_line_is_imported_is_one_line(name: str) -> None:
    code = (
        "import os, signal, sys\n"
        "class Pressed:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'coterie.cli':\n"
        f"            os.kill(os.getpid(), signal.{name})\n"
        "sys.meta_path.insert(0, Pressed())\n"
    )
    assert ended(code, "--help") == (130, "", "coterie: stopped\n")


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_a_signal_after_the_end_changes_nothing(name: str) -> None:
    code = (
        "import atexit, os, signal, threading\n"
        f"def press(*_): os.kill(os.getpid(), signal.{name})\n"
        "atexit.register(press)\n"  # the last of all
        "threading._register_atexit(press)\n"  # where threads are waited for
    )
    status, out, err = ended(code, "nosuch")
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert "unknown command 'nosuch'" in err


def test_ctrl_c_just_before_the_command_line_heeds_it_is_one_line() -> None:
    code = (
        "import os, signal\nfrom coterie.cli.commands import Commands\n"
        "Commands.main = lambda *_, **__: os.kill(os.getpid(), signal.SIGINT)\n"
    )
    assert ended(code, "--help") == (130, "", "coterie: stopped\n")


def test_ctrl_c_while_python_makes_a_dataclass_ends_with_130(tmp_path: Path) -> None:
    (tmp_path / "presses.py").write_text(
        "import coterie.cli as cli\n"
        "from coterie.__main__ import main\n"
        "cli.find_complete = lambda _: exec('raise KeyboardInterrupt')\n"  # as dataclasses do
        "main()\n"
    )
    command = [sys.executable, "-m", "presses", "compare", "."]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (130, "\ncoterie: stopped\n")


@pytest.mark.parametrize("closed", [(0,), (1,), (2,), (0, 1, 2)])
def test_closed_streams_are_no_fault(tmp_path: Path, closed: tuple[int, ...]) -> None:
    run = shlex.quote(str(write_run(made_run(tmp_path / "run"))))
    closing = " ".join(f"{fd}>&-" for fd in closed)
    command = shlex.join([sys.executable, "-m", "coterie"])
    for words, code in ((f"compare {run}", 0), ("nosuch", 2)):
        line = f"{command} {words} {closing}"
        done = subprocess.run(["sh", "-c", line], capture_output=True, text=True, check=False)
        assert done.returncode == code, done.stderr
        assert ("fedavg" in done.stdout) == (code == 0 and 1 not in closed)
        assert done.stderr.count("\n") == (code == 2 and 2 not in closed)


def test_a_table_that_nobody_reads_to_its_end_ends_quietly(tmp_path: Path) -> None:
    run = shlex.quote(str(write_run(made_run(tmp_path / "run"))))
    command = shlex.join([sys.executable, "-m", "coterie"])
    line = f"{{ {command} compare {run}; echo $? >&2; }} | true"
    done = subprocess.run(["sh", "-c", line], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("", "1\n")


def test_a_damaged_run_that_says_it_is_complete_is_one_line_on_resume(tmp_path: Path) -> None:
    run = write_run(made_run(tmp_path / "run"))
    rows = run / "rows.jsonl"
    assert "complete already" in coterie("run", "--resume", str(run)).output
    rows.write_text(rows.read_text().partition("\n")[0] + "\n")
    done = coterie("run", "--resume", str(run))
    assert (done.exit_code, done.output.count("\n")) == (2, 1)
    assert "damaged run folder (rows.jsonl: " in done.output


@pytest.mark.parametrize(
    ("name", "value"),
    [("MPLBACKEND", "nonsense"), ("SOURCE_DATE_EPOCH", "abc"), ("COLUMNS", "²"), ("LINES", "²")],
)
def test_an_environment_that_libraries_fail_on_is_no_fault(
    tmp_path: Path, name: str, value: str
) -> None:
    run = write_run(made_run(tmp_path / "run"))
    code = (
        f"import atexit, os\nos.environ[{name!r}] = {value!r}\n"
        "def draw():\n    import matplotlib.figure, numpy.f2py\n"
        "atexit.register(draw)"
    )
    status, out, err = ended(code, "compare", str(run))
    assert (status, err) == (0, "")
    assert "fedavg" in out


def test_a_folder_that_cannot_be_made_is_said_before_the_runs_are_listed(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for words in (["run"], ["sweep"]):
        out = ["--out", str(tmp_path / "file" / "x")]
        done = coterie(*words, "quickstart", "--set", "train.steps=-1", *out)
        assert done.exit_code == 2
        assert "file/x: cannot be written (Not a directory: " in done.output
