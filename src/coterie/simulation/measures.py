"""What is measured of a run, by name, and how often."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from coterie.core.errors import ConfigError, unknown

MEASURES: dict[str, str] = {
    "accuracy": "accuracy and loss on the test part",
    "loss": "training loss over all nodes' data",
    "Delta": "Delta and delta of two groups or more, and the training loss with them",
    "nodes": "each node's own model on its test examples",
    "classes": "test accuracy by class",
}
USUAL = ("accuracy", "loss/10", "Delta/10")
ALWAYS = frozenset({"accuracy"})  # of the first and the last row


@dataclass(frozen=True)
class Measures:
    """Names of what is measured, and every how many evaluations each is.

    With `groups`, the models of groups are scored, too, after their means.
    """

    every: Mapping[str, int] = field(default_factory=lambda: {"accuracy": 1, "loss": 1, "Delta": 1})
    groups: bool = False

    def at(self, evaluation: int) -> frozenset[str]:
        """Return what is measured at the evaluation of that number, counted from 0.

        >>> sorted(Measures({"accuracy": 1, "Delta": 10}).at(20))
        ['Delta', 'accuracy']
        >>> sorted(Measures({"accuracy": 1, "Delta": 10}).at(21))
        ['accuracy']
        """
        return frozenset(name for name, every in self.every.items() if evaluation % every == 0)

    @property
    def all(self) -> frozenset[str]:
        """Everything that is measured now and then."""
        return frozenset(self.every)

    @property
    def of_groups(self) -> frozenset[str]:
        """Return what is measured after a group mean: scores alone, as groups' models differ."""
        return frozenset({"accuracy"}) | (self.all & {"nodes"}) if self.groups else frozenset()


def read_measures(words: Iterable[str], groups: bool = False) -> Measures:
    """Read names with their intervals, such as 'loss/10' for every tenth evaluation.

    >>> read_measures(["accuracy", "Delta/10"]).every
    {'accuracy': 1, 'Delta': 10}
    """
    return Measures(dict(_read(word) for word in words), groups)


def measure_word(word: str) -> str:
    """Return a measure as it is written, or say that there is no such.

    >>> measure_word(" loss/1 "), measure_word("Delta / 10")
    ('loss', 'Delta/10')
    >>> measure_word("delta/10")
    Traceback (most recent call last):
    coterie.core.errors.ConfigError: unknown train.measure 'delta'; did you mean 'Delta'?
    """
    name, every = _read(word)
    return name if every == 1 else f"{name}/{every}"


def _read(word: str) -> tuple[str, int]:
    name, sign, interval = (part.strip() for part in word.partition("/"))
    if name not in MEASURES:
        raise ConfigError(unknown("train.measure", name, MEASURES))
    if not sign:
        return name, 1
    if not (interval.isascii() and interval.isdigit() and 0 < int(interval) < 2**31):
        raise ConfigError(
            f"train.measure: what follows {name}/ must be a whole number >= 1, got {interval!r}; "
            f"{name}/10 is every tenth evaluation"
        )
    return name, int(interval)
