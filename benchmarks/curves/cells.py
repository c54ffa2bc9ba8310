"""Problems that the rule for a target accuracy is made on, and others that are held out from it.

A held-out problem has other data, another skew and other networks than all that the rule was made
on. This list is older than the rule: nothing in HELD_OUT is looked at before the rule is fixed.
`arrays` is an .npz of 600 CIFAR-10 images of every class, in grey and in 16 x 16 pixels, in an
order by chance; `femnist` is LEAF's JSON. Both are given by their paths (see record.py); the rest
is as `coterie data` has it.
"""

from dataclasses import dataclass, field
from typing import Any

from coterie.config.files import make_config
from coterie.config.settings import Config

Json = dict[str, Any]
GRID = [
    *((1, tau1, 1) for tau1 in (1, 2, 5)),
    *((K, *taus) for K in (5, 10) for taus in ((1, 2), (1, 5), (1, 10), (2, 5), (5, 2), (5, 5))),
]
FEDAVG = (1, 5, 1)
SKETCH = {"name": "fedavg-ic", "evidence": "sketch"}
OPEN = {**SKETCH, "num_groups": "auto", "tau1": "auto", "tau2": "auto"}
TREE = (
    {"link_mbytes_per_s": 10.0, "combine": "all"},
    {"link_mbytes_per_s": 100.0, "combine": "all"},
)
JELLYFISH = ({"topology": "jellyfish", "link_mbytes_per_s": 30.0},)
TWO = (*JELLYFISH, {"topology": "jellyfish", "link_mbytes_per_s": 3.0})  # trained once
CELLS = ({"topology": "edge-cloud", "link_mbytes_per_s": 20.0, "access_mbytes_per_s": 2.0},)


@dataclass(frozen=True)
class Cell:
    """One problem: who trains what on what, and the networks that it is timed on."""

    data: str
    skew: Json
    model: str
    networks: tuple[Json, ...]
    lr: float = 0.1
    sample: float = 0.1
    steps: int = 150
    seed: int = 0
    paths: dict[str, str] = field(default_factory=dict, compare=False)

    @property
    def name(self) -> str:
        """A name for a file."""
        skew = "-".join(str(value) for value in self.skew.values())
        return f"{self.data}-{skew}-{self.model}-seed{self.seed}"

    def config(self, algorithm: Json, network: Json) -> Config:
        """Return the config of one run."""
        train: Json = {"steps": self.steps, "lr": self.lr}
        nodes = 100
        if self.model != "sr":
            train["batch_size"], nodes = 16, 50
        dealt = self.skew if self.skew["kind"] == "natural" else {**self.skew, "num_nodes": nodes}
        data: Json = {"name": self.data, "sample": self.sample, "split": "pooled"}
        if self.data in self.paths:
            data["path"] = self.paths[self.data]
        return make_config(
            {
                "seed": self.seed,
                "data": data,
                "partition": dealt,
                "model": {"name": self.model},
                "network": network,
                "train": train,
                "algorithm": algorithm,
            }
        )


def algorithm_of(K: int, tau1: int, tau2: int) -> Json:
    """Return the settings of a schedule; one group is FedAvg."""
    if K == 1:
        return {"name": "fedavg", "tau1": tau1, "tau2": 1}
    return {**SKETCH, "num_groups": K, "tau1": tau1, "tau2": tau2}


PAPERS = [{"kind": kind} for kind in ("Dtt", "Dtq", "Dth")]
DIRICHLET = {"kind": "dirichlet", "alpha": 0.3}
PATHOLOGICAL = {"kind": "pathological", "classes_per_node": 2}

MADE_ON = [
    *(Cell(data, skew, "sr", TREE) for data in ("mnist-o", "mnist-f") for skew in PAPERS),
    *(
        Cell(data, PAPERS[0], "2nn", TREE, sample=0.05, steps=120)
        for data in ("mnist-o", "mnist-f")
    ),
    Cell("mnist-f", PAPERS[2], "2nn", TREE, sample=0.05, steps=120),
]
HELD_OUT = [
    Cell("femnist", {**PATHOLOGICAL, "classes_per_node": 5}, "sr", JELLYFISH + CELLS, 0.05, 0.4),
    Cell("femnist", {"kind": "natural"}, "sr", JELLYFISH + CELLS, 0.05, 0.4),
    Cell("arrays", DIRICHLET, "sr", TWO, 0.1, 1.0),
    Cell("arrays", PATHOLOGICAL, "sr", TWO, 0.1, 1.0),
    Cell("femnist", DIRICHLET, "2nn", TWO, 0.05, 0.2, 120),
    Cell("arrays", PATHOLOGICAL, "2nn", TWO, 0.05, 0.5, 120),
]
