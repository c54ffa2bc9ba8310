"""Say whether a change moved a single digit: small runs by two versions of coterie, compared.

    python scripts/same.py               what is not committed yet, against the last commit
    python scripts/same.py BASE          all that is new since BASE, a commit
    python scripts/same.py BASE --only cnn,plan

Both versions are copied to a temporary folder and driven by their command line, so that any module
may have moved. All files that they write are compared byte by byte, and all that they print. Left
out are wall times alone: wall_s in rows.jsonl and summary.json, planning_ms in what plan prints.
The page of plan has that time too and is not made. Pages, figures and tables are made by both from
the runs of BASE. Takes about a minute and a half of one core.
"""

import argparse
import io
import json
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import IO, Any, NoReturn

ROOT = Path(__file__).resolve().parents[1]
PARTS = ("src", "experiments", "examples")
WALL = re.compile(rb'"(wall_s|planning_ms)": [-+.\deE]+')
PRINTED, ERRORS, CONFIG = "printed.txt", "errors.txt", "config.toml"
KINDS = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4, "I16": 2, "I8": 1, "U8": 1}
KILLED_AT = 40  # files put in place before the run of case `killed` dies
CLIP = 60

SMALL = """
[data]
sample = 0.2

[partition]
num_nodes = 20
num_edges = 10

[algorithm]
num_groups = 4
tau1 = 2
tau2 = 2

[train]
steps = 20
lr = 0.2
"""
SWEEP = SMALL + '[sweep]\nseed = [0, 1]\n"algorithm.name" = ["fedavg", "hierfavg"]\n'
NODES = "node,edge,cat,dog\na,x,90,10\nb,x,80,0\nc,y,0,70\nd,y,10,60\ne,z,50,50\nf,z,0,9\n"
LINKS = "a,b,mbytes_per_s\n" + "".join(
    f"{node},s,{10 + 7 * i}\n" for i, node in enumerate("abcdef")
)
FILES = {"small.toml": SMALL, "sweep.toml": SWEEP, "nodes.csv": NODES, "links.csv": LINKS}

RUNS = {
    "plain": "",
    "regrouping": "algorithm.regroup_every=2 algorithm.anneal=true",
    "drift": "algorithm.regroup_drift=0.01",
    "dropout": "participation.fraction=0.8 participation.dropout=0.2 participation.jitter=0.4 "
    "participation.deadline_s=0.002 compute.speeds=lognormal",
    "by-group": "participation.fraction=0.5 participation.sampled=group algorithm.name=hierfavg",
    "by-all": "participation.fraction=0.5 participation.sampled=all",
    "scaffold": "optimizer.scaffold=true algorithm.name=fedavg",
    "fedprox": "optimizer.fedprox=0.1 optimizer.momentum=0.9 optimizer.weight_decay=0.001",
    "adam": "optimizer.server=adam optimizer.server_lr=0.05",
    "fedavgm": "optimizer.server=momentum algorithm.name=hierfavg train.step_unit=batch "
    "train.batch_size=16",
    "sketch": "algorithm.evidence=sketch algorithm.sketch_size=64",
    "private": "algorithm.evidence=sketch algorithm.privacy_epsilon=4 algorithm.regroup_every=2",
    "labels": "algorithm.evidence=labels algorithm.max_group_size=8",
    "auto": "algorithm.num_groups=auto algorithm.tau1=auto algorithm.tau2=auto train.steps=40",
    "target": "algorithm.tau1=auto algorithm.tau2=auto train.steps=30 "
    "algorithm.target_accuracy=0.5",
    "cnn": "model.name=cnn train.steps=4 algorithm.tau1=1 train.lr=0.05",
    "2nn": "model.name=2nn train.steps=8",
    "hierfavg": "algorithm.name=hierfavg seed=3",
    "centralized": "algorithm.name=centralized",
    "combined": "network.combine=searched",
    "edges-first": "network.combine=all network.access_mbytes_per_s=20",
    "jellyfish": "network.topology=jellyfish network.tcp=lossless network.routing=single",
    "waxman": "network.topology=waxman compute.speeds=uniform",
    "reference": "network.procedure=reference compute.flops=reference algorithm.grouping=reference",
    "sequential": "train.engine=sequential train.steps=8",
    "dirichlet": "partition.kind=dirichlet partition.alpha=0.3 partition.placement=by_similarity",
    "own-model": "model.name=own_model:make train.steps=8",
}
RECORDED = ("plain", "hierfavg", "scaffold", "adam", "jellyfish")
VIEWS = {
    "sweep": ["run ../sweep.toml -o runs --jobs 1 --workers 1"],
    "list": [f"list {what}" for what in ("settings", "algorithms", "groupings", "partitions")],
    "plan": ["plan ../small.toml --json --save groups.csv --export plan.json"],
    "explain": ["plan ../small.toml --explain --json"],
    "from-labels": [
        "plan --nodes ../nodes.csv --network ../links.csv --model-bytes 100000 --json "
        "--set algorithm.num_groups=2 --save groups.csv --export plan.csv"
    ],
    "network": ["network ../small.toml -o network.html", "network ../small.toml --json"],
    "data": ["data show ../small.toml -o data.html"],
    "bound": ["bound ../small.toml --csv bound.csv --json --set train.steps=10"],
    "compare": ["compare ../recorded", "compare ../recorded --json --target 0.3"],
    "report": ["report ../recorded -o report.html"],
    "export": ["export ../recorded -o rows.csv", "export ../recorded --summary -o runs.csv"],
    "retime": ["retime ../recorded -o retimed --set network.link_mbytes_per_s=10"],
    "figures": ["figures ../recorded -o figures --format svg"],
}
KILLED = "killed"
CASES = (*RUNS, KILLED, *VIEWS)


