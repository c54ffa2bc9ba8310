# mypy: ignore-errors
"""Rounds of a deeper model by one contestant: a line of JSON with the CPU seconds of each.

Plain is a loop over nodes and batches in torch. pfl is its simulated backend and
FederatedAveraging, set up as in run_pfl.py. Coterie's engine finds its own way. The first round is
the warm-up. Peers are given floats, and take batches in the order of the examples.

Usage: python benchmarks/peers/deep_round.py --who plain --work lstm [--rounds 3]
"""

import argparse
import copy
import json
import sys
import time

import numpy as np
import torch
from deep_work import WORKS, DeepWork
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from coterie.models import make_model

SCORED = 100  # examples at the beginning, whose loss shows that all learn the same


def first_net(work: DeepWork) -> nn.Module:
    """Make the network with its first weights."""
    torch.manual_seed(0)
    return make_model(work.model, work.shape, work.classes, tokens=work.text)


def loss_of(net: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """Mean cross-entropy of examples, or of their characters."""
    return cross_entropy(net(x).flatten(0, -2), y.flatten())


def tensors(work: DeepWork) -> tuple[Tensor, Tensor]:
    """Return all examples; pixels as floats."""
    x, y = map(torch.from_numpy, work.arrays())
    return (x if work.text else x.float().div_(255)), y


@torch.no_grad()
def scored(work: DeepWork, net: nn.Module) -> float:
    """Mean loss of the first examples."""
    x, y = tensors(work)
    return float(loss_of(copy.deepcopy(net).eval(), x[:SCORED], y[:SCORED]))


def run_plain(work: DeepWork, rounds: int) -> tuple[list[float], float, str]:
    """Train node after node by torch's own SGD, and average the parameters."""
    net, (x, y) = first_net(work), tensors(work)
    nodes = list(zip(x.split(work.examples), y.split(work.examples), strict=True))
    parameters, laps = list(net.parameters()), []
    for _ in range(1 + rounds):
        begun = time.process_time()
        start = [w.detach().clone() for w in parameters]
        mean = [torch.zeros_like(w) for w in start]
        for node_x, node_y in nodes:
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
                    total.add_(w, alpha=1 / len(nodes))
        with torch.no_grad():
            for w, value in zip(parameters, mean, strict=True):
                w.copy_(value)
        laps.append(time.process_time() - begun)
    return laps[1:], scored(work, net), "nn.Module, torch.optim.SGD"


def run_coterie(work: DeepWork, rounds: int) -> tuple[list[float], float, str]:
    """Train by the engine that a run has."""
    from coterie.config.files import make_config
    from coterie.config.prepare import prepare
    from coterie.data import Dataset

    x, y = work.arrays()
    n = work.nodes * work.examples
    held = slice(0, 8)  # a validation and a test part there must be; they are not looked at
    test = np.arange(n + 8) >= n
    task = "next-token" if work.text else "classification"
    dataset = Dataset(
        "generated",
        np.concatenate([x, x[held]]),
        np.concatenate([y, y[held]]),
        work.classes,
        users=np.append(np.repeat(np.arange(work.nodes), work.examples), np.zeros(8, np.int64)),
        user_names=tuple(map(str, range(work.nodes))),
        test=test,
        task=task,
    )
    config = make_config(
        {
            "data": {"split": "official"},
            "partition": {"kind": "natural", "num_edges": 1},
            "model": {"name": work.model},
            "algorithm": {"name": "fedavg", "tau2": 1},
            "train": {"lr": work.lr, "lr_decay": 1.0, "batch_size": work.batch, "steps": 1},
        }
    )
    engine = prepare(config, dataset).problem.engine
    state, laps = engine.initial(), []
    z = np.zeros(work.nodes, dtype=np.int64)
    for t in range(1 + rounds):
        begun = time.process_time()
        state = engine.advance(state, t, t + 1, z)
        laps.append(time.process_time() - begun)
    net = first_net(work)
    net.load_state_dict(engine.export(state.w[0]))
    return laps[1:], scored(work, net), engine.choice()["kernel"]


def run_pfl(work: DeepWork, rounds: int) -> tuple[list[float], float, str]:
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
            laps.append(time.process_time() - begun[-1])
            begun.append(time.process_time())
            return False, Metrics()

    np.random.seed(0)  # noqa: NPY002 - pfl draws its seeds from NumPy's global state
    trained, (x, y), laps = Trained(first_net(work)), tensors(work), []
    parts = zip(x.split(work.examples), y.split(work.examples), strict=True)
    users = [Dataset(part, user_id=str(i)) for i, part in enumerate(parts)]
    sampler = get_user_sampler("minimize_reuse", range(len(users)))  # each once a round
    cohort = FederatedDataset(users.__getitem__, sampler)
    model = PyTorchModel(
        model=trained,
        local_optimizer_create=torch.optim.SGD,
        central_optimizer=torch.optim.SGD(trained.parameters(), lr=1.0),
    )
    params = NNAlgorithmParams(
        central_num_iterations=1 + rounds,
        evaluation_frequency=10**9,  # but for the first round
        train_cohort_size=len(users),
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
    return laps[1:], scored(work, trained.net), "SimulatedBackend"


RUNS = {"plain": run_plain, "coterie": run_coterie, "pfl": run_pfl}


def main() -> None:
    """Run what was asked for."""
    ask = argparse.ArgumentParser(description=__doc__)
    ask.add_argument("--who", choices=RUNS, required=True)
    ask.add_argument("--work", choices=WORKS, required=True)
    ask.add_argument("--rounds", type=int, default=3)
    args = ask.parse_args()
    torch.set_num_threads(1)
    laps, loss, how = RUNS[args.who](WORKS[args.work], args.rounds)
    line = {"who": args.who, "work": args.work, "cpu_s": laps, "loss": loss, "how": how}
    sys.stdout.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    main()
