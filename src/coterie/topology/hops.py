"""Hops between switches: a breadth-first search from 64 sources at once, one bit for each."""

import numpy as np
from numpy.typing import NDArray

from coterie.core.arrays import Ints
from coterie.core.errors import TopologyError

GATHERED_BYTES = 1 << 26  # what one gather of neighbours' words may take


def hops_between(links: Ints, n_switches: int, sources: Ints) -> NDArray[np.uint16]:
    """Count the links between each source and every switch [len(sources), n_switches].

    Word by word, the set of sources that reach a switch in k+1 links is the union of the sets of
    its neighbours in k; so a level costs one OR per link and 64 sources.

    >>> hops_between(np.array([[0, 1], [1, 2]]), 3, np.array([0, 2])).tolist()
    [[0, 1, 2], [2, 1, 0]]
    """
    S, H = n_switches, len(sources)
    hops = np.zeros((S, H), dtype=np.uint16)
    neighbour, first = adjacency(links, S)
    reached = np.zeros((S, -(-H // 64)), dtype=np.uint64)
    at = np.arange(H)
    np.bitwise_or.at(reached, (sources, at // 64), np.uint64(1) << (at % 64).astype(np.uint64))
    full = _words(np.ones(H, dtype=bool))
    while (behind := np.flatnonzero((reached != full).any(axis=1))).size:
        grown = reached[behind] | _union(reached, neighbour, first, behind)
        if (grown == reached[behind]).all():
            raise TopologyError(
                "the network is not connected: some switches cannot be reached from others"
            )
        hops[behind] += ~_bits(reached[behind], H)
        reached[behind] = grown
    return np.ascontiguousarray(hops.T)


def adjacency(links: Ints, n_switches: int) -> tuple[Ints, Ints]:
    """List the neighbours of every switch, one after the other, and where each list starts."""
    from scipy.sparse import coo_array

    a, b = links.reshape(-1, 2).T
    ends = np.concatenate([a, b]), np.concatenate([b, a])
    graph = coo_array((np.ones(2 * len(a), dtype=bool), ends), shape=(n_switches, n_switches))
    rows = graph.tocsr()
    return rows.indices.astype(np.int64), rows.indptr.astype(np.int64)


def _union(
    reached: NDArray[np.uint64], neighbour: Ints, first: Ints, behind: Ints
) -> NDArray[np.uint64]:
    """OR the words of the neighbours of each switch in `behind`, a block of switches at a time."""
    words = reached.shape[1]
    union = np.zeros((len(behind), words), dtype=np.uint64)
    degree = np.diff(first)[behind]
    block = np.cumsum(degree * words * 8) // GATHERED_BYTES
    for one in np.split(np.arange(len(behind)), np.flatnonzero(np.diff(block)) + 1):
        part = one[degree[one] > 0]
        if not len(part):
            continue
        starts = np.cumsum(degree[part]) - degree[part]
        offset = np.arange(degree[part].sum()) - np.repeat(starts, degree[part])
        gathered = reached[neighbour[np.repeat(first[behind[part]], degree[part]) + offset]]
        union[part] = np.bitwise_or.reduceat(gathered, starts, axis=0)
    return union


def _words(bits: NDArray[np.bool_]) -> NDArray[np.uint64]:
    packed = np.packbits(bits, bitorder="little")
    padded = np.zeros(-(-len(packed) // 8) * 8, dtype=np.uint8)
    padded[: len(packed)] = packed
    return padded.view("<u8").astype(np.uint64)


def _bits(words: NDArray[np.uint64], count: int) -> NDArray[np.bool_]:
    as_bytes = words.astype("<u8").view(np.uint8)
    return np.unpackbits(as_bytes, axis=1, count=count, bitorder="little").view(bool)
