"""The experiment file: TOML to frozen, checked values.

`--set` wins over the file and the file over the defaults; anything unknown or impossible is a
one-line error before anything runs.
"""

from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, fields, replace
from itertools import product
from math import prod
from pathlib import Path
from tomllib import TOMLDecodeError
from typing import Any, Literal

import tomli_w

from coterie.config.readers import check_asked
from coterie.config.schema import build, check_value, default_of, leaves, words
from coterie.config.settings import AlgorithmConfig, Config, PartitionConfig
from coterie.config.toml import DEEPEST, read_toml
from coterie.core.errors import ConfigError, short
from coterie.core.inputs import with_an_end
from coterie.models import REFERENCE_FLOPS, REFERENCE_INIT
from coterie.partition import PARTITIONS
from coterie.simulation.algorithm import Algorithm
from coterie.simulation.measures import read_measures

Nested = dict[str, Any]
Scale = Literal["full", "medium", "small"]
SCALES: tuple[Scale, ...] = ("medium", "small")  # what a file may have beside the full one
Code = tuple[str, str]  # a setting, and the import path that it names
SELECT = {  # what settings can be chosen by
    "val_accuracy": "most",
    "val_loss": "least",
    "train_loss": "least",
}
DEFAULT_NODES, DEFAULT_EDGES = 100, 10
FILES = (  # settings that name a file
    *(f"network.{key}" for key in ("file", "latency_file", "access_file")),
    *("partition.file", "compute.file", "algorithm.capacity_file", "model.weights"),
)
PATHS = (*FILES, "data.path")  # settings that take a Path, too
WHERE = "ray"  # the section that says where a run runs
LABEL = "label"  # the setting that says what a run is called
MOST_RUNS = 100_000  # of a sweep
CALLED = "algorithm.name"  # the setting whose code is called as soon as there is a config


class Stored(Nested):
    """Settings as a folder has them, which may come from anybody.

    No config is made of them that would call code, unless the setting with that import path is one
    of those `allowed`.
    """

    def __init__(self, content: Mapping[str, Any], allowed: Collection[Code] = ()) -> None:
        """Take what was read, and what code the user has named, too."""
        super().__init__(content)
        self.allowed = frozenset(allowed)


class StoredCodeError(ConfigError):
    """Code that only a folder names."""

    def __init__(self, key: str, path: str) -> None:
        """Remember the setting, and the code that it names."""
        super().__init__(f"{key} names code, {path!r}, which is not run on a folder's word alone")
        self.key, self.path = key, path

    def __reduce__(self) -> tuple[type, tuple[str, str]]:
        """Let it pass from one process to another."""
        return type(self), (self.key, self.path)


def load_experiment(
    path: str | Path, overrides: Iterable[str] = (), scale: Scale = "full"
) -> list[Config]:
    """Read an experiment file and `key=value` overrides; one config per run that it describes.

    A table `[sweep]` lists several values for a key, such as `"algorithm.name" = ["fedavg",
    "fedavg-ic"]`; every combination is a run, the last key varying fastest. Values that are tables
    are settings that go together: `algorithm = [{name = "fedavg"}, {name = "fedavg-ic", tau2 =
    10}]`. At the small scale, what stands in `[small]` and `[small.sweep]` replaces settings and
    lists of the same name; a setting that is swept stays so. At the medium scale it is `[medium]`.
    A file that a setting of the experiment file names is looked for in the current folder, and then
    beside it.
    """
    content = _found_beside(read_experiment(Path(path)), Path(path).parent)
    if scale != "full" and scale not in content:
        raise ConfigError(f"{path}: has no {scale} scale, a section [{scale}]")
    return expand(content, overrides, scale)


def read_experiment(path: Path) -> Nested:
    """Read an experiment file as it is."""
    try:
        text = (path if path.is_file() else with_an_end(path)).read_text(encoding="utf-8")
        return read_toml(text)
    except FileNotFoundError as error:
        raise ConfigError(f"{path}: no such file") from error
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror or error})") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: cannot be read as text ({error})") from error
    except ValueError as error:
        raise ConfigError(f"{path}: not TOML: {error}") from error


