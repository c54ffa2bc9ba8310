# mypy: ignore-errors
"""A whole run by BlazeFL: its FedAvg, by a pool of processes that share memory.

BlazeFL's fastest mode has threads of a Python without a global lock (3.13t, 3.14t). Where Python
has the lock, processes are its way to several cores, and its plain trainer the way to one.
Mini-batches are cut beforehand, in memory that forked processes share.
"""

import tempfile
from pathlib import Path

import torch
from blazefl.contrib import (
    FedAvgBaseClientTrainer,
    FedAvgBaseServerHandler,
    FedAvgProcessPoolClientTrainer,
)
from blazefl.core import IPCMode
from case import Task, asked
from torch.utils.data import DataLoader
from torch_case import Nodes, make_net, score, test_part

SEED = 0
kept: dict[str, object] = {}  # of this process, and of those forked from it


class Partitioned:
    """The nodes' mini-batches, which are there already."""

    def get_dataloader(self, type_, cid, batch_size=None, generator=None) -> DataLoader:
        """Give a node's batches in order."""
        return DataLoader(kept["nodes"].batches(cid), batch_size=None)

    def set_dataset(self, type_, cid, dataset) -> None:
        """Keep nothing: the data of a node do not change."""


class Selector:
    """The case's network."""

    def select_model(self, model_name: str) -> torch.nn.Module:
        """Build it anew, with the first weights."""
        return make_net(kept["task"])


def make_trainer(task: Task, folder: Path):
    """Return the trainer for as many cores as there are."""
    case = task.case
    both = {
        "model_selector": Selector(),
        "model_name": case.model,
        "dataset": Partitioned(),
        "device": "cpu",
        "num_clients": case.nodes,
        "epochs": case.epochs,
        "batch_size": case.batch,
        "lr": case.lr,
        "seed": SEED,
    }
    if task.cores == 1:
        return FedAvgBaseClientTrainer(**both)
    return FedAvgProcessPoolClientTrainer(
        **both,
        share_dir=folder / "share",
        state_dir=folder / "state",
        num_parallels=task.cores,
        ipc_mode=IPCMode.SHARED_MEMORY,
    )


def main() -> None:
    """Run the case."""
    task = asked(__doc__)
    case, nodes, part = task.case, Nodes(task), test_part(task)
    torch.set_num_threads(1)
    kept.update(task=task, nodes=nodes)
    for i in range(case.nodes):
        nodes.batches(i)
    handler = FedAvgBaseServerHandler(
        model_selector=Selector(),
        model_name=case.model,
        dataset=Partitioned(),
        global_round=case.rounds,
        num_clients=case.nodes,
        sample_ratio=case.cohort / case.nodes,
        device="cpu",
        batch_size=case.batch,
        seed=SEED,
    )
    seen = 0
    task.record(0, *score(handler.model, part), seen)
    with tempfile.TemporaryDirectory() as made:
        trainer = make_trainer(task, Path(made))
        while not handler.if_stop():
            chosen = handler.sample_clients()
            trainer.local_process(handler.downlink_package(), chosen)
            for package in trainer.uplink_package():
                seen += package.data_size
                handler.load(package)
            if task.due(handler.round):
                task.record(handler.round, *score(handler.model, part), seen)


if __name__ == "__main__":
    main()
