"""How far a part of the data is from the whole."""

import numpy as np

from coterie.core.arrays import Floats, Ints
from coterie.partition.values import Partition


def class_counts(partition: Partition, y: Ints, n_classes: int) -> Ints:
    """Count the examples of each class on each node [n, C]."""
    node_of = np.repeat(np.arange(len(partition.indices)), partition.sizes)
    pairs = node_of * n_classes + y[np.concatenate(partition.indices)]
    flat = np.bincount(pairs, minlength=len(partition.indices) * n_classes)
    return flat.reshape(-1, n_classes)


def pooled(counts: Ints, part_of: Ints) -> Ints:
    """Add up the counts of nodes [n, C] that are in the same edge or group [n] -> [K, C].

    >>> pooled(np.array([[1, 0], [0, 2], [3, 0]]), np.array([0, 1, 0])).tolist()
    [[4, 0], [0, 2]]
    """
    sums = np.zeros((int(part_of.max()) + 1, counts.shape[1]), dtype=np.int64)
    np.add.at(sums, part_of, counts)
    return sums


def relative_shares(counts: Ints) -> Floats:
    """Each class's share in a part over its share in the whole [K, C]; 0 of a class nobody has.

    >>> relative_shares(np.array([[2, 0, 0], [0, 2, 0]])).tolist()
    [[2.0, 0.0, 0.0], [0.0, 2.0, 0.0]]
    """
    share = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    whole = counts.sum(axis=0) / counts.sum()
    ratio: Floats = np.divide(share, whole, out=np.zeros_like(share), where=whole > 0)
    return ratio


def emd(counts: Ints) -> Floats:
    """Distance of every part's class shares [K, C] from the whole's: sum over c of |p_kc - p_c|.

    That is the earth mover's distance of Zhao et al. (2018), 0 for a miniature of the whole and
    at most 2; one class of ten equal ones has 1.8.

    >>> emd(np.eye(10, dtype=int)).round(2).tolist()[:2]
    [1.8, 1.8]
    """
    shares = counts / counts.sum(axis=1, keepdims=True)
    whole = counts.sum(axis=0) / counts.sum()
    distance: Floats = np.abs(shares - whole).sum(axis=1)
    return distance
