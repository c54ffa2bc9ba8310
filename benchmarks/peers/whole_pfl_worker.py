# mypy: ignore-errors
"""A worker of a whole run by pfl: imported once it is known how many there are (see whole_pfl)."""

import numpy as np
import torch
from case import Task
from pfl.aggregate.simulate import SimulatedBackend
from pfl.aggregate.weighting import WeightByDatapoints
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam import NNTrainHyperParams
from pfl.internal.ops import get_ops
from pfl.metrics import Metrics
from pfl.model.pytorch import PyTorchModel
from run_pfl import NEVER, Trained
from torch_case import Nodes, make_net, test_part, totals


class Rows(TrainingProcessCallback):
    """Score the model and write a row whenever one is due."""

    def __init__(self, task: Task, trained: Trained) -> None:
        """Write the row of the start."""
        self._task, self._trained = task, trained
        self._workers, part = get_ops().distributed, test_part(task)
        self._part = [part[i] for i in self._workers.distribute_range(len(part))]
        self._row(0)

    def after_central_iteration(self, aggregate, model, *, central_iteration):
        """Count rounds from 0, as pfl does."""
        if self._task.due(central_iteration + 1):
            self._row(central_iteration + 1)
        return False, Metrics()

    def _row(self, done: int) -> None:
        """Add up what the workers found on their parts; the first of them writes."""
        sums = torch.tensor(
            [*totals(self._trained.net, self._part), self._trained.seen], dtype=torch.float64
        )
        if self._workers.world_size > 1:
            torch.distributed.all_reduce(sums)
        if self._workers.global_rank == 0:
            right, loss, seen = sums.tolist()
            n = self._task.case.tested
            self._task.record(done, right / n, loss / n, round(seen))


def work(task: Task, threads: int) -> None:
    """Do this worker's part of the case."""
    case, workers = task.case, get_ops().distributed
    torch.set_num_threads(threads)
    torch.manual_seed(workers.global_rank)
    np.random.seed(0)  # noqa: NPY002 - pfl draws its seeds from NumPy's global state
    nodes, trained = Nodes(task), Trained(make_net(task))
    users: dict[int, Dataset] = {}

    def user(i: int) -> Dataset:
        if i not in users:
            users[i] = Dataset(nodes.node(i), user_id=str(i))
        return users[i]

    everybody = case.cohort == case.nodes
    kind = "minimize_reuse" if everybody else "random"  # each once a round, or drawn anew
    cohort = FederatedDataset(user, get_user_sampler(kind, range(case.nodes)))
    model = PyTorchModel(
        model=trained,
        local_optimizer_create=lambda *args, **rest: torch.optim.SGD(
            *args, momentum=case.momentum, **rest
        ),
        central_optimizer=torch.optim.SGD(trained.parameters(), lr=1.0),
    )
    FederatedAveraging().run(
        NNAlgorithmParams(
            central_num_iterations=case.rounds,
            evaluation_frequency=NEVER,
            train_cohort_size=case.cohort,
            val_cohort_size=None,
        ),
        SimulatedBackend(cohort, cohort, postprocessors=[WeightByDatapoints()]),
        model,
        NNTrainHyperParams(
            local_num_epochs=case.epochs, local_learning_rate=case.lr, local_batch_size=case.batch
        ),
        callbacks=[Rows(task, trained)],
        send_metrics_to_platform=False,
    )
