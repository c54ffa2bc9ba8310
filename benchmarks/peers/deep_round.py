# mypy: ignore-errors
"""Rounds of a deeper model by one contestant: a line of JSON with the CPU seconds of each.

Plain is a loop over nodes and batches in torch. pfl is its simulated backend and
FederatedAveraging, set up as in run_pfl.py. Coterie's engine finds its own way. All have the same
examples on the same nodes, and the same nodes in a round but for pfl, which draws its own where not
all take part. The first round is the warm-up. Peers are given floats, and take batches in the order
of the examples.

With a file of examples the model is scored every so many rounds on its test part, beside the clock.

Usage: python benchmarks/peers/deep_round.py --who plain --work lstm [--rounds 3]
[--arrays FILE.npz --every 10 --rows FILE.jsonl]
"""

import argparse
import copy
import json
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from deep_work import WORKS, DeepWork, read
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from coterie.models import make_model

SCORED = 100  # examples at the beginning, whose loss shows that all learn the same
CHUNK = 500  # test examples at once


@dataclass(eq=False)
class Course:
    """Rounds of a work: its examples, the seconds of each round, and scores on the way."""

    work: DeepWork
    rounds: int  # without the warm-up
    arrays: dict[str, np.ndarray]
    every: int = 0  # rounds between scores; 0: none
    rows: Path | None = None

    def __post_init__(self) -> None:
        """Begin without a round."""
        self.laps = []

    def tensors(self, part: str = "") -> tuple[Tensor, Tensor]:
        """Return all examples, or those of a part; pixels as floats."""
        x, y = (torch.from_numpy(self.arrays[part + name]) for name in ("x", "y"))
        return (x if self.work.text else x.float().div_(255)), y

    def done(self, seconds: float, net) -> None:
        """Note a round, and score what `net` returns where that is due."""
        self.laps.append(seconds)
        number = len(self.laps)
        if self.every and (number % self.every == 0 or number == 1 + self.rounds):
            accuracy, loss = self.score(net())
            spent = sum(self.laps)
            row = {"round": number, "cpu_s": spent, "accuracy": accuracy, "loss": loss}
            with self.rows.open("a") as file:
                file.write(json.dumps(row) + "\n")

    @torch.no_grad()
    def score(self, net: nn.Module) -> tuple[float, float]:
        """Accuracy and mean loss on the test part."""
        net = copy.deepcopy(net).eval()
        right = loss = 0.0
        x, y = self.tensors("test_")
        for part, told in zip(x.split(CHUNK), y.split(CHUNK), strict=True):
            logits = net(part)
            loss += float(cross_entropy(logits, told, reduction="sum"))
            right += int((logits.argmax(1) == told).sum())
        return right / len(y), loss / len(y)

    @torch.no_grad()
    def first_loss(self, net: nn.Module) -> float:
        """Mean loss of the first examples."""
        x, y = self.tensors()
        return float(loss_of(copy.deepcopy(net).eval(), x[:SCORED], y[:SCORED]))


def first_net(work: DeepWork) -> nn.Module:
    """Make the network with its first weights."""
    torch.manual_seed(0)
    return make_model(work.model, work.shape, work.classes, tokens=work.text)