def _found_beside(content: Nested, folder: Path) -> Nested:
    """Name files that are in an experiment file's folder, and not in the current one, by path."""
    for key in FILES:
        section, _, name = key.partition(".")
        inside = content.get(section)
        file = inside.get(name) if isinstance(inside, dict) else None
        if not isinstance(file, str) or not file:
            continue
        with suppress(OSError, ValueError):  # no name of a file: too long, or with NUL in it
            if not Path(file).exists() and (folder / file).is_file():
                content = _with(content, key, str(folder / file))
    return content


def selected_by(content: Nested) -> str:
    """Say by what the best settings of a sweep are to be chosen, `select` in it; "" if by nothing.

    >>> selected_by({"sweep": {"select": "val_accuracy", "train.lr": [0.1, 1.0]}})
    'val_accuracy'
    """
    sweep = content.get("sweep", {})
    chosen = sweep.get("select", "") if isinstance(sweep, dict) else ""
    if chosen and not (isinstance(chosen, str) and chosen in SELECT):
        raise ConfigError(
            f"sweep.select must be one of {', '.join(SELECT)}, got {short(chosen)}; what is chosen "
            "by the test part cannot be tested"
        )
    return str(chosen)


def expand(content: Nested, overrides: Iterable[str] = (), scale: Scale = "full") -> list[Config]:
    """Make the configs of an experiment: the file's values, its sweep, then the overrides."""
    content = dict(content)
    select = selected_by(content)
    scales = {name: _section(content, name) for name in SCALES}
    sweep = dotted(_section(content, "sweep"))
    sweep.pop("select", None)
    if scale != "full":
        other = scales[scale]
        sweep |= dotted(_section(other, "sweep"))
        for key, value in dotted(other).items():
            content = _with(content, key, value)
    where = [key for key in sweep if key == WHERE or key.startswith(f"{WHERE}.")]
    if where:
        raise ConfigError(
            f"sweep.{where[0]!r}: where runs run changes no result, so there is nothing to compare"
        )
    if LABEL in sweep:
        raise ConfigError(
            "sweep.'label': a label changes no result, so there is nothing to compare; write it "
            "into tables, such as algorithm = [{name = 'fedavg', label = 'FedAvg'}]"
        )
    fixed = dict(map(parse_override, overrides))
    axes = [_settings(key, values) for key, values in sweep.items() if key not in fixed]
    count = prod(map(len, axes))
    if count > MOST_RUNS:
        told = " x ".join(f"{len(axis):,}" for axis in axes)
        raise ConfigError(
            f"a sweep has at most {MOST_RUNS:,} runs, got {told} = {count:,}; list fewer values, "
            "or write several files"
        )
    for key, value in (pair for axis in axes for each in axis for pair in each):
        if key not in fixed:  # soon said of many values, while making configs of all takes a while
            check_value(Config, key, value)
    reached = [any(key in fixed for each in axis for key, _ in each) for axis in axes]
    configs: dict[object, Config] = {}
    for combination in product(*axes):
        one = content
        for key, value in (*(pair for each in combination for pair in each), *fixed.items()):
            one = _with(one, key, value)
        config = make_config(one)
        if select.startswith("val_") and not config.train.validate:
            raise ConfigError(f"sweep.select = {select!r} needs train.validate = true")
        if select == "train_loss" and "loss" not in read_measures(config.train.measure).all:
            raise ConfigError(
                f"sweep.select = 'train_loss' needs loss in train.measure, got "
                f"{', '.join(config.train.measure) or 'nothing'}"
            )
        rest = [each for each, inside in zip(combination, reached, strict=True) if not inside]
        configs.setdefault((_as_read(config), str(rest)) if any(reached) else config, config)
    return list(dict.fromkeys(configs.values()))


def _as_read(config: Config) -> tuple[Config, object]:
    """Tell runs apart: two that differ only in how groups they do not search are sought are one.

    So `algorithm.name=fedavg`, set over tables that each name an algorithm, leaves no run twice.
    """
    chosen = config.algorithm
    algorithm = chosen.made
    if algorithm.searched or algorithm.policy is not None:
        return config, None
    kept = AlgorithmConfig(chosen.name, chosen.options, chosen.groups)
    return replace(config, algorithm=kept), algorithm.schedule(*chosen.usual[1:])


