"""What a reader of files is told besides where they are."""

import json
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass

from coterie.data.cache import Reader


@dataclass(frozen=True)
class Asked:
    """The settings of `[data]` that some readers read; `Known.reads` names those of each."""

    side: int = 0  # of pictures, which are resized to it; 0: as they are
    window: int = 80  # characters of a text that are an example
    target: tuple[str, ...] = ()  # columns of a table that are predicted
    user: str = ""  # the column that says whose a row is
    strata: str = ""  # the column that rows are dealt and split by
    features: tuple[str, ...] = ()  # columns that are predicted from; none: all others
    missing: str = "auto"
    task: str = "auto"  # told by the values

    def how(self, reads: Iterable[str]) -> str:
        """Write down what differs from the usual among the settings that are read.

        >>> Asked(side=32).how(["side"]), Asked().how(["side"]), Asked(side=32).how([])
        ('{"side": 32}', '', '')
        """
        usual = asdict(Asked())
        other = {k: v for k, v in asdict(self).items() if k in set(reads) and v != usual[k]}
        return json.dumps(other, sort_keys=True) if other else ""


Asking = Callable[[Asked], Reader]
