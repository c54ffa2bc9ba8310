"""Rounds of deeper models, for Coterie and its peers: the arrays of nodes, and who takes part.

Arrays are made anew by a seed, or read from a file. Only NumPy is needed here, as each peer has an
environment of its own.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

LENGTH, VOCABULARY = 80, 65


@dataclass(frozen=True)
class DeepWork:
    """Nodes of one size, one epoch each, all of them in every round or some: plain FedAvg."""

    model: str  # a model of Coterie's
    nodes: int
    examples: int  # of a node
    batch: int
    lr: float
    cohort: int | None = None  # nodes in a round; None: all

    def taking_part(self, number: int) -> NDArray[np.int64]:
        """Draw who takes part in a round."""
        if self.cohort is None:
            return np.arange(self.nodes)
        rng = np.random.default_rng([7, number])
        return np.sort(rng.choice(self.nodes, self.cohort, replace=False))

    @property
    def text(self) -> bool:
        """Whether examples are windows of text, and not images of 32x32."""
        return self.model == "char-lstm"

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of an example."""
        return (LENGTH,) if self.text else (3, 32, 32)

    @property
    def classes(self) -> int:
        """Characters, or classes of images."""
        return VOCABULARY if self.text else 10

    def arrays(self) -> tuple[NDArray[np.int64] | NDArray[np.uint8], NDArray[np.int64]]:
        """Make x and y of all nodes, one after the other.

        In a text, the next character is told by the last, four times out of five. An image is that
        of its class, and noise.
        """
        rng, n = np.random.default_rng(0), self.nodes * self.examples
        if self.text:
            follows = rng.permutation(VOCABULARY)
            text = rng.integers(VOCABULARY, size=(n, LENGTH + 1))
            for place in range(LENGTH):
                told = rng.random(n) < 0.8
                text[told, place + 1] = follows[text[told, place]]
            return text[:, :-1].copy(), text[:, 1:].copy()
        y = rng.integers(10, size=n)
        pictures = rng.integers(128, size=(10, *self.shape), dtype=np.uint8)
        return pictures[y] + rng.integers(128, size=(n, *self.shape), dtype=np.uint8), y


def read(path: Path) -> dict[str, NDArray[np.uint8] | NDArray[np.int64]]:
    """Read x, y, test_x and test_y from a file of arrays."""
    with np.load(path) as kept:
        return {name: kept[name] for name in ("x", "y", "test_x", "test_y")}


WORKS = {
    "lstm": DeepWork("char-lstm", 20, 40, 10, 1.0),
    "lstm-4": DeepWork("char-lstm", 20, 20, 4, 1.0),
    "resnet18": DeepWork("resnet18", 4, 50, 10, 0.01),
    "cifar-cnn": DeepWork("cifar-cnn", 50, 50, 10, 0.1),
    "cifar10": DeepWork("cifar-cnn", 1000, 50, 10, 0.1, 50),
}
