"""What a whole run is asked for, and its arrays on disk: the same for Coterie and for every peer.

A case has a folder of arrays. `all/` has every example, for Coterie, which deals them out itself.
Beside it lie the examples of the nodes, one node after the other, as Coterie deals them, the test
part, and the weights that Coterie starts from. Only NumPy is needed here, as each peer has an
environment of its own.
"""

import argparse
import json
import os
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

# Test examples scored at once, by model: the quickest for PyTorch and for JAX of 100 to 1,000.
PIECES = {"sr": 500, "2nn": 500}
PIECE = 100  # of any other: networks with convolutions


@dataclass(frozen=True)
class Case:
    """Nodes of unequal size, a model, and how long it is trained: plain FedAvg."""

    name: str
    model: str  # a model of Coterie's, or a function of nets.py
    data: str  # which images: see cases.py
    nodes: int
    cohort: int  # nodes that take part in a round
    examples: int  # of a node, on average
    batch: int
    lr: float
    rounds: int
    eval_every: int  # rounds; accuracy and loss on the test part
    epochs: int = 1
    momentum: float = 0.0
    sd: float = 0.3  # of the logarithm of a node's size
    tested: int = 10_000  # examples of the test part
    threads: int = 1  # of torch in a peer that has one process and two cores
    processes: int = 1  # of pfl on two cores, each with one thread; 1: one, with so many threads

    def shorter(self, rounds: int) -> "Case":
        """Return the same with fewer rounds."""
        return replace(self, rounds=rounds)

    def smaller(self, fraction: float) -> "Case":
        """Keep a part of the nodes, and of those that take part."""
        nodes, cohort = (max(1, round(n * fraction)) for n in (self.nodes, self.cohort))
        return replace(self, nodes=nodes, cohort=cohort)


@dataclass(frozen=True)
class Task:
    """A case to run, where its arrays are, where to write rows, and on how many cores."""

    case: Case
    folder: Path
    rows: Path
    cores: int

    @property
    def model(self) -> str:
        """The model's name, as torch_work and run_fedjax ask for it."""
        return self.case.model

    @property
    def batch(self) -> int:
        """Examples of a mini-batch."""
        return self.case.batch

    @property
    def piece(self) -> int:
        """Test examples that a peer scores at once."""
        return PIECES.get(self.model, PIECE)

    def array(self, name: str) -> NDArray[Any]:
        """Open an array; bytes are read when they are used."""
        found: NDArray[Any] = np.load(self.folder / f"{name}.npy", mmap_mode="r")
        return found

    def sizes(self) -> NDArray[np.int64]:
        """Examples of each node: [nodes]."""
        return np.asarray(self.array("sizes"))

    def weights(self) -> list[NDArray[np.float32]]:
        """Return the first weights, as PyTorch lays them out."""
        with np.load(self.folder / "weights.npz") as kept:
            return [kept[f"w{i}"] for i in range(len(kept.files))]

    def classes(self) -> int:
        """Count the classes: the length of the last bias."""
        return len(self.weights()[-1])

    def due(self, done: int) -> bool:
        """Whether the model is scored after so many rounds: every so often, and at the end."""
        return done % self.case.eval_every == 0 or done == self.case.rounds

    def cohort(self, number: int) -> NDArray[np.int64]:
        """Draw who takes part in a round."""
        n, k = self.case.nodes, self.case.cohort
        if k == n:
            return np.arange(n)
        return np.sort(np.random.default_rng([7, number]).choice(n, k, replace=False))

    def record(self, done: int, accuracy: float, loss: float, seen: int) -> None:
        """Write a row: rounds done, scores, and examples trained on so far."""
        row = {"round": done, "accuracy": accuracy, "loss": loss, "seen": seen, "at": time.time()}
        with self.rows.open("a") as file:
            file.write(json.dumps(row) + "\n")


def asked(description: str | None) -> Task:
    """Read the command line of a peer."""
    ask = argparse.ArgumentParser(description=description)
    ask.add_argument("--case", required=True, help="as JSON")
    ask.add_argument("--folder", type=Path, required=True, help="of its arrays")
    ask.add_argument("--rows", type=Path, required=True, help="file to write rows to")
    args = ask.parse_args()
    return read_task(args.case, args.folder, args.rows)


def read_task(case: str, folder: Path, rows: Path) -> Task:
    """Read a case, to be run on the cores that we may use."""
    return Task(Case(**json.loads(case)), folder, rows, len(os.sched_getaffinity(0)))


def write_case(case: Case) -> str:
    """Write what `read_task` reads."""
    return json.dumps(asdict(case))
