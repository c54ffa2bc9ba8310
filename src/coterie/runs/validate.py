"""What a run folder must hold to be read back; what is wrong in it is named by file and line."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from reprlib import repr as short
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from coterie.config.schema import build
from coterie.config.settings import Config
from coterie.config.toml import read_toml
from coterie.core.convert import convert
from coterie.core.errors import CoterieError
from coterie.core.regular import read_text
from coterie.core.types import Json
from coterie.simulation.row import METRICS

ENDS = ("complete", "failed", "diverged", "interrupted")
MOST = 1e100  # so that sums and products of some are still numbers
MANY_EDGES = 10_000
UNREADABLE = (OSError, ValueError, AttributeError, KeyError, TypeError, RecursionError)

Number = Annotated[float, Meta(gt=-MOST, lt=MOST)]
Maybe = Number | None
Whole = Annotated[int, Meta(ge=0, lt=2**53)]
Least1 = Annotated[int, Meta(ge=1)]
Sized = Annotated[int, Meta(ge=0, le=10**12)]  # numbers or bytes of a model
Section = dict[str, Any]
SETTINGS = "config.toml"
MOST_SETTINGS = 2**17  # bytes of config.toml
SHARES = ("test_accuracy", "val_accuracy", "node_mean", "node_worst")
ROUNDING = 1e-6
LONGEST_METRIC = 60  # letters of a metric's name
LINES: msgspec.json.Decoder[Any] = msgspec.json.Decoder()


class _Named(Struct):
    name: str


class _Algorithm(Struct):
    name: str
    tau1: int | str
    tau2: int | str


class _Network(Struct):
    topology: str


class _Compute(Struct):
    flops: str


class _Train(Struct):
    steps: int
    lr: Number
    lr_decay: Number
    batch_size: int | str


class Settings(Struct):
    """config.toml, as far as every run of any version has it."""

    seed: Annotated[int, Meta(ge=0, le=2**63 - 1)]
    algorithm: _Algorithm
    data: _Named
    partition: Section
    model: _Named
    network: _Network
    compute: _Compute
    train: _Train
    label: str = ""


class About(Struct):
    """meta.json, likewise."""

    versions: Section


class _Measured(Struct, kw_only=True):
    seconds: Number
    test_accuracy: Maybe
    wall_s: Maybe = None
    train_loss: Maybe = None
    node_mean: Maybe = None
    node_sd: Maybe = None
    node_worst: Maybe = None
    by_class: list[Maybe] | None = None
    group_sizes: list[Whole] = []
    bytes_by_tier: dict[str, Number] = {}


class Row(_Measured, kw_only=True):
    """A line of rows.jsonl."""

    t: Whole
    epoch: Number = 0.0
    test_loss: Maybe = None
    Delta: Maybe = None
    delta: Maybe = None
    node_loss: Maybe = None


class _Schedule(Struct):
    t: Least1
    tau1: Least1
    tau2: Least1


class _Expected(Struct):
    seconds: Maybe
    low_s: Maybe
    high_s: Maybe
    loss: Maybe
    accuracy: Maybe = None

    def __post_init__(self) -> None:
        if self.seconds is not None and self.low_s is None:
            raise ValueError("seconds must come with low_s")


class _Tuned(Struct, forbid_unknown_fields=True):
    num_groups: Least1
    schedules: Annotated[list[_Schedule], Meta(min_length=1)]
    expected: _Expected


class Summary(_Measured, kw_only=True):
    """summary.json, and progress.json meanwhile; `tuned` is of a run that chose its schedule."""

    status: str
    group_sizes: list[Whole]
    steps: Number
    d_local: Number
    d_group: Maybe
    d_global: Number
    Delta: Maybe
    delta: Maybe
    compute_s: Maybe = None
    group_s: Maybe = None
    global_s: Maybe = None
    grouping_s: Maybe = None
    Delta_first: Maybe = None
    val_accuracy: Maybe = None
    val_loss: Maybe = None
    n_parameters: Sized | UnsetType = UNSET
    model_bytes: Sized | UnsetType = UNSET
    tuned: _Tuned | UnsetType = UNSET


class Groups(Struct):
    """grouping.json, of parts that fit together."""

    z: Annotated[list[Whole], Meta(min_length=1)]
    class_counts: list[list[Whole]]
    edge_of: list[Whole] | None = None
    nodes: list[Any] = []
    edges: list[Any] = []
    servers: list[Whole] = []

    def __post_init__(self) -> None:
        """Compare the parts."""
        n, edge_of = len(self.z), self.edge_of or [0] * len(self.z)
        n_edges = max(edge_of) + 1 if self.edge_of else 0
        if max(self.z) >= n:
            raise ValueError("z must be numbers of groups")
        if not len(self.class_counts) == len(edge_of) == n:
            raise ValueError("class_counts and edge_of must have an entry for every node")
        if len({len(row) for row in self.class_counts}) != 1:
            raise ValueError("class_counts must have as many classes for every node")
        if not any(map(any, self.class_counts)):
            raise ValueError("class_counts must count examples, got none")
        if n_edges > max(n, MANY_EDGES):
            raise ValueError(f"edge_of names edge {n_edges - 1} of {n} nodes")
        for key, names, needed in (("nodes", self.nodes, n), ("edges", self.edges, n_edges)):
            if 0 < len(names) < needed:
                raise ValueError(f"{key} must name all {needed}, or none")


def read_settings(folder: Path) -> Json:
    """Read the config.toml of a run folder; what is no regular file of TOML is a ValueError."""
    try:
        return read_toml(read_text(folder / SETTINGS, MOST_SETTINGS))
    except ValueError as error:
        said = str(error)
        raise ValueError(said if said.startswith(SETTINGS) else f"{SETTINGS}: {said}") from error


def read_object(path: Path) -> Json:
    """Read a regular file that holds one JSON object."""
    return read_json(path.name, read_text(path))


def read_json(name: str, text: str) -> Json:
    """Read a text that holds one JSON object, of numbers that are numbers.

    >>> read_json("meta.json", "[]")
    Traceback (most recent call last):
    ValueError: meta.json: must hold a JSON object, got a list
    """
    try:
        content = msgspec.json.decode(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{name}: {str(error).partition(' - at ')[0]}") from error
    if not isinstance(content, dict):
        raise ValueError(f"{name}: must hold a JSON object, got a {type(content).__name__}")
    return content


def read_rows(name: str, text: str, *, complete: bool) -> list[Json]:
    r"""Read a row a line; the last may be cut off unless the run claims to be complete.

    >>> read_rows("rows.jsonl", '{"t": 0, "seconds": "x"}\n', complete=True)
    Traceback (most recent call last):
    ValueError: rows.jsonl line 1: seconds must be a number, got 'x'
    """
    lines = text.split("\n")
    last = lines.pop()
    if last and complete:
        raise ValueError(f"{name} line {len(lines) + 1}: cut off")
    with suppress(ValueError, RecursionError):  # all at once, which is sooner
        rows = LINES.decode_lines(text[: len(text) - len(last)])
        if len(rows) == len(lines):
            msgspec.convert(rows, list[Row])
            return _in_order(name, rows)
    rows = [read_json(f"{name} line {at}", line) for at, line in enumerate(lines, 1)]
    for at, row in enumerate(rows, 1):
        convert(row, Row, f"{name} line {at}")
    return _in_order(name, rows)


def _in_order(name: str, rows: list[Json]) -> list[Json]:
    """Return rows whose steps rise, whose seconds do not fall and whose accuracies are shares."""
    t, seconds = -1, 0.0
    for at, row in enumerate(rows, 1):
        if row["t"] <= t:
            raise ValueError(
                f"{name} line {at}: t must be > {t} of the line before, got {row['t']}"
            )
        if row["seconds"] < seconds:
            raise ValueError(
                f"{name} line {at}: seconds must be >= {seconds}, got {row['seconds']}"
            )
        t, seconds = row["t"], row["seconds"]
        if odd := _no_share(row) or _no_metric(row):
            raise ValueError(f"{name} line {at}: {odd}")
    return rows


def metrics_of(figures: Json) -> dict[str, float | None]:
    """Return the metrics of a row or summary, by their names alone.

    >>> metrics_of({"t": 1, "metrics.auc": 0.5})
    {'auc': 0.5}
    """
    found = [(key, value) for key, value in figures.items() if key.startswith(METRICS)]
    return {key.removeprefix(METRICS): value for key, value in found}


def _no_metric(figures: Json) -> str:
    """Say which metric has no name that prints, or is no number.

    >>> _no_metric({"metrics.auc": "high"})
    "metrics.auc must be a number, got 'high'"
    """
    for name, value in metrics_of(figures).items():
        if not (0 < len(name) <= LONGEST_METRIC and name.isprintable()):
            return f"metrics must have names of up to {LONGEST_METRIC} letters, got {short(name)}"
        real = type(value) in (int, float) and -MOST < float(value or 0.0) < MOST
        if value is not None and not real:
            return f"{METRICS}{name} must be a number, got {short(value)}"
    return ""


def _no_share(figures: Json) -> str:
    """Say which accuracy is none; that of nodes by their data may be 1 and a rounding.

    >>> _no_share({"test_accuracy": 5.0})
    'test_accuracy must be from 0 to 1, got 5.0'
    """
    for key in SHARES:
        value = figures.get(key)
        if value is not None and not 0 <= value <= 1 + ROUNDING:
            return f"{key} must be from 0 to 1, got {value}"
    return ""


def strange(
    config: Json,
    meta: Json,
    rows: list[Json],
    summary: Json,
    grouping: Json,
    *,
    end: str = "summary.json",
    ends: Sequence[str] = ENDS,
) -> str:
    """Say what this version of coterie does not understand in a run; nothing if it does.

    `end` is the file that the summary is from, and `ends` are what its status may be. Files that
    contradict each other are a ValueError.
    """
    try:
        convert(meta, About, "meta.json")
        told = convert(summary, Summary, end)
        convert(grouping, Groups, "grouping.json")
    except ValueError as error:
        return str(error)
    if odd := odd_settings(config):
        return f"{SETTINGS}: {odd}"
    if told.status not in ends:
        return f"{end}: unknown status {short(told.status)}"
    if odd := _no_share(summary) or _no_metric(summary):
        return f"{end}: {odd}"
    if told.status == "complete":
        _check_complete(config, rows, told, end, metrics_of(summary))
    return ""


def _check_complete(config: Json, rows: list[Json], told: Summary, end: str, metrics: Json) -> None:
    """Refuse a run that claims to be complete, and lacks rows or contradicts itself."""
    if all(row["test_accuracy"] is None and not metrics_of(row) for row in rows):
        raise ValueError("rows.jsonl: complete without test_accuracy")
    if told.test_accuracy is None and not metrics:
        raise ValueError(f"{end}: complete without test_accuracy")
    if metrics_of(rows[-1]) != metrics:
        raise ValueError(f"rows.jsonl: its last metrics must be those of {end}")
    steps, first, last = config["train"]["steps"], rows[0], rows[-1]
    if told.steps != steps:
        raise ValueError(
            f"{end}: complete after step {told.steps:.15g}, {SETTINGS} has {steps} steps"
        )
    if (first["t"], last["t"]) != (0, steps):
        raise ValueError(
            f"rows.jsonl: complete with t from {first['t']} to {last['t']}, must be 0 to {steps}"
        )
    for key in ("seconds", "test_accuracy"):
        if last[key] != (there := getattr(told, key)):
            raise ValueError(
                f"rows.jsonl: its last {key} must be {there} as in {end}, got {last[key]}"
            )
    if told.tuned is UNSET and _lacks_means(config["algorithm"], rows, steps):
        raise ValueError(
            f"rows.jsonl: complete with {len(rows)} rows, not those of {SETTINGS}: tau1, tau2"
        )


def _lacks_means(algorithm: Json, rows: list[Json], steps: int) -> bool:
    """Whether the row of a mean is missing.

    Means are as many steps apart as an algorithm makes of tau1 and tau2, and one that searches for
    groups has a mean after its first step. Of one's own algorithm, and of auto, nobody knows.

    >>> algorithm = {"name": "fedavg", "tau1": 2, "tau2": 5}
    >>> [_lacks_means(algorithm, [{"t": t} for t in ts], 14) for ts in ((0, 10, 14), (0, 8, 14))]
    [False, True]
    """
    tau1, tau2 = algorithm["tau1"], algorithm["tau2"]
    if ":" in algorithm["name"] or "auto" in (tau1, tau2):
        return False
    before = [row["t"] for row in rows[:-1]]

    def all_there(apart: int) -> bool:
        others = [t for t in before if t % apart]
        return others in ([], [1]) and len(before) - len(others) == -(-steps // apart)

    return not any(map(all_there, (1, tau1, tau1 if tau2 == "never" else tau1 * tau2)))


def odd_settings(config: Json) -> str:
    """Say what no run of this version has among its settings; nothing if it could have them all.

    >>> odd_settings({"seed": -1})
    'seed must be >= 0, got -1'
    >>> odd_settings({"seed": 0})
    "has no 'algorithm'"
    """
    try:
        convert(config, Settings, SETTINGS)
    except ValueError as error:
        return str(error).removeprefix(f"{SETTINGS}: ")
    parts = ({name: part} for name, part in config.items())
    return next(filter(None, (_odd_part(_Part(repr(part), part)) for part in parts)), "")


@dataclass(frozen=True)
class _Part:
    """A section of a config, which is the same as another if it reads the same."""

    told: str
    content: Json = field(compare=False)


@lru_cache(maxsize=256)  # the runs of a sweep have most sections in common
def _odd_part(part: _Part) -> str:
    try:
        build(Config, part.content)
    except CoterieError as error:  # of settings, and of parts such as partitions by name
        return str(error)
    return ""
