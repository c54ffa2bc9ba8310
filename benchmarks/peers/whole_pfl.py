# mypy: ignore-errors
"""A whole run by pfl: its simulated backend and FederatedAveraging, set up as in run_pfl.py.

pfl evaluates the cohort of the first round whatever its settings are. Scores on the test part are
taken by a callback after a round, as its own CentralEvaluationCallback does.
"""

import numpy as np
import torch
from case import Task, asked
from pfl.aggregate.simulate import SimulatedBackend
from pfl.aggregate.weighting import WeightByDatapoints
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam import NNTrainHyperParams
from pfl.metrics import Metrics
from pfl.model.pytorch import PyTorchModel
from run_pfl import NEVER, Trained
from torch_case import Batch, Nodes, make_net, score, test_part


class Rows(TrainingProcessCallback):
    """Score the model and write a row whenever one is due."""

    def __init__(self, task: Task, trained: Trained, part: Batch) -> None:
        """Write the row of the start."""
        self._task, self._trained, self._part = task, trained, part
        task.record(0, *score(trained.net, part), 0)

    def after_central_iteration(self, aggregate, model, *, central_iteration):
        """Count rounds from 0, as pfl does."""
        done = central_iteration + 1
        if self._task.due(done):
            scores = score(self._trained.net, self._part)
            self._task.record(done, *scores, self._trained.seen)
        return False, Metrics()


def main() -> None:
    """Run the case."""
    task = asked(__doc__)
    case = task.case
    torch.manual_seed(0)
    torch.set_num_threads(min(task.cores, case.threads))
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
        callbacks=[Rows(task, trained, test_part(task))],
        send_metrics_to_platform=False,
    )


if __name__ == "__main__":
    main()
