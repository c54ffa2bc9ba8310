# mypy: ignore-errors
"""Apple's pfl: its simulated backend and FederatedAveraging on PyTorch.

As its guide for fast simulations asks: one process, users in memory as tensors that are built once
(a Dataset keeps its mini-batches), one model that all users share, no evaluation between rounds.
"""

import numpy as np
import torch
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
from torch import nn
from torch_work import Batch, mean_loss, network, nodes
from watch import Task, Watch, asked
from work import LEARNING_RATE

NEVER = 10**9


class Trained(nn.Module):
    """A network with the two methods that pfl calls."""

    def __init__(self, net: nn.Module) -> None:
        """Begin to count examples."""
        super().__init__()
        self.net = net
        self.seen = 0

    def loss(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """Return what a local step descends."""
        self.seen += len(y)
        return nn.functional.cross_entropy(self.net(x), y)

    @torch.no_grad()
    def metrics(self, x: torch.Tensor, y: torch.Tensor) -> dict[str, Weighted]:
        """Return what pfl evaluates; only the warm-up round does."""
        total = nn.functional.cross_entropy(self.net(x), y, reduction="sum")
        return {"loss": Weighted(total.item(), len(y))}


class Laps(TrainingProcessCallback):
    """Stop the watch after each round, and start it for the next."""

    def __init__(self, watch: Watch, trained: Trained, data: list[Batch]) -> None:
        """Keep what is needed after a round."""
        self._watch, self._trained, self._data = watch, trained, data

    def after_central_iteration(self, *args, **kwargs) -> tuple[bool, Metrics]:
        """Note the round."""
        self._watch.stop(self._trained.seen)
        self._watch.loss(mean_loss(self._trained.net, self._data))
        self._trained.seen = 0
        self._watch.start()
        return False, Metrics()


def train(task: Task, watch: Watch) -> None:
    """Run a warm-up round and the timed ones."""
    data = nodes(task.work)
    trained = Trained(network(task.work))
    users = [Dataset(node, user_id=str(i)) for i, node in enumerate(data)]
    sampler = get_user_sampler("minimize_reuse", range(len(users)))  # each once a round
    cohort = FederatedDataset(users.__getitem__, sampler)
    model = PyTorchModel(
        model=trained,
        local_optimizer_create=torch.optim.SGD,
        central_optimizer=torch.optim.SGD(trained.parameters(), lr=1.0),
    )
    backend = SimulatedBackend(cohort, cohort, postprocessors=[WeightByDatapoints()])
    params = NNAlgorithmParams(
        central_num_iterations=1 + task.rounds,
        evaluation_frequency=NEVER,  # but for the first round
        train_cohort_size=len(users),
        val_cohort_size=None,
    )
    local = NNTrainHyperParams(
        local_num_epochs=1, local_learning_rate=LEARNING_RATE, local_batch_size=task.work.batch
    )
    watch.loss(mean_loss(trained.net, data))
    watch.start()
    FederatedAveraging().run(
        params,
        backend,
        model,
        local,
        callbacks=[Laps(watch, trained, data)],
        send_metrics_to_platform=False,
    )


def main() -> None:
    """Run what was asked for."""
    task = asked(__doc__)
    torch.set_num_threads(1)
    np.random.seed(0)  # noqa: NPY002 - pfl draws its seeds from NumPy's global state
    watch = Watch()
    train(task, watch)
    watch.tell("pfl", task, ["pfl", "torch"])


if __name__ == "__main__":
    main()
