"""What is passed as an object where a config has a name: datasets, models, algorithms, planners.

The record of a run names an object as `object:NAME`. A name does not bring it back, so that such a
run goes on from its folder only if the objects are passed again.
"""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from coterie.config.files import CALLED, dotted, load_experiment, make_config
from coterie.config.settings import Config
from coterie.config.shipped import experiment_path
from coterie.core.errors import ConfigError, DataError
from coterie.core.plugins import OBJECT
from coterie.data import Dataset
from coterie.data.arrays import from_pair
from coterie.data.dataset import check_dataset
from coterie.engine.update import Update
from coterie.grouping import Planner
from coterie.simulation.algorithm import Algorithm
from coterie.simulation.algorithms import with_groups
from coterie.simulation.algorithms.own import told_apart

if TYPE_CHECKING:
    from torch import nn

OwnModel: TypeAlias = "nn.Module | Callable[..., nn.Module]"
OwnDataset: TypeAlias = Dataset | tuple[Any, Any]  # or x and y, as NumPy arrays
OwnAlgorithm: TypeAlias = Algorithm | Update
OwnGrouping: TypeAlias = Planner
Experiment: TypeAlias = Config | Mapping[str, Any] | str | Path
LONGEST = 40  # characters of an object's name
KEYS = {
    "dataset": "data.name",
    "model": "model.name",
    "algorithm": CALLED,
    "grouping": "algorithm.grouping",
}


@dataclass(frozen=True, eq=False)
class Objects:
    """A dataset, model, algorithm and planner of a caller's; None where the config names one.

    `model` is a module, of which every run trains a copy, or a function that makes one.
    """

    dataset: Dataset | None = None
    model: "OwnModel | None" = None
    algorithm: Algorithm | None = None
    grouping: Planner | None = None


NOTHING_OWN = Objects()


def configured(
    experiment: Experiment,
    *,
    dataset: OwnDataset | str | None = None,
    model: "OwnModel | str | None" = None,
    algorithm: OwnAlgorithm | str | None = None,
    grouping: OwnGrouping | str | None = None,
) -> tuple[Config, Objects]:
    """Return the config of one run, and the objects that take the place of what it names.

    A config from `make_config` has decided what "auto" stands for; settings as a mapping or file
    are decided here, with the objects known.

    >>> config, own = configured({"seed": 1}, model=lambda: None, algorithm="fedavg")
    >>> config.model.name, config.algorithm.name, own.model is None
    ('object:lambda', 'fedavg', False)
    """
    given = {"dataset": dataset, "model": model, "algorithm": algorithm, "grouping": grouping}
    given = {what: value for what, value in given.items() if value is not None}
    if not given and isinstance(experiment, Config):
        return experiment, NOTHING_OWN
    content = settings_of(experiment)
    objects: dict[str, Any] = {what: v for what, v in given.items() if not isinstance(v, str)}
    names = {
        KEYS[what]: value if isinstance(value, str) else f"{OBJECT}:{_name(value)}"
        for what, value in given.items()
    }
    content = _replaced(content, names)
    _check(content, objects)
    made = None
    if "algorithm" in objects:
        made = told_apart(objects["algorithm"], "your algorithm")
        chosen = dotted(content).get("algorithm.groups", "auto")
        made = with_groups(made, names[CALLED], chosen)
    own = Objects(
        _dataset(objects["dataset"]) if "dataset" in objects else None,
        objects.get("model"),
        made,
        objects.get("grouping"),
    )
    return make_config(content, made), own


def settings_of(experiment: Experiment) -> dict[str, Any]:
    """Return the settings of one run: of a config, a mapping, a file, or one that ships."""
    if isinstance(experiment, str | Path):
        path = experiment_path(str(experiment))
        configs = load_experiment(path)
        if len(configs) > 1:
            raise ConfigError(
                f"{path}: has {len(configs)} runs; take one of those that "
                f"coterie.load_experiment({str(path)!r}) returns"
            )
        experiment = configs[0]
    if isinstance(experiment, Config):
        return asdict(experiment)
    if not isinstance(experiment, Mapping):
        kind = type(experiment).__name__
        raise ConfigError(
            f"an experiment must be a Config, a mapping of settings, or a file, got {kind}"
        )
    return dict(experiment)


def _replaced(content: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """Return settings with other names in them."""
    changed = dict(content)
    for key, name in names.items():
        section, _, setting = key.partition(".")
        inside = changed.get(section, {})
        if not isinstance(inside, Mapping):
            return changed  # make_config says what is wrong
        changed[section] = {**inside, setting: name}
    return changed


def _check(content: Mapping[str, Any], objects: Mapping[str, Any]) -> None:
    """Refuse objects of another kind, and settings that are not read with an object."""
    told = dotted(dict(content))
    for what, kinds in (
        ("model", "a torch.nn.Module, or a function that makes one"),
        ("grouping", "a function of (evidence, rng)"),
    ):
        if what in objects and not callable(objects[what]):
            kind = type(objects[what]).__name__
            raise ConfigError(f"{what} must be {kinds}, or a name, got {kind}")
    if "algorithm" in objects and any(key.startswith("algorithm.options") for key in told):
        raise ConfigError(
            "algorithm.options are not read with an algorithm that is an object; give them to the "
            "function that makes it"
        )
    if "model" in objects and told.get("compute.flops") == "reference":
        raise ConfigError(
            "compute.flops 'reference' is not known for a model that is an object; use 'analytic'"
        )


def _dataset(given: Any) -> Dataset:
    """Return a dataset that is what it says, also of plain arrays (x, y)."""
    if isinstance(given, Dataset):
        return check_dataset(given)
    if (
        isinstance(given, tuple)
        and len(given) == 2
        and all(isinstance(a, np.ndarray) for a in given)
    ):
        return from_pair(*given)
    kind = type(given).__name__
    raise DataError(
        f"dataset must be a coterie.Dataset, NumPy arrays (x, y), or a name, got {kind}"
    )


def _name(thing: Any) -> str:
    """Name an object for the record.

    >>> _name(Dataset("homes", np.zeros((1, 1)), np.zeros(1, int), 1)), _name(Algorithm("FedDyn"))
    ('homes', 'FedDyn')
    >>> _name(partial(print, 1)), _name((np.zeros((1, 1)), np.zeros(1)))
    ('print', 'arrays')
    """
    thing = thing.func if isinstance(thing, partial) else thing
    if isinstance(thing, Dataset):
        said = str(thing.name)
    elif isinstance(thing, tuple):
        said = "arrays"
    elif isinstance(thing, Algorithm):
        said = str(thing.about)
    elif inspect.isroutine(thing) or inspect.isclass(thing):
        said = thing.__name__.strip("<>")
    else:
        said = type(thing).__name__
    said = "".join(letter if letter.isprintable() else " " for letter in said).replace(":", " ")
    return " ".join(said.split())[:LONGEST].strip() or type(thing).__name__
