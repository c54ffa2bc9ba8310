"""The experiment file: TOML to frozen, checked values.

`--set` wins over the file and the file over the defaults; anything unknown or impossible is a
one-line error before anything runs.
"""

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any, Literal

import tomli_w

from coterie.algorithms import ALGORITHMS, GROUPINGS
from coterie.data import DATASETS
from coterie.errors import ConfigError
from coterie.models import MODELS, REFERENCE_FLOPS
from coterie.partition import PARTITIONS, partition_name
from coterie.schema import build, leaves, setting, words
from coterie.topology import TOPOLOGIES

Nested = dict[str, Any]
DEFAULT_NODES, DEFAULT_EDGES = 100, 10


@dataclass(frozen=True)
class DataConfig:
    """Which examples."""

    name: str = setting(
        "mnist-f-mini",
        "dataset, or 'my_pkg.data:load'",
        choices=DATASETS,
        paths=True,
        also=("dataset",),
    )
    path: str = setting("", "the dataset's files; empty: where 'coterie data' put them")
    sample: float = setting(1.0, "share of the data to use, in whole users", above=0, at_most=1)


@dataclass(frozen=True)
class PartitionConfig:
    """Which node holds what, under which network edge."""

    kind: str = setting(
        "Dtt",
        "how examples are dealt; flwr-datasets' names work too",
        choices=PARTITIONS,
        canon=partition_name,
    )
    num_nodes: int | Literal["auto"] = setting(
        "auto",
        "devices; auto: 100, or each user of 'natural', or as the file says",
        at_least=1,
        also=("num_clients", "total_clients", "num_supernodes", "num_partitions"),
    )
    num_edges: int | Literal["auto"] = setting(
        "auto", "network edges; auto: 10, or as the file says", at_least=1, also=("total_silos",)
    )
    placement: Literal["paper", "random", "by_similarity"] = setting(
        "paper", "which nodes sit under the same edge"
    )
    alpha: float = setting(0.5, "dirichlet: small is uneven", above=0)
    min_partition_size: int = setting(1, "dirichlet: examples of the smallest node", at_least=1)
    shards_per_node: int = setting(
        2, "shards of each node", at_least=1, also=("num_shards_per_partition",)
    )
    classes_per_node: int = setting(
        2, "pathological: classes of each node", at_least=1, also=("num_classes_per_partition",)
    )
    spread: Literal["normal", "exponential", "lognormal"] = setting("normal", "how counts vary")
    sd: float = setting(
        1.0, "standard deviation of the counts (lognormal: of their log)", at_least=0
    )
    file: str = setting("", "your own partition: a CSV or Parquet of example, node, edge")


@dataclass(frozen=True)
class ModelConfig:
    """What is trained."""

    name: str = setting("sr", "model, or 'my_pkg.models:make'", choices=MODELS, paths=True)


@dataclass(frozen=True)
class NetworkConfig:
    """How the nodes are joined."""

    topology: str = setting("fat-tree", "network", choices=TOPOLOGIES)
    link_mbytes_per_s: float = setting(100.0, "speed of every link", above=0)
    latency_s: float = setting(0.001, "latency of every link", at_least=0)
    degree: int = setting(4, "links per switch of a jellyfish", at_least=2)


@dataclass(frozen=True)
class ComputeConfig:
    """How fast the nodes are."""

    flops: Literal["analytic", "reference"] = setting(
        "analytic", "operations per example: counted, or as the paper's simulator charged"
    )
    gflops: float = setting(5.0, "speed of a node", above=0)