def _section(content: Nested, name: str) -> Nested:
    """Take a section out of an experiment file."""
    found = content.pop(name, {})
    if not isinstance(found, dict):
        raise ConfigError(f"{name!r} is a section, written [{name}], got {short(found)}")
    return dict(found)


def _settings(key: str, values: object) -> list[list[tuple[str, object]]]:
    """List the settings that each value of a sweep's key stands for: one, or a table of some.

    >>> _settings("seed", [0, 1])
    [[('seed', 0)], [('seed', 1)]]
    >>> _settings("train", [{"steps": 5, "lr": 0.1}, {"data.name": "mnist-o"}])
    [[('train.steps', 5), ('train.lr', 0.1)], [('data.name', 'mnist-o')]]
    >>> _settings("algorithm.options", [{"mu": 0.1}])
    [[('algorithm.options.mu', 0.1)]]
    """
    if not isinstance(values, list) or not values:
        raise ConfigError(f"sweep.{key!r} must be a list of values, got {short(values)}")
    own = {f.name for f in fields(Config)}
    found = []
    for value in values:
        table = dotted(value) if isinstance(value, dict) else {key: value}
        outside = isinstance(value, dict) and key.partition(".")[0] in own
        found.append(
            [
                (f"{key}.{k}" if outside and k.partition(".")[0] not in own else k, v)
                for k, v in table.items()
            ]
        )
    return found


def make_config(content: Mapping[str, Any], made: Algorithm | None = None) -> Config:
    """Check a nested mapping and make it a config; every value that is missing is the default.

    An algorithm that is `made` already takes the place of the one that the settings name.

    >>> make_config({"algorithm": {"tau2": 3}}).algorithm.tau2
    3
    """
    if not (isinstance(content, Mapping) and all(isinstance(key, str) for key in content)):
        raise ConfigError(f"a config must be a mapping of settings by name, got {short(content)}")
    if isinstance(content, Stored):
        path = named_code(content).get(CALLED)
        if path and (CALLED, path) not in content.allowed:
            raise StoredCodeError(CALLED, path)
    config: Config = build(Config, _without_paths(content))
    return _resolve(config, made)


