"""What a config asks of the reader of its data."""

from dataclasses import fields, replace

import numpy as np

from coterie.config.settings import Config, DataConfig
from coterie.core.errors import ConfigError
from coterie.core.plugins import OBJECT
from coterie.data import DATASETS, Asked, Dataset

NAMES = tuple(f.name for f in fields(Asked) if f.name != "task")
USUAL = DataConfig()
NOT_OF_OBJECTS = ("path", "min_examples", "num_users", *NAMES)


def asked_of(config: Config) -> Asked:
    """Return the settings of `[data]` that readers heed.

    >>> asked_of(Config()) == Asked()
    True
    """
    asked = Asked(**{name: getattr(config.data, name) for name in NAMES})
    if config.data.name not in DATASETS or "task" not in DATASETS[config.data.name].reads:
        return asked
    return replace(asked, task=_target(config.task.name))


def _target(task: str) -> str:
    """Return what the target of a task is; one of one's own says that itself."""
    if ":" not in task:
        return task
    from coterie.engine.task import make_task

    return make_task(task, ()).target


def check_asked(data: DataConfig) -> None:
    """Refuse a setting that the reader of this dataset would not read.

    >>> check_asked(DataConfig(side=32))
    Traceback (most recent call last):
    coterie.core.errors.ConfigError: data.side is read with data.name = 'images' only, got ...
    """
    if data.name.startswith(f"{OBJECT}:"):
        for name in NOT_OF_OBJECTS:
            if getattr(data, name) != getattr(USUAL, name):
                raise ConfigError(
                    f"data.{name} is not read with a dataset that is an object; leave it out"
                )
    reads = DATASETS[data.name].reads if data.name in DATASETS else ()
    for name in NAMES:
        if name not in reads and getattr(data, name) != getattr(USUAL, name):
            those = [repr(known) for known in DATASETS if name in DATASETS[known].reads]
            raise ConfigError(
                f"data.{name} is read with data.name = {' or '.join(those)} only, got {data.name!r}"
            )


def is_scaled(data: DataConfig, dataset: Dataset) -> bool:
    """Whether numbers are standardised; what has none cannot be."""
    if data.scale == "auto":
        return data.name in DATASETS and DATASETS[data.name].scaled
    if data.scale == "train" and dataset.x.dtype != np.float32:
        kind = "pixels" if dataset.x.dtype == np.uint8 else "tokens"
        raise ConfigError(f"data.scale = 'train' is for numbers, and {dataset.name} has {kind}")
    return data.scale == "train"
