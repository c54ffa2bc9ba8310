"""The exceptions a user can meet, each one line: what, the rule, the value, the way out."""

import difflib
import re
from collections.abc import Iterable
from reprlib import Repr

LONGEST_NAME = 200  # that anything can have been meant by
LONGEST_VALUE = 300  # of characters, as a line shows it
LONG_WORD = re.compile(r"\S{600,}")


class CoterieError(Exception):
    """Root of every error the package raises on purpose; the CLI prints it and exits with 2."""

    unforeseen = False  # by the code that raised it; see core/boundary.py

    def __str__(self) -> str:
        """Say it in a line that can be read, whatever a file or a user has called things."""
        return LONG_WORD.sub(lambda word: f"{word[0][:LONGEST_VALUE]}...", super().__str__())


class CoterieWarning(UserWarning):
    """What goes on and may be wrong; the CLI prints it in a line."""


def words_of(error: BaseException) -> str:
    """Return what an exception says; nothing where a user's own cannot say it.

    >>> words_of(KeyError("lr")), words_of(TimeoutError())
    ("'lr'", '')
    """
    try:
        return str(error)
    except KeyboardInterrupt:
        raise
    except BaseException:  # of whatever kind: it is no answer
        return ""


class ConfigError(CoterieError):
    """An experiment file or `--set` that cannot be run as it is."""


class DataError(CoterieError):
    """A dataset that is missing or is not what its format says."""


class PartitionError(CoterieError):
    """Data that cannot be split over the nodes as asked."""


class TopologyError(CoterieError):
    """A network that cannot be built as asked."""


class NetworkError(CoterieError):
    """A transfer that cannot be timed as asked."""


class GroupingError(CoterieError):
    """Nodes that cannot be grouped as asked."""


class OwnCodeError(GroupingError):
    """A user's own code that does not work; once it does, a run can go on."""


class ModelError(CoterieError):
    """A model that cannot be loaded, or does not fit the data."""


class TrainingError(CoterieError):
    """Training that cannot go on, such as a model that fails on a node's data."""


class DivergenceError(TrainingError):
    """A loss or gradient that is no longer a number."""


class MetricError(TrainingError):
    """A metric of one's own that fails; who asked for it says after which step."""


class ClusterError(CoterieError):
    """A cluster that cannot be reached, or that has not what is asked of it."""


class RecordError(CoterieError):
    """A run folder that cannot be written or read."""


_SHORT = Repr()
_SHORT.maxlevel, _SHORT.maxstring, _SHORT.maxother, _SHORT.maxlong = 4, 120, 120, 40


def short(value: object) -> str:
    """Write a value as Python does, cut where it is long or deep, so that a line stays one.

    >>> short(0.5), short("mine"), len(short("x" * 10_000)), short([[[[[[1]]]]]])
    ('0.5', "'mine'", 120, '[[[[[...]]]]]')
    """
    text = _SHORT.repr(value)
    return text if len(text) <= LONGEST_VALUE else f"{text[:LONGEST_VALUE]}..."


def did_you_mean(name: str, choices: Iterable[str]) -> str:
    """Return `; did you mean 'x'?` for the closest choice, else the choices themselves.

    >>> did_you_mean("fedavg-ci", ["fedavg-i", "fedavg-ic"])
    "; did you mean 'fedavg-ic'?"
    >>> did_you_mean("scafold", ["FedProx", "SCAFFOLD"])
    "; did you mean 'SCAFFOLD'?"
    >>> did_you_mean("zzz", ["sr", "2nn"])
    '; choose one of sr, 2nn'
    """
    choices = list(choices)
    by_lower = {choice.lower(): choice for choice in choices}
    swapped = [c for c in by_lower if sorted(c) == sorted(name.lower())]
    close = swapped or difflib.get_close_matches(name.lower(), by_lower, n=1, cutoff=0.6)
    if close:
        return f"; did you mean {by_lower[close[0]]!r}?"
    return f"; choose one of {', '.join(choices)}"


def unknown(what: str, name: str, choices: Iterable[str]) -> str:
    """Return the message for a name that is not in a table.

    >>> unknown("model", "snn", ["sr", "2nn", "cnn"])
    "unknown model 'snn'; did you mean 'cnn'?"
    """
    return f"unknown {what} {short(name)}{did_you_mean(name[:LONGEST_NAME], choices)}"
