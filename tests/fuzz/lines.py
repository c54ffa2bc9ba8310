"""Command lines that nobody meant: good ones changed, each run in a process of its own."""

import json
import os
import random
import resource
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path

import click

from coterie.cli import main
from coterie.config.files import make_config, settings, to_toml
from coterie.preview.planfile.writing import contents
from coterie.runs.execute import execute
from fuzz.worker import MOST_BYTES, Finding, Tally
from plans import EXAMPLE
from resuming import stopped_at, tiny

MOST_S, MOST_WALL_S, SERVED_S = 10.0, 120.0, 2.0
WORK_S = 60.0  # for a line that is good after all, and searches or trains as it says
ASK_AGAIN_S = 5.0  # whoever imports may lose a Ctrl-C: C code that clears errors clears that, too
TINY = {"data": {"sample": 0.05}, "partition": {"num_nodes": 10}, "train": {"steps": 2}}
NODES = "node,site,cat,dog\na,s,40,2\nb,s,3,40\nc,t,9,9\nd,t,8,1\n"
NET = "a,b,mbit_per_s,latency_ms\ns,core,100,4\nt,core,50,6\n"
GOOD = (
    "run tiny.toml -o new",
    "run tiny.toml -o new --set train.lr=0.1 --jobs 1 --workers 1 --checkpoint-every 1s",
    "run --resume unfinished",
    "run tiny.toml -o new --track tensorboard",
    "sweep sweep.toml -o new --jobs 1",
    "sweep sweep.toml -o new --only seed=0 --set train.lr=0.1",
    "compare run --target 0.5",
    "compare run run --lines algorithm.name --json --score mean:2 --baseline fedavg",
    "compare run --best train.lr",
    "report run -o page.html --target 0.1",
    "figures run -o figures --format svg --width column",
    "export run -o rows.csv",
    "export run -o rows.csv --summary",
    "track run --to tensorboard",
    "retime run --set network.link_mbytes_per_s=10 -o new --target 0.1",
    "plan --nodes nodes.csv --network net.csv --model-bytes 5MB --set algorithm.num_groups=2",
    "plan tiny.toml --methods coterie,random -o plan.html --save new.json",
    "plan --nodes nodes.csv --network net.csv --budget 1s --by time --epsilon 1 --json",
    "network tiny.toml -o net.html --top 3",
    "network --nodes nodes.csv --network net.csv --model-bytes 1MB --json",
    "data list",
    "data info mnist-f",
    "data show tiny.toml -o data.html --groups",
    "data import arrays run --trust",
    "data fetch mnist-f",
    "bound tiny.toml -o bound.html --csv bound.csv",
    "flower up plan.json --app run -o new --write-only --rounds 2 --timeout 10s --port 9000",
    "flower status run --every 1",
    "flower keep run a",
    "flower register run",
    "flower run run",
    "flower key run a",
    "reproduce efficiency --no-run -o run --scale small",
    "watch run --port 0",
    "demo -o run --jobs 0",
    "list settings",
    "list",
    "fair tiny.toml --target-accuracy 0.2 --trials 1 --seeds 1 --methods fedavg -o new --jobs 1",
    "scenarios",
    "scenarios ships --json",
    "examples new",
    "reproduce efficiency --estimate --scale small --only model.name=sr",
)
PATHS = (
    *(
        "missing",
        "empty",
        "noise",
        ".",
        "..",
        "/",
        "run",
        "unfinished",
        "tiny.toml",
        "pipe",
        "loop",
    ),
    *("noise.csv", "noise.json", "noise.toml", "deep.toml", "deep.json", "nodes.csv", "net.csv"),
    *(
        "/dev/null",
        "/dev/full",
        "/dev/zero",
        "/proc/self/mem",
        "/proc/x",
        "/dev/null/x",
        "plan.json",
    ),
    *(
        "a/b/c/d",
        "x" * 300,
        "x" * 5000,
        "x/" * 2100,
        "\x1b[2J",
        "\udcff",
        "new\nline",
        "",
        " ",
        "~",
    ),
    *("run/rows.jsonl", "run/config.toml", "readonly", "empty.csv", "empty.json", "fifo.csv"),
)
TEXTS = (
    *(
        "-1",
        "0",
        "1",
        "1e308",
        "1e400",
        "nan",
        "inf",
        "-inf",
        "1_000",
        "0x10",
        "9" * 400,
        "9" * 5000,
    ),
    *(
        "100000",
        "1000000000",
        "99999999999999999999",
        "3.5",
        "1e-400",
        "5MB",
        "5parsecs",
        "1s",
        "-1s",
    ),
    *("true", "None", "x", "\u202egnp", "a,b", ",", "a=b", "=", "a:b", "os:system", "os.path:join"),
    *(
        "mean:0",
        "mean:x",
        "http://[bad/",
        "ray://x:y",
        "auto",
        "svg",
        "csv",
        "coterie,coterie",
        "*",
    ),
    *(
        "sr",
        "fedavg",
        "seed=0",
        "seed=[0,1]",
        "train.lr=nan",
        "algorithm.name=os:system",
        "[",
        "{}",
    ),
)
VALUES = (
    *(
        "nan",
        "inf",
        "-1",
        "0",
        "1e308",
        "1e400",
        "9" * 400,
        "9" * 5000,
        "true",
        "[]",
        "{}",
        "''",
        "x",
    ),
    *(
        "[1,2]",
        "'\\u0000'",
        "1979-05-27",
        "'os:system'",
        "'a:b'",
        "''' '''",
        "[[[[[[[]]]]]]]",
        "0.5",
        "3",
    ),
)
ODD = (
    "--frobnicate",
    "-",
    "--",
    "-x",
    "--set",
    "--set=",
    "--out",
    "-o",
    "--json",
    "--=",
    "-oo",
    "-h",
)


