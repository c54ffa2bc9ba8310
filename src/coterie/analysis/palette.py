"""Which look a line has on the page and in figures: an algorithm has the same colour in all."""

from collections.abc import Iterable
from itertools import chain, count

# Okabe and Ito's colours, told apart with any colour vision; grey in place of yellow, which is lost
# on white. The page has them as --s0 to --s7, lighter where it is dark.
COLOURS = ("#000000", "#E69F00", "#56B4E9", "#009E73", "#D55E00", "#8A8A8A", "#CC79A7", "#0072B2")

# Algorithms that look the same on every page and in every figure; others take what these leave.
PLACED = ("fedavg", "hierfavg", "fedavg-c", "fedavg-i", "fedavg-ic", "centralized")


def look_numbers(names: Iterable[str]) -> dict[str, int]:
    """Number the looks of lines: an algorithm of the paper has its place, in whatever case.

    One with several groupings keeps it for the line without one, or else the first by name; the
    others have numbers that no place has, then those of absent ones, then ones from 8 on, whose
    colours repeat. The order of the names does not matter.

    >>> look_numbers(["hierfavg", "fedavg-ic (reference)", "fedavg-ic", "fedavg-c (reference)"])
    {'fedavg-c (reference)': 2, 'fedavg-ic': 4, 'fedavg-ic (reference)': 6, 'hierfavg': 1}
    """
    known = {name: at for at, name in enumerate(PLACED)}
    order = sorted(set(names))  # a name comes before the same with a grouping
    found: dict[str, int] = {}
    for name in order:
        at = known.get(name.split(" ", maxsplit=1)[0].lower())
        if at is not None and at not in found.values():
            found[name] = at
    taken = set(found.values())
    own, more = range(len(known)), range(len(known), len(COLOURS))
    free = chain(more, (at for at in own if at not in taken), count(len(COLOURS)))
    return {name: found[name] if name in found else next(free) for name in order}
