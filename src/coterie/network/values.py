"""Who sends what to whom: transfers, the links they cross, and what a clock says of them."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from coterie.core.arrays import Floats, Ints
from coterie.topology import Topology


@dataclass(frozen=True, eq=False)
class Phase:
    """Transfers that start together: nbytes [F] from vertex src [F] to vertex dst [F]."""

    src: Ints
    dst: Ints
    nbytes: Ints


@dataclass(frozen=True, eq=False)
class Flows:
    """Transfers with their routes.

    Flow f crosses the link directions links[first[f]:first[f + 1]] in that order, and starts
    start_s[f] seconds after the phase does.
    """

    src: Ints
    dst: Ints
    nbytes: Ints
    links: Ints
    first: Ints
    start_s: Floats

    def __len__(self) -> int:
        """Count the flows."""
        return len(self.src)

    def take(self, order: Ints) -> "Flows":
        """Return some flows, or all in another order."""
        n = self.n_hops[order]
        first = np.concatenate([[0], np.cumsum(n)])
        at = np.repeat(self.first[:-1][order] - first[:-1], n) + np.arange(first[-1])
        return Flows(
            self.src[order],
            self.dst[order],
            self.nbytes[order],
            self.links[at],
            first,
            self.start_s[order],
        )

    @property
    def n_hops(self) -> Ints:
        """Links that each flow crosses [F]."""
        return np.diff(self.first)

    @property
    def flow_of(self) -> Ints:
        """The flow of every entry of `links`."""
        return np.repeat(np.arange(len(self)), self.n_hops)


# Seconds from the start of the phase until the last byte of each flow has arrived [F].
Clocks = Callable[[Topology, Flows], Floats]