@cache
def commands() -> dict[str, click.Command]:
    """Return all commands by their names, such as "data show"."""

    def below(group: click.Group, before: str) -> Iterator[tuple[str, click.Command]]:
        for name, command in group.commands.items():
            if isinstance(command, click.Group):
                yield from below(command, f"{before}{name} ")
            else:
                yield f"{before}{name}", command

    return dict(below(main, ""))


def line(number: int) -> list[str]:
    """Return a command line, the same for the same number."""
    rng = random.Random(f"line {number}")
    words = GOOD[number % len(GOOD)].split()
    size = 2 if words[0] in ("data", "flower") else 1
    name = " ".join(words[:size])
    head, rest = words[:size], words[size:]
    for _ in range(rng.choice((1, 1, 1, 2, 2, 3))):
        rest = _changed(rest, commands()[name], rng)
    if rng.random() < 0.03:
        head = [rng.choice((head[0][::-1], *TEXTS, *ODD, ""))]
    return [*head, *rest]


def _changed(rest: list[str], command: click.Command, rng: random.Random) -> list[str]:
    """Change one thing: a word, its place, an option more or less."""
    at = rng.randrange(len(rest) + 1)
    what = rng.random()
    if what < 0.4 and rest:
        at = min(at, len(rest) - 1)
        return [*rest[:at], _value(rng), *rest[at + 1 :]]
    if what < 0.5 and rest:
        return [*rest[:at], *rest[at + 1 :]]
    if what < 0.55:
        return [*rest[:at], *rest[at : at + 2], *rest[at:]]
    if what < 0.65:
        return [*rest[:at], rng.choice(ODD), *rest[at:]]
    options = [p for p in command.params if isinstance(p, click.Option)]
    if what < 0.9 and options:
        option = rng.choice(options)
        spelt = rng.choice(option.opts)
        return [*rest, spelt] if option.is_flag else [*rest, spelt, _value(rng)]
    if any("--set" in option.opts for option in options):
        key = rng.choice([key for key, *_ in settings()])
        return [*rest, "--set", f"{key}={rng.choice(VALUES)}"]
    return [*rest, _value(rng)]


def _value(rng: random.Random) -> str:
    return rng.choice(PATHS if rng.random() < 0.5 else TEXTS)


@cache
def template(folder: Path) -> Path:
    """Make the files that command lines name."""
    top = folder / "template"
    top.mkdir(parents=True)
    execute(make_config(TINY), top / "run")
    stopped_at(4, tiny(steps=8), top / "unfinished")
    text = to_toml(make_config(TINY))
    (top / "tiny.toml").write_text(text, encoding="utf-8")
    sweep = text.replace("seed = 0\n", "") + "\n[sweep]\nseed = [0, 1]\n"
    (top / "sweep.toml").write_text(sweep, encoding="utf-8")
    (top / "nodes.csv").write_text(NODES, encoding="utf-8")
    (top / "net.csv").write_text(NET, encoding="utf-8")
    (top / "plan.json").write_bytes(contents(EXAMPLE, ".json"))
    for name in ("empty", "empty.csv", "empty.json"):
        (top / name).touch()
    for name in ("noise", "noise.csv", "noise.json", "noise.toml"):
        (top / name).write_bytes(random.Random(name).randbytes(2000))
    (top / "deep.toml").write_text("a = " + "[" * 5000 + "]" * 5000, encoding="utf-8")
    (top / "deep.json").write_text('{"a":' * 5000 + "1" + "}" * 5000, encoding="utf-8")
    (top / "readonly").mkdir()
    return top