@dataclass(frozen=True)
class AlgorithmConfig:
    """Who trains with whom, and when what is averaged."""

    name: str = setting("fedavg-ic", "algorithm", choices=ALGORITHMS)
    tau1: int = setting(
        1,
        "local steps per group mean",
        at_least=1,
        way_out="use tau1 = 1 for a group mean every step",
        also=("num_local_update", "kappa1", "local_epochs", "local_rounds"),
    )
    tau2: int = setting(
        5,
        "group means per global mean",
        at_least=1,
        way_out="use tau2 = 1 for plain FedAvg",
        also=("num_edge_aggregation", "kappa2", "group_comm_round"),
    )
    num_groups: int = setting(5, "groups (K)", at_least=1, also=("group_num", "K"))
    grouping: str = setting(
        "reference",
        "search, or 'my_pkg.groups:plan'",
        choices=GROUPINGS,
        paths=True,
        also=("group_method",),
    )
    alpha_iid: float = setting(1.0, "weight of the divergence cost", at_least=0)
    alpha_comm: float = setting(1.0, "weight of the hop cost", at_least=0)
    charge_grouping: bool = setting(True, "charge the gradients' upload to the clock")


@dataclass(frozen=True)
class TrainConfig:
    """How local steps run."""

    steps: int = setting(100, "local steps (T)", at_least=1, also=("num_server_rounds", "rounds"))
    step_unit: Literal["epoch", "batch"] = setting("epoch", "what one SGD step is")
    batch_size: int | Literal["auto", "full"] = setting(
        "auto", "examples per batch; auto: full for sr, else 128", at_least=1
    )
    lr: float = setting(0.1, "learning rate", above=0, at_most=1e38, also=("learning_rate", "eta"))
    lr_decay: float = setting(0.99, "factor on the rate every step", above=0, at_most=1)
    eval_every: int = setting(1, "measure every so many global means", at_least=1)
    engine: Literal["sequential"] = setting("sequential", "how local steps are computed")
    device: Literal["cpu", "cuda", "mps"] = setting("cpu", "where torch runs")
    threads: int = setting(1, "torch threads; more can change the last digits", at_least=1)


@dataclass(frozen=True)
class Config:
    """One run, fully described.

    >>> make_config({"algorithm": {"tau2": 3}}).algorithm.tau2
    3
    """

    seed: int = setting(
        0, "decides every random choice", at_least=0, at_most=2**63 - 1, also=("random_seed",)
    )
    data: DataConfig = field(default_factory=DataConfig)
    partition: PartitionConfig = field(default_factory=PartitionConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    network: NetworkConfig = field(default_factory=NetworkConfig)
    compute: ComputeConfig = field(default_factory=ComputeConfig)
    algorithm: AlgorithmConfig = field(default_factory=AlgorithmConfig)
    train: TrainConfig = field(default_factory=TrainConfig)


def load_experiment(path: Path, overrides: Iterable[str] = ()) -> list[Config]:
    """Read an experiment file and `key=value` overrides; one config per run that it describes.

    A table `[sweep]` lists several values for a key, such as `"algorithm.name" = ["fedavg",
    "fedavg-ic"]`; every combination is a run, the last key varying fastest.
    """
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ConfigError(f"{path}: no such file") from error
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read as text ({error})") from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: not TOML: {error}") from error
    return expand(content, overrides)


def expand(content: Nested, overrides: Iterable[str] = ()) -> list[Config]:
    """Make the configs of an experiment: the file's values, its sweep, then the overrides."""
    content = dict(content)
    sweep = content.pop("sweep", {})
    if not isinstance(sweep, dict):
        raise ConfigError(f"'sweep' is a section, written [sweep], got {sweep!r}")
    sweep = _dotted(sweep)
    for override in overrides:
        key, value = parse_override(override)
        sweep.pop(key, None)
        content = _with(content, key, value)
    for key, values in sweep.items():
        if not isinstance(values, list) or not values:
            raise ConfigError(f"sweep.{key!r} must be a list of values, got {values!r}")
    configs = []
    for combination in product(*sweep.values()):
        one = content
        for key, value in zip(sweep, combination, strict=True):
            one = _with(one, key, value)
        configs.append(make_config(one))
    return configs


def make_config(content: Mapping[str, Any]) -> Config:
    """Check a nested mapping and make it a config; every value that is missing is the default."""
    config: Config = build(Config, content)
    return _resolve(config)