def _without_paths(content: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return settings with strings for the Paths of files.

    >>> _without_paths({"data": {"path": Path("my.csv"), "name": "table"}, "seed": 1})
    {'data': {'path': 'my.csv', 'name': 'table'}, 'seed': 1}
    """
    for key in PATHS:
        section, _, name = key.partition(".")
        inside = content.get(section)
        if isinstance(inside, Mapping) and isinstance(path := inside.get(name), Path):
            content = {**content, section: {**inside, name: str(path)}}
    return content


def changed(config: Config, settings: Mapping[str, Any]) -> Config:
    """Return a config with some settings changed, given by their dotted keys.

    >>> changed(Config(), {"algorithm.tau1": 2, "train.lr": 0.5}).algorithm.tau1
    2
    """
    content = asdict(config)
    for key, value in settings.items():
        content = _with(content, key, value)
    return make_config(content)


def named_code(content: Mapping[str, Any]) -> dict[str, str]:
    """Return the import paths that settings name, by setting.

    >>> named_code({"seed": 1, "model": {"name": "my_pkg.models:make"}, "data": {"name": "celeba"}})
    {'model.name': 'my_pkg.models:make'}
    >>> named_code({"task": {"metrics": ["auc", "mine:f1"]}})
    {'task.metrics': 'auc,mine:f1'}
    """
    found = {}
    for key in (key for key, f in leaves(Config) if f.metadata["paths"]):
        section, _, name = key.partition(".")
        inside = content.get(section)
        value = _as_text(inside.get(name) if isinstance(inside, Mapping) else None)
        if ":" in value:
            found[key] = value
    return found


def code_of(*configs: Config) -> set[Code]:
    """Return the settings of some configs that name code, each with its import path."""
    return {pair for config in configs for pair in named_code(asdict(config)).items()}


def code_set(overrides: Iterable[str]) -> set[Code]:
    """Return the settings among `key=value` overrides that name code, each with its import path.

    >>> code_set(["model.name=mine:make", "seed=1", "train.lr=0.5", "model.name=2nn"])
    {('model.name', 'mine:make')}
    """
    keys = {key for key, f in leaves(Config) if f.metadata["paths"]}
    pairs = [(key, _as_text(value)) for key, value in map(parse_override, overrides)]
    return {(key, value) for key, value in pairs if key in keys and ":" in value}


def _as_text(value: object) -> str:
    """Return a text, or a list of them as one; nothing of anything else.

    >>> _as_text(["auc", "mine:f1"]), _as_text("auc, mine:f1"), _as_text([1]), _as_text(None)
    ('auc,mine:f1', 'auc,mine:f1', '', '')
    """
    words = value.split(",") if isinstance(value, str) else value
    if not (isinstance(words, list | tuple) and all(isinstance(word, str) for word in words)):
        return ""
    return ",".join(word.strip() for word in words)


def parse_override(text: str, option: str = "--set") -> tuple[str, object]:
    """Read `a.b=value`, where value is TOML, or else a bare string.

    >>> parse_override("train.lr=0.5"), parse_override("model.name=2nn")
    (('train.lr', 0.5), ('model.name', '2nn'))
    """
    key, sign, raw = text.partition("=")
    if not sign or not key.strip():
        example = "for example algorithm.tau2=5"
        raise ConfigError(f"{option} takes key=value, got {short(text)}; {example}")
    try:
        found = read_toml(f"value = {raw}")
    except TOMLDecodeError:
        found = {"value": raw.strip()}
    except ValueError as error:
        raise ConfigError(f"{option} {short(text)}: {error}") from error
    if len(found) > 1:
        raise ConfigError(
            f"{option} takes one setting, got {short(text)}; give {option} once for each"
        )
    return key.strip(), found["value"]


def read_setting(key: str, value: object) -> object:
    """Return a value as its setting has it, or say why it cannot.

    >>> read_setting("algorithm.alpha_comm", 1), read_setting("seed", 1)
    (1.0, 1)
    """
    table = flat(build(Config, _with({}, key, value)))
    if key not in table:
        raise ConfigError(f"{key!r} is a section; name one of its settings")
    return table[key]


def to_toml(config: Config) -> str:
    """Write a config as TOML that reads back as the same config.

    >>> make_config(read_toml(to_toml(Config()))) == make_config({})
    True
    """
    return tomli_w.dumps(asdict(config))


def to_identity(config: Config) -> str:
    """Write as TOML what decides a run's result: all but where it runs and what it is called.

    >>> there = make_config({"ray": {"address": "auto", "actors": 8}, "label": "elsewhere"})
    >>> to_identity(there) == to_identity(make_config({}))
    True
    """
    return tomli_w.dumps({k: v for k, v in asdict(config).items() if decides(k)})


def decides(key: str) -> bool:
    """Whether a setting, or a section, has a part in a run's result.

    >>> decides("train.lr"), decides("ray.actors"), decides("label")
    (True, False, False)
    """
    return key != LABEL and key.partition(".")[0] != WHERE


def flat(config: Config) -> dict[str, Any]:
    """Return a config as one level of dotted keys.

    >>> flat(Config())["algorithm.tau1"], flat(Config())["train.measure"]
    (1, 'accuracy,loss/10,Delta/10')
    """
    return {key: one_text(value) for key, value in dotted(asdict(config)).items()}


def one_text(value: Any) -> Any:
    """Write a setting that is a list as one text, as `--set` takes it too; others as they are.

    >>> one_text(["accuracy", "Delta/10"]), one_text(0.5)
    ('accuracy,Delta/10', 0.5)
    """
    return ",".join(value) if isinstance(value, list | tuple) else value


def settings() -> list[tuple[str, Any, str, tuple[str, ...]]]:
    """List every key with its default, what it is, and the words it takes."""
    return [
        (key, one_text(default_of(f)), f.metadata["about"], words(f)) for key, f in leaves(Config)
    ]


def dotted(table: Nested) -> Nested:
    """Write {"a": {"b": values}}, TOML's `a.b = values` without quotes, as {"a.b": values}."""
    flat: Nested = {}
    for key, value in table.items():
        inside = dotted(value) if isinstance(value, dict) else None
        flat |= {key: value} if inside is None else {f"{key}.{k}": v for k, v in inside.items()}
    return flat


def _with(content: Nested, dotted: str, value: object) -> Nested:
    """Return content with content["a"]["b"] = value for the key "a.b"; deeper ones likewise."""
    section, dot, name = dotted.partition(".")
    if dotted.count(".") > DEEPEST:
        raise ConfigError(f"unknown setting {short(dotted)}; see 'coterie list settings'")
    if not dot:
        return {**content, section: value}
    inner = content.get(section, {})
    if not isinstance(inner, dict):
        raise ConfigError(f"{section!r} is a value, so there is no {dotted!r}")
    return {**content, section: _with(inner, name, value)}


def _resolve(config: Config, made: Algorithm | None = None) -> Config:
    """Check what concerns several settings together, and fill in what "auto" stands for."""
    config = replace(config, partition=_counted(config.partition))
    part, algorithm = config.partition, config.algorithm
    n, edges = part.num_nodes, part.num_edges
    if n != "auto" and edges != "auto" and edges > n:
        raise ConfigError(
            f"partition.num_edges must be <= num_nodes, got {edges} edges for {n} nodes"
        )
    made = made or algorithm.made
    if made.searched and n != "auto":
        check_num_groups(algorithm.num_groups, n)
    _check_open(algorithm, made)
    check_update(config, made)
    _check_files(config)
    check_asked(config.data)
    if not config.label.isprintable():
        raise ConfigError(f"label must be on one line, of letters that print, got {config.label!r}")
    if part.file and part.kind != "file":
        raise ConfigError(f"partition.file is read with kind = 'file' only, got {part.kind!r}")
    if config.compute.flops == "reference" and config.model.name not in REFERENCE_FLOPS:
        raise ConfigError(
            f"compute.flops 'reference' is known for {', '.join(REFERENCE_FLOPS)} only, got model "
            f"{config.model.name!r}; use 'analytic'"
        )
    if config.compute.flops == "reference" and config.compute.flops_per_example != "auto":
        raise ConfigError(
            "compute.flops_per_example takes the place of counting, and compute.flops is "
            "'reference'; leave one of them out"
        )
    if config.model.init == "reference" and config.model.name not in REFERENCE_INIT:
        raise ConfigError(
            f"model.init 'reference' is known for {', '.join(REFERENCE_INIT)} only, got model "
            f"{config.model.name!r}; use 'torch'"
        )
    if config.train.device == "mps" and config.train.precision == "float64":
        raise ConfigError("train.device 'mps' has no train.precision 'float64'; use 'cpu'")
    if config.train.engine == "ray" and config.train.threads != "auto":
        raise ConfigError(
            "train.threads is not read with train.engine = 'ray'; set ray.cpus_per_actor"
        )
    if config.data.split == "auto":
        own = made.personal or made.policy is not None or algorithm.tau2 == "never"
        split: Literal["per-node", "pooled"] = "per-node" if own else "pooled"
        config = replace(config, data=replace(config.data, split=split))
    if config.train.batch_size == "auto":
        size: int | Literal["full"] = "full" if config.model.name == "sr" else 128
        return replace(config, train=replace(config.train, batch_size=size))
    return config


def _check_files(config: Config) -> None:
    """Refuse a file that would not be read, and a kind that needs one and has none."""
    net, compute = config.network, config.compute
    wanted = {
        "network.file": (net.file, "network.topology", net.topology, ("file", "matrix")),
        "compute.file": (compute.file, "compute.speeds", compute.speeds, ("file",)),
    }
    for key, (file, of, kind, kinds) in wanted.items():
        if file and kind not in kinds:
            only = " or ".join(map(repr, kinds))
            raise ConfigError(f"{key} is read with {of} = {only} only, got {kind!r}")
        if not file and kind in kinds:
            raise ConfigError(f"{of} = {kind!r} needs {key}")
    if net.topology == "matrix" and not (net.access_mbytes_per_s == net.access_latency_s == "auto"):
        raise ConfigError(
            "network.access_mbytes_per_s and access_latency_s are not read with a matrix, which "
            "says how fast nodes are; use network.access_file"
        )
    if net.latency_file and net.topology != "matrix":
        raise ConfigError(
            f"network.latency_file is read with network.topology = 'matrix' only, got "
            f"{net.topology!r}"
        )


def check_update(config: Config, made: Algorithm) -> None:
    """Refuse what an algorithm does not go with, and optimisers that it has no room for."""
    c, o = config.algorithm, config.optimizer
    if o.scaffold and (o.momentum or o.fedprox):
        raise ConfigError(
            "optimizer.scaffold corrects plain SGD only; set optimizer.momentum and fedprox to 0"
        )
    if o.momentum and not made.update.momentum:
        raise ConfigError(f"{c.name} corrects plain SGD only; set optimizer.momentum to 0")
    for key, part in (("fedprox", "pull"), ("scaffold", "pull"), ("server", "server")):
        chosen = getattr(o, key) not in (0.0, False, "mean")
        if chosen and getattr(made.update, part) is not None:
            raise ConfigError(
                f"optimizer.{key} does not go with {c.name}, which has a {part} of its own; leave "
                "one out"
            )
    if c.tau2 == "never" and made.groups == "none" and made.policy is None and not made.pooled:
        raise ConfigError(
            "algorithm.tau2 = 'never' leaves no mean at all without groups; set algorithm.groups "
            "to 'edge' or 'search'"
        )
    only_global = made.update.server is not None and made.update.group is None
    acts = c.name if only_global else "optimizer.scaffold or server"
    if only_global or o.scaffold or o.server != "mean":
        if c.tau2 == "never":
            raise ConfigError(
                f"algorithm.tau2 = 'never' leaves out global means, at which {acts} acts; set tau2 "
                "to a number"
            )
        if made.policy is not None:
            raise ConfigError(
                f"{c.name} has several models and no global mean, at which {acts} acts; leave it "
                "out"
            )
    if made.pooled and (made.update.local or made.update.server):
        raise ConfigError(f"{c.name} trains on one node, where no update is needed")


def _check_open(c: AlgorithmConfig, made: Algorithm) -> None:
    """Refuse to choose what is not searched for, and targets that nothing is chosen by."""
    if c.open and not made.searched:
        raise ConfigError(
            f"algorithm.{c.open[0]} = 'auto' needs an algorithm that searches for groups, such as "
            f"fedavg-ic, got {c.name!r}"
        )
    if c.open and c.tau2 == "never":
        raise ConfigError(
            f"algorithm.{c.open[0]} = 'auto' is chosen for a global model; tau2 cannot be 'never'"
        )
    if c.open and (c.regroup_every or c.regroup_drift):
        raise ConfigError(
            f"algorithm.regroup_every and regroup_drift plan again with a given schedule, got "
            f"{c.open[0]} = 'auto'; leave one out"
        )
    if c.target_accuracy and c.target_loss:
        raise ConfigError("algorithm.target_accuracy and target_loss exclude each other")
    targets = {"target_accuracy": c.target_accuracy, "target_loss": c.target_loss}
    for key, value in {**targets, "max_gbytes": c.max_gbytes}.items():
        if value and not c.open:
            raise ConfigError(
                f"algorithm.{key} is read where num_groups, tau1 or tau2 is 'auto' only"
            )


def check_num_groups(num_groups: int | Literal["auto"], num_nodes: int) -> None:
    """Refuse more groups than nodes."""
    if num_groups != "auto" and num_groups > num_nodes:
        raise ConfigError(
            f"algorithm.num_groups must be <= num_nodes, got {num_groups} groups for "
            f"{num_nodes} nodes"
        )


def _counted(part: PartitionConfig) -> PartitionConfig:
    """Fill in the numbers of nodes and edges where neither the data nor a file says them."""
    nodes, edges = part.num_nodes, part.num_edges
    if nodes == "auto" and not PARTITIONS[part.kind].counts_nodes:
        nodes = DEFAULT_NODES
    if edges == "auto" and nodes != "auto":
        edges = min(DEFAULT_EDGES, nodes)
    return replace(part, num_nodes=nodes, num_edges=edges)