def run(first: int, count: int, folder: Path) -> Tally:
    """Run so many command lines, and say how they ended."""
    tally, top = Tally(), template(folder)
    for number in range(first, first + count):
        words, here = line(number), folder / "here"
        shutil.rmtree(here, ignore_errors=True)
        shutil.copytree(top, here)
        os.mkfifo(here / "pipe")
        os.mkfifo(here / "fifo.csv")
        (here / "loop").symlink_to("loop")
        (here / "readonly").chmod(0o500)
        before = set(here.iterdir())
        kind, says, spent = ended(words, here, folder)
        left = [path.name for path in here.iterdir() if path not in before]
        if kind == "refused" and any(name.startswith(".") for name in left):
            kind, says = "left", f"{left}"
        tally.ends[kind] += 1
        tally.longest_s = max(tally.longest_s, spent)
        if kind == "caught":
            tally.ends[f"caught: {says}"] += 1
        elif kind not in ("read", "refused"):
            shown = json.dumps([word[:80] for word in words])
            tally.findings.append(Finding("lines", number, shown, kind, f"{shown} {says}"))
    return tally


def ended(words: list[str], here: Path, folder: Path) -> tuple[str, str, float]:
    """Run a command line in a child, and say how it ended and what it cost of the processor."""
    out, err = folder / "out", folder / "err"
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])  # until the command is there
    pid = os.fork()
    if not pid:
        _child(words, here, out, err)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
    status, used = _wait(pid, serves=words[:1] in (["watch"], ["demo"]) or "--watch" in words)
    spent = used.ru_utime + used.ru_stime
    text = err.read_bytes().decode("utf-8", "backslashreplace")
    last = text.strip().rpartition("\n")[2]
    if os.WIFSIGNALED(status):
        return "signal", signal.Signals(os.WTERMSIG(status)).name, spent
    if "Traceback" in text or " failed: " in last or "Warning:" in text:
        return "foreign", text[-500:], spent
    code = os.WEXITSTATUS(status)
    if spent > (MOST_S if code else WORK_S):
        return "slow", f"{spent:.0f} s: {last[:200]}", spent
    if "not enough memory" in last or "more memory than there is" in last:
        return "memory", last[:200], spent
    if code == 0 or (code, words[:2]) == (1, ["flower", "status"]):
        return "read", "", spent
    if code not in (2, 130) or not last.startswith("coterie: "):
        return "foreign", f"exit {code}: {text[-300:]}", spent
    if len(last) > 3000:
        return "long", last[:300], spent
    return ("caught", last, spent) if "COTERIE_DEBUG" in last else ("refused", "", spent)


def _child(words: list[str], here: Path, out: Path, err: Path) -> None:
    """Be the command: in its folder, without the network, its words going to files."""
    os.setsid()
    os.chdir(here)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    for number, path in ((1, out), (2, err)):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
    sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115
    dead = dict.fromkeys(("http_proxy", "https_proxy", "HTTPS_PROXY"), "http://127.0.0.1:9")
    os.environ |= {**dead, "PATH": "/nonexistent", "TMPDIR": str(here.parent)}
    os.environ.pop("COTERIE_DEBUG", None)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MOST_BYTES, resource.RLIM_INFINITY))
    code = 3
    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
        main(words, prog_name="coterie")
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 3
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _wait(pid: int, *, serves: bool) -> tuple[int, resource.struct_rusage]:
    """Wait for a child; one that serves is asked to stop after a while, as by Ctrl-C."""
    began, ask_at = time.monotonic(), SERVED_S
    while True:
        done, status, used = os.wait4(pid, os.WNOHANG)
        waited = time.monotonic() - began
        if done:
            break
        if serves and waited > ask_at:
            os.kill(pid, signal.SIGINT)
            ask_at += ASK_AGAIN_S
        if waited > MOST_WALL_S:
            os.kill(pid, signal.SIGKILL)
        time.sleep(0.005)
    with suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
    return status, used