def parse_override(text: str) -> tuple[str, object]:
    """Read `a.b=value`, where value is TOML, or else a bare string.

    >>> parse_override("train.lr=0.5"), parse_override("model.name=2nn")
    (('train.lr', 0.5), ('model.name', '2nn'))
    """
    key, sign, raw = text.partition("=")
    if not sign or not key.strip():
        raise ConfigError(f"--set takes key=value, got {text!r}; for example algorithm.tau2=5")
    try:
        value = tomllib.loads(f"value = {raw}")["value"]
    except tomllib.TOMLDecodeError:
        value = raw.strip()
    return key.strip(), value


def to_toml(config: Config) -> str:
    """Write a config as TOML that reads back as the same config.

    >>> make_config(tomllib.loads(to_toml(Config()))) == make_config({})
    True
    """
    return tomli_w.dumps(asdict(config))


def flat(config: Config) -> dict[str, Any]:
    """Return a config as one level of dotted keys.

    >>> flat(Config())["algorithm.tau1"]
    1
    """
    table: dict[str, Any] = {}
    for name, part in asdict(config).items():
        table |= (
            {f"{name}.{k}": v for k, v in part.items()} if isinstance(part, dict) else {name: part}
        )
    return table


def settings() -> list[tuple[str, Any, str, tuple[str, ...]]]:
    """List every key with its default, what it is, and the words it takes."""
    return [(key, f.default, f.metadata["about"], words(f)) for key, f in leaves(Config)]


def _dotted(table: Nested) -> Nested:
    """Write {"a": {"b": values}}, TOML's `a.b = values` without quotes, as {"a.b": values}."""
    flat: Nested = {}
    for key, value in table.items():
        inner = {f"{key}.{k}": v for k, v in value.items()} if isinstance(value, dict) else None
        flat |= {key: value} if inner is None else inner
    return flat


def _with(content: Nested, dotted: str, value: object) -> Nested:
    """Return content with content["a"]["b"] = value for the key "a.b"."""
    section, dot, name = dotted.partition(".")
    if not dot:
        return {**content, section: value}
    inner = content.get(section, {})
    if not isinstance(inner, dict):
        raise ConfigError(f"{section!r} is a value, so there is no {dotted!r}")
    return {**content, section: {**inner, name: value}}


def _resolve(config: Config) -> Config:
    """Check what concerns several settings together, and fill in what "auto" stands for."""
    config = replace(config, partition=_counted(config.partition))
    part, algorithm = config.partition, config.algorithm
    n, edges = part.num_nodes, part.num_edges
    if n != "auto" and edges != "auto" and edges > n:
        raise ConfigError(
            f"partition.num_edges must be <= num_nodes, got {edges} edges for {n} nodes"
        )
    if ALGORITHMS[algorithm.name].searched and n != "auto":
        check_num_groups(algorithm.num_groups, n)
    if part.file and part.kind != "file":
        raise ConfigError(f"partition.file is read with kind = 'file' only, got {part.kind!r}")
    if config.compute.flops == "reference" and config.model.name not in REFERENCE_FLOPS:
        raise ConfigError(
            f"compute.flops 'reference' is known for {', '.join(REFERENCE_FLOPS)} only, got model "
            f"{config.model.name!r}; use 'analytic'"
        )
    if config.train.batch_size == "auto":
        size: int | Literal["full"] = "full" if config.model.name == "sr" else 128
        return replace(config, train=replace(config.train, batch_size=size))
    return config


def check_num_groups(num_groups: int, num_nodes: int) -> None:
    """Refuse more groups than nodes."""
    if num_groups > num_nodes:
        raise ConfigError(
            f"algorithm.num_groups must be <= num_nodes, got {num_groups} groups for "
            f"{num_nodes} nodes"
        )


def _counted(part: PartitionConfig) -> PartitionConfig:
    """Fill in the numbers of nodes and edges where neither the data nor a file says them."""
    nodes, edges = part.num_nodes, part.num_edges
    if nodes == "auto" and not PARTITIONS[part.kind].counts_nodes:
        nodes = DEFAULT_NODES
    if edges == "auto" and part.kind != "file":
        edges = DEFAULT_EDGES
    return replace(part, num_nodes=nodes, num_edges=edges)
