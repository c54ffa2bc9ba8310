"""Numbers made comparable by the examples that are trained on."""

from dataclasses import replace

import numpy as np

from coterie.core.arrays import Ints
from coterie.data.dataset import Dataset
from coterie.data.targets import CHUNK


def standardised(dataset: Dataset, train: Ints) -> Dataset:
    """Return a dataset whose numbers have mean 0 and standard deviation 1 in the training part.

    A feature that is 0 or 1 there, or the same everywhere, stays as it is.

    >>> x = np.array([[1.0, 0.0], [3.0, 1.0], [9.0, 1.0]], np.float32)
    >>> data = Dataset("d", x, np.zeros(3, int), 1)
    >>> standardised(data, np.array([0, 1])).x.tolist()
    [[-1.0, 0.0], [1.0, 1.0], [7.0, 1.0]]
    """
    seen = dataset.x[train].astype(np.float64)
    mean, sd = seen.mean(axis=0), seen.std(axis=0)
    stays = ((seen == 0) | (seen == 1)).all(axis=0) | (sd == 0)
    mean, sd = np.where(stays, 0.0, mean), np.where(stays, 1.0, sd)
    x = np.empty(dataset.x.shape, dtype=np.float32)
    for start in range(0, len(x), CHUNK):
        x[start : start + CHUNK] = (dataset.x[start : start + CHUNK] - mean) / sd
    return replace(dataset, x=x)