def loss_of(net: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """Mean cross-entropy of examples, or of their characters."""
    return cross_entropy(net(x).flatten(0, -2), y.flatten())


def run_plain(course: Course) -> tuple[nn.Module, str]:
    """Train node after node by torch's own SGD, and average the parameters."""
    work, (x, y) = course.work, course.tensors()
    net = first_net(work)
    nodes = list(zip(x.split(work.examples), y.split(work.examples), strict=True))
    parameters = list(net.parameters())
    for number in range(1 + course.rounds):
        chosen = work.taking_part(number)
        begun = time.process_time()
        start = [w.detach().clone() for w in parameters]
        mean = [torch.zeros_like(w) for w in start]
        for node_x, node_y in (nodes[i] for i in chosen):
            with torch.no_grad():
                for w, w0 in zip(parameters, start, strict=True):
                    w.copy_(w0)
            sgd = torch.optim.SGD(parameters, lr=work.lr)
            batches = zip(node_x.split(work.batch), node_y.split(work.batch), strict=True)
            for batch_x, batch_y in batches:
                sgd.zero_grad()
                loss_of(net, batch_x, batch_y).backward()
                sgd.step()
            with torch.no_grad():
                for total, w in zip(mean, parameters, strict=True):
                    total.add_(w, alpha=1 / len(chosen))
        with torch.no_grad():
            for w, value in zip(parameters, mean, strict=True):
                w.copy_(value)
        course.done(time.process_time() - begun, lambda: net)
    return net, "nn.Module, torch.optim.SGD"


def run_coterie(course: Course) -> tuple[nn.Module, str]:
    """Train by the engine that a run has."""
    work, engine = course.work, engine_of(course)

    def net() -> nn.Module:
        exported = first_net(work)
        exported.load_state_dict(engine.export(state.w[0]))
        return exported

    state, z = engine.initial(), np.zeros(work.nodes, dtype=np.int64)
    for t in range(1 + course.rounds):
        chosen = None if work.cohort is None else work.taking_part(t)
        begun = time.process_time()
        state = engine.advance(state, t, t + 1, z, chosen)
        course.done(time.process_time() - begun, net)
    return net(), engine.choice()["kernel"]


def engine_of(course: Course):
    """Return the engine of a run in which nodes hold just their examples.

    A run keeps a part of all examples for validation. Here nothing is kept from the nodes: what is
    held out stands beside their examples, and is not looked at.
    """
    from coterie.config.factories import Divided, make_engine, make_rule, make_update
    from coterie.config.files import make_config
    from coterie.config.prepare import first_model, parts_of
    from coterie.data import Dataset, Split
    from coterie.partition import Partition
    from coterie.partition.measure import class_counts

    work, (x, y) = course.work, (course.arrays[name] for name in "xy")
    task = "next-token" if work.text else "classification"
    dataset = Dataset("as the peers", x, y, work.classes, task=task)
    places = np.arange(len(y))
    part = Partition(tuple(np.split(places, work.nodes)), np.zeros(work.nodes, dtype=np.int64))
    held = places[:8]
    counts = class_counts(part, dataset.by, dataset.n_strata)
    divided = Divided(dataset, Split(places, held, held), part, counts)
    config = make_config(
        {
            "partition": {"kind": "iid", "num_nodes": work.nodes, "num_edges": 1},
            "model": {"name": work.model},
            "algorithm": {"name": "fedavg", "tau2": 1},
            "train": {"lr": work.lr, "lr_decay": 1.0, "batch_size": work.batch, "steps": 1},
        }
    )
    parts = parts_of(config)
    rule = make_rule(config, make_update(config, parts.algorithm))
    return make_engine(config, first_model(config, dataset)[0], divided, parts.steps, rule)


def run_pfl(course: Course) -> tuple[nn.Module, str]:
    """Train by pfl."""
    from pfl.aggregate.simulate import SimulatedBackend
    from pfl.aggregate.weighting import WeightByDatapoints
    from pfl.algorithm.base import NNAlgorithmParams
    from pfl.algorithm.federated_averaging import FederatedAveraging
    from pfl.callback.base import TrainingProcessCallback
    from pfl.data.dataset import Dataset
    from pfl.data.federated_dataset import FederatedDataset
    from pfl.data.sampling import get_user_sampler
    from pfl.hyperparam import NNTrainHyperParams
    from pfl.metrics import Metrics, Weighted
    from pfl.model.pytorch import PyTorchModel

    class Trained(nn.Module):
        def __init__(self, net: nn.Module) -> None:
            super().__init__()
            self.net = net

        def loss(self, x: Tensor, y: Tensor) -> Tensor:
            return loss_of(self.net, x, y)

        @torch.no_grad()
        def metrics(self, x: Tensor, y: Tensor) -> dict[str, Weighted]:
            return {"loss": Weighted(loss_of(self.net, x, y).item() * len(y), len(y))}

    class Laps(TrainingProcessCallback):
        def after_central_iteration(self, *args, **kwargs):
            course.done(time.process_time() - begun[-1], lambda: trained.net)
            begun.append(time.process_time())
            return False, Metrics()

    np.random.seed(0)  # noqa: NPY002 - pfl draws its seeds from NumPy's global state
    work, (x, y) = course.work, course.tensors()
    trained = Trained(first_net(work))
    parts = zip(x.split(work.examples), y.split(work.examples), strict=True)
    users = [Dataset(part, user_id=str(i)) for i, part in enumerate(parts)]
    kind = "minimize_reuse" if work.cohort is None else "random"  # each once a round, or anew
    sampler = get_user_sampler(kind, range(len(users)))
    cohort = FederatedDataset(users.__getitem__, sampler)
    model = PyTorchModel(
        model=trained,
        local_optimizer_create=torch.optim.SGD,
        central_optimizer=torch.optim.SGD(trained.parameters(), lr=1.0),
    )
    params = NNAlgorithmParams(
        central_num_iterations=1 + course.rounds,
        evaluation_frequency=10**9,  # but for the first round
        train_cohort_size=work.cohort or len(users),
        val_cohort_size=None,
    )
    local = NNTrainHyperParams(
        local_num_epochs=1, local_learning_rate=work.lr, local_batch_size=work.batch
    )
    begun = [time.process_time()]
    FederatedAveraging().run(
        params,
        SimulatedBackend(cohort, cohort, postprocessors=[WeightByDatapoints()]),
        model,
        local,
        callbacks=[Laps()],
        send_metrics_to_platform=False,
    )
    return trained.net, "SimulatedBackend"


RUNS = {"plain": run_plain, "coterie": run_coterie, "pfl": run_pfl}


def main() -> None:
    """Run what was asked for."""
    ask = argparse.ArgumentParser(description=__doc__)
    ask.add_argument("--who", choices=RUNS, required=True)
    ask.add_argument("--work", choices=WORKS, required=True)
    ask.add_argument("--rounds", type=int, default=3)
    ask.add_argument("--arrays", type=Path, help="examples, in place of generated ones")
    ask.add_argument("--every", type=int, default=0, help="rounds between scores; needs --arrays")
    ask.add_argument("--rows", type=Path, help="file to write scores to")
    args = ask.parse_args()
    torch.set_num_threads(1)
    work = WORKS[args.work]
    arrays = read(args.arrays) if args.arrays else dict(zip("xy", work.arrays(), strict=True))
    course = Course(work, args.rounds, arrays, args.every, args.rows)
    net, how = RUNS[args.who](course)
    told = {"who": args.who, "work": args.work, "cpu_s": course.laps[1:], "how": how}
    sys.stdout.write(json.dumps(told | {"loss": course.first_loss(net)}) + "\n")


if __name__ == "__main__":
    main()