class CannotRunError(Exception):
    """A version could not run a case; says which, and its last word."""


@dataclass(frozen=True)
class Version:
    """A copy of coterie, the folder that its cases go to, and the process that runs them."""

    name: str
    source: Path
    folder: Path
    process: "subprocess.Popen[str]"
    env: Mapping[str, str]

    def run(self, case: str, *words: str) -> None:
        """Run one command in the folder of a case; what it prints is kept there."""
        request = json.dumps([str(self.folder / case), list(words)])
        assert self.process.stdin and self.process.stdout
        self.process.stdin.write(request + "\n")
        self.process.stdin.flush()
        if (reply := self.process.stdout.readline().strip()) != "0":
            self.fail(case, reply or "its process died")

    def fail(self, case: str, code: str) -> NoReturn:
        """Raise what a command said last."""
        path = self.folder / case / ERRORS
        said = path.read_text(errors="replace").strip() if path.exists() else ""
        raise CannotRunError(f"{self.name}: {said.splitlines()[-1] if said else code}")


# ---- what differs


def differences(base: Path, mine: Path) -> list[str]:
    """Name what differs between the files of two folders, wall times apart, in one line a file."""
    names = [
        {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
        for folder in (base, mine)
    ]
    found = []
    for name in sorted((names[0] | names[1]) - {ERRORS}, key=lambda name: (CONFIG in name, name)):
        if name not in names[1]:
            found.append(f"{name} is missing")
        elif name not in names[0]:
            found.append(f"{name} is new")
        else:
            before, after = (timeless((folder / name).read_bytes()) for folder in (base, mine))
            if before != after:
                found.append(f"{name} {difference(before, after)}")
    return found


def timeless(content: bytes) -> bytes:
    """Set wall times to 0.

    >>> timeless(b'{"t": 3, "wall_s": 0.0312}')
    b'{"t": 3, "wall_s": 0}'
    """
    return WALL.sub(rb'"\1": 0', content)


def difference(before: bytes, after: bytes) -> str:
    """Name the first thing that differs between two contents of a file.

    >>> difference(b'{"t": 1, "loss": 0.52}', b'{"t": 1, "loss": 0.51}')
    'loss 0.51 instead of 0.52'
    >>> difference(b"a\\nb c\\n", b"a\\nb d\\n")
    "line 2: 'b d' instead of 'b c'"
    """
    model = _of_models(before, after)
    if model:
        return model
    try:
        old, new = before.decode(), after.decode()
    except UnicodeDecodeError:
        at = f"byte {_alike(before, after):,}"
        return f"differs from {at} on; {len(after):,} bytes instead of {len(before):,}"
    return _of_values(_parsed(old), _parsed(new)) or _of_texts(old, new)


def _of_texts(old: str, new: str) -> str:
    """Name the first line that differs."""
    lines, others = old.splitlines(), new.splitlines()
    if lines == others:
        return "has other line ends"
    number = next(i for i, (a, b) in enumerate(zip_longest(lines, others)) if a != b)
    line, other = [*lines, ""][number], [*others, ""][number]
    if lines[number:] == others[number + 1 :]:
        return f"line {number + 1}: {_short(other)!r} is new"
    if lines[number + 1 :] == others[number:]:
        return f"line {number + 1}: {_short(line)!r} is missing"
    said = _of_values(_parsed(line), _parsed(other)) or _of_lines(line, other)
    return f"line {number + 1}: {said}"


def _parsed(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError:
        return None


def _of_values(old: object, new: object, where: str = "") -> str:
    """Name the first difference of two JSON values by its key; nothing if there is none."""
    if isinstance(old, dict) and isinstance(new, dict):
        if [*old] != [*new]:
            odd = [*(key for key in old if key not in new), *(key for key in new if key not in old)]
            what = f"has and lacks {', '.join(odd)}" if odd else "has its keys in another order"
            return f"{where} {what}".strip()
        pairs = [(f"{where}.{key}" if where else key, old[key], new[key]) for key in old]
    elif isinstance(old, list) and isinstance(new, list):
        if len(old) != len(new):
            return f"{where} has {len(new)} entries instead of {len(old)}".strip()
        pairs = [(f"{where}[{i}]", a, b) for i, (a, b) in enumerate(zip(old, new, strict=True))]
    else:
        told, other = json.dumps(old), json.dumps(new)
        return "" if told == other else f"{where} {_short(other)} instead of {_short(told)}".strip()
    return next((said for key, a, b in pairs if (said := _of_values(a, b, key))), "")


def _of_lines(old: str, new: str) -> str:
    """Show two lines from shortly before where they part."""
    start = max(0, _alike(old, new) - CLIP // 2)
    return f"{_short(new[start:])!r} instead of {_short(old[start:])!r}"


def _alike(old: Sequence[object], new: Sequence[object]) -> int:
    """Count how much of the beginning is the same."""
    pairs = enumerate(zip(old, new, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(old), len(new)))


def _short(text: str) -> str:
    return text if len(text) <= CLIP else f"{text[: CLIP - 3]}..."


def _of_models(before: bytes, after: bytes) -> str:
    """Name the first tensor that differs between two models, and how much of it does."""
    old, new = header(before), header(after)
    if not old or not new:
        return ""
    if old != new:
        return f"header: {_of_values(old, new)}"
    data, other = _data(before), _data(after)
    for name, tensor in old.items():
        start, stop = tensor["data_offsets"]
        if data[start:stop] != other[start:stop]:
            size = KINDS.get(tensor["dtype"], 1)
            parts = range(start, stop, size)
            n = sum(data[at : at + size] != other[at : at + size] for at in parts)
            return f"{name}: {n:,} of {len(parts):,} numbers differ"
    return "differs outside its tensors"


def header(content: bytes) -> dict[str, Any]:
    """Return the tensors that a safetensors file says it has; nothing if it is none."""
    size = int.from_bytes(content[:8], "little")
    if size > len(content) - 8 or not content[8:].startswith(b"{"):
        return {}
    try:
        told = json.loads(content[8 : 8 + size])
    except ValueError:
        return {}
    return {name: entry for name, entry in told.items() if name != "__metadata__"}


def _data(content: bytes) -> bytes:
    return content[8 + int.from_bytes(content[:8], "little") :]


def described(folder: Path) -> str:
    """Say how much was compared: rows and numbers of runs, else files and bytes."""
    files = [path for path in folder.rglob("*") if path.is_file() and path.name != ERRORS]
    rows = sum(p.read_bytes().count(b"\n") for p in files if p.name == "rows.jsonl")
    models = [header(p.read_bytes()) for p in files if p.suffix == ".safetensors"]
    numbers = sum(math.prod(entry["shape"]) for model in models for entry in model.values())
    if rows:
        return f"rows {rows:,}" + (f", model {numbers:,} numbers" if numbers else "")
    return f"files {len(files)}, {sum(p.stat().st_size for p in files):,} bytes"


# ---- two versions


def checked_out(base: str, folder: Path) -> None:
    """Write the source of a commit to a folder."""
    command = ["git", "-C", str(ROOT), "archive", "--format=tar", base, *PARTS]
    done = subprocess.run(command, capture_output=True, check=False)
    if done.returncode:
        sys.exit(f"same: no commit {base!r} to compare with; {done.stderr.decode().strip()}")
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
        archive.extractall(folder, filter="data")


def as_it_is(folder: Path) -> None:
    """Copy the source of the working tree, also what is not committed, to a folder."""
    command = ["git", "-C", str(ROOT), "ls-files", "-coz", "--exclude-standard", *PARTS]
    names = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split("\0")
    for name in filter(None, names):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, folder / name)


@contextmanager
def started(name: str, source: Path, folder: Path, cache: Path) -> Iterator[Version]:
    """Start a process with a version's source; end it."""
    env = {
        **os.environ,
        "PYTHONPATH": str(source / "src"),
        "COTERIE_DATA": str(cache),  # shared: both train a module in the same way
        "OMP_NUM_THREADS": "1",
        "COLUMNS": "120",
    }
    command = [sys.executable, "-P", __file__, "--serve"]
    pipe = subprocess.PIPE
    process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=env, cwd=folder)
    assert process.stdout and process.stdin
    try:
        where = Path(process.stdout.readline().strip() or "nowhere")
        if (source / "src").resolve() not in where.resolve().parents:
            sys.exit(f"same: {name} would be {where}, not {source / 'src'}; nothing was compared")
        yield Version(name, source, folder, process, env)
    finally:
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()


def serve(requests: IO[str]) -> None:
    """Run the commands that come in, in their folders, and answer each with its exit code."""
    import coterie
    from coterie.cli import main

    with os.fdopen(os.dup(1), "w") as replies:
        print(coterie.__file__, file=replies, flush=True)
        for line in requests:
            folder, words = json.loads(line)
            os.chdir(folder)
            with Path(PRINTED).open("ab") as printed, Path(ERRORS).open("ab") as errors:
                os.dup2(printed.fileno(), 1)
                os.dup2(errors.fileno(), 2)
                code: object = 0
                try:
                    main(words, prog_name="coterie")
                except SystemExit as end:
                    code = end.code or 0
                except BaseException as error:
                    print(f"{type(error).__name__}: {error}", file=sys.stderr)
                    code = 1
                sys.stdout.flush()
                sys.stderr.flush()
            print(code, file=replies, flush=True)


def doomed(words: list[str]) -> None:
    """Run a command that is killed once it has put so many files in place, at whatever speed."""
    from coterie.cli import main

    left = KILLED_AT

    def watch(event: str, _: object) -> None:
        nonlocal left
        if event == "os.rename":
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(watch)
    main(words, prog_name="coterie")


# ---- the cases


def run_case(version: Version, case: str) -> None:
    """Run what a case consists of by one version."""
    folder = version.folder / case
    folder.mkdir()
    words = ["run", "../small.toml", "-o", "run", "--workers", "1"]
    if case in RUNS:
        if "own_model" in RUNS[case]:
            shutil.copyfile(ROOT / "examples" / "own_model.py", folder / "own_model.py")
        version.run(case, *words, *_sets(RUNS[case]))
    elif case == KILLED:
        words += ["--checkpoint-every", "0"]
        words += _sets("train.steps=60 algorithm.regroup_every=2")
        command = [sys.executable, "-P", __file__, "--doomed", *words]
        with (folder / ERRORS).open("w") as errors:
            done = subprocess.run(
                command, env=version.env, cwd=folder, stdout=errors, stderr=errors, check=False
            )
        if done.returncode != -signal.SIGKILL or (folder / "run" / "summary.json").exists():
            version.fail(case, f"ended with {done.returncode} before it was killed")
        version.run(case, "run", "--resume", "run", "--workers", "1")
    else:
        for line in VIEWS[case]:
            version.run(case, *line.split())


def _sets(settings: str) -> list[str]:
    return [word for setting in settings.split() for word in ("--set", setting)]


def share(base: Version, mine: Version) -> None:
    """Give both versions the runs of BASE to look at, so that wall times are the same too."""
    for case in RECORDED:
        if not (base.folder / case / "run" / "summary.json").exists():
            shutil.rmtree(base.folder / case, ignore_errors=True)
            run_case(base, case)
    for version in (base, mine):
        for case in RECORDED:
            shutil.copytree(base.folder / case / "run", version.folder / "recorded" / case)


def compare(case: str, base: Version, mine: Version) -> str:
    """Run a case by both versions, and return a line about it."""
    try:
        looks = any("../recorded" in command for command in VIEWS.get(case, ()))
        if looks and not (mine.folder / "recorded").exists():
            share(base, mine)
        for version in (base, mine):
            if not (version.folder / case).exists():
                run_case(version, case)
    except CannotRunError as error:
        return f"ERROR      {case}: {error}"
    found = differences(base.folder / case, mine.folder / case)
    if not found:
        return f"same       {case}  {described(mine.folder / case)}"
    more = f"; and {len(found) - 1} more files" if len(found) > 1 else ""
    return f"DIFFERENT  {case}: {found[0]}{more}"


def chosen(text: str) -> list[str]:
    """Read names of cases; all without any."""
    wanted = text.split(",") if text else list(CASES)
    if unknown := [name for name in wanted if name not in CASES]:
        sys.exit(f"same: unknown case {unknown[0]!r}; choose from {', '.join(CASES)}")
    return wanted


def main() -> int:
    """Compare, print a line for every case, and return 1 if any differs."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("base", nargs="?", default="HEAD", help="commit to compare with [HEAD]")
    parser.add_argument("--only", default="", help="cases, with commas between [all]")
    parser.add_argument("--keep", type=Path, help="keep what was written in this new folder")
    wanted = parser.parse_args()
    cases = chosen(wanted.only)
    begun = time.monotonic()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    with ExitStack() as stack:
        if wanted.keep:
            wanted.keep.mkdir(parents=True)
        temporary = tempfile.TemporaryDirectory(prefix="coterie-same", ignore_cleanup_errors=True)
        folder = wanted.keep.resolve() if wanted.keep else Path(stack.enter_context(temporary))
        for name in ("base", "mine"):
            (folder / name / "cases").mkdir(parents=True)
            for file, content in FILES.items():
                (folder / name / "cases" / file).write_text(content)
        checked_out(wanted.base, folder / "base")
        as_it_is(folder / "mine")
        base, mine = (
            stack.enter_context(
                started(told, folder / name, folder / name / "cases", folder / "cache")
            )
            for told, name in ((wanted.base, "base"), ("the working tree", "mine"))
        )
        print(f"{len(cases)} cases by {wanted.base} and by the working tree", flush=True)
        lines = []
        for case in cases:
            if sys.stdout.isatty():
                print(f"...        {case}", end="\r", flush=True)
            lines.append(compare(case, base, mine))
            print(lines[-1], flush=True)
    odd = [line for line in lines if not line.startswith("same ")]
    settings = sum(line.startswith("DIFFERENT") and CONFIG in line for line in odd)
    told = "all cases are the same"
    if odd:
        told = f"{len(odd)} of {len(cases)} cases are NOT the same"
        told += f", {settings} of them in {CONFIG} alone" if settings else ""
    print(f"{told} ({time.monotonic() - begun:.0f} s)")
    return 1 if odd else 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        serve(sys.stdin)
    elif sys.argv[1:2] == ["--doomed"]:
        doomed(sys.argv[2:])
    else:
        try:
            sys.exit(main())
        except KeyboardInterrupt:
            sys.exit(130)
