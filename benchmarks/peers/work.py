"""What every engine is asked to do: the nodes, their examples, and the weights they start from.

A round is one local epoch of plain SGD on every node (mini-batches in the order of the examples,
the last one short), then the mean of the models weighted by examples. Only NumPy is needed here, so
that every peer can read it in its own environment and all of them train on the same arrays.
"""

from dataclasses import dataclass, replace
from math import prod

import numpy as np
from numpy.typing import NDArray

LEARNING_RATE = 0.05
SIGMA = 0.3  # of the logarithm of a node's size
LEAST = 2  # examples of a node
IMAGE, CLASSES = (1, 28, 28), 10

_DENSE = [(200, 784), (200,), (200, 200), (200,), (10, 200), (10,)]
_CONV = [(64, 1, 5, 5), (64,), (64, 64, 5, 5), (64,), (256, 1024), (256,), (10, 256), (10,)]
SHAPES: dict[str, list[tuple[int, ...]]] = {
    "sr": [(10, 784), (10,)],
    "2nn": _DENSE,
    "cnn": _CONV,
    "cnn-nolrn": _CONV,
}


@dataclass(frozen=True)
class Work:
    """A model, and nodes of unequal size that train it."""

    name: str
    model: str  # a key of SHAPES; cnn-nolrn is the CNN without local response normalisation
    nodes: int
    mean_examples: int
    batch: int

    def sizes(self, seed: int = 0) -> NDArray[np.int64]:
        """Draw the examples of each node, log-normal around the mean: [nodes].

        >>> WORKS["2nn-100"].sizes()[:3]
        array([427, 395, 498])
        """
        rng = np.random.default_rng([seed, 0])
        factor = rng.lognormal(-(SIGMA**2) / 2, SIGMA, self.nodes)  # of mean 1
        return np.maximum(LEAST, np.rint(self.mean_examples * factor)).astype(np.int64)

    def data(self, seed: int = 0) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        """Draw images [N, 1, 28, 28] and labels [N], node after node.

        An image is half noise and half the picture of its class, so that a loss can go down.
        """
        total = int(self.sizes(seed).sum())
        classes = np.random.default_rng([seed, 1]).integers(256, size=(CLASSES, *IMAGE))
        labels = np.random.default_rng([seed, 2]).integers(CLASSES, size=total)
        noise = np.random.default_rng([seed, 3]).integers(256, size=(total, *IMAGE), dtype=np.uint8)
        return (classes // 2).astype(np.uint8)[labels] + noise // 2, labels

    def weights(self, seed: int = 0) -> list[NDArray[np.float32]]:
        """Draw the first weights, as PyTorch lays them out: uniform, within 1/sqrt(fan-in)."""
        rng = np.random.default_rng([seed, 4])
        drawn, bound = [], 0.0
        for shape in SHAPES[self.model]:
            if len(shape) > 1:  # a bias has the bound of the weight before it
                bound = 1 / np.sqrt(prod(shape[1:]))
            drawn.append(rng.uniform(-bound, bound, shape).astype(np.float32))
        return drawn

    def part(self, fraction: float) -> "Work":
        """Keep the first nodes only.

        >>> WORKS["cnn-100"].part(0.1).nodes
        10
        """
        if not 0 < fraction <= 1:
            raise ValueError(f"fraction must be in (0, 1], got {fraction:g}; 1 is all nodes")
        return replace(self, nodes=max(1, round(self.nodes * fraction)))


WORKS = {
    work.name: work
    for work in (
        Work("2nn-100", "2nn", nodes=100, mean_examples=430, batch=128),
        Work("2nn-1000", "2nn", nodes=1000, mean_examples=60, batch=10),
        Work("sr-1000", "sr", nodes=1000, mean_examples=60, batch=10),
        Work("cnn-100", "cnn", nodes=100, mean_examples=430, batch=128),
        Work("cnn-100-nolrn", "cnn-nolrn", nodes=100, mean_examples=430, batch=128),
    )
}
