# mypy: ignore-errors
"""A whole run by FedJAX: federated averaging, set up as in run_fedjax.py.

Compiling is part of the run, so the last short batch of a node is padded to one of few lengths, as
FedJAX's guide has it, and a mask keeps the padding out of the loss. Tried were all lengths as they
are, and one, two, three and four: two are quickest for batches of 128, one for batches of 10.

On several cores the CNN has the pmap backend, with a device a core: on two, wall seconds were a
tenth less than with the jit backend and XLA's threads (least of six turns each, on a busy machine).
All else has the jit backend: pmap took a tenth to a fifth longer there. Pmap needs one length of
batches, and jax_pmap_no_rank_reduction off, else FedJAX 0.0.17 gets weights with an axis too many.

The CNN has no local response normalisation here.
"""

from functools import partial

import fedjax
import haiku as hk
import jax
import numpy as np
from case import Task, asked
from fedjax.algorithms import fed_avg
from run_fedjax import Cut, cross_entropy, first_weights, forward

LARGE = 64  # examples of a batch


def floats(images: np.ndarray) -> np.ndarray:
    """Turn bytes into floats in [0, 1], channels last."""
    return (images.transpose(0, 2, 3, 1) / np.float32(255)).astype(np.float32)


def clients_of(task: Task, backend: str):
    """Return a function that makes a client when it is first asked for, and keeps it."""
    x, y = task.array("train_x"), task.array("train_y")
    starts = np.concatenate([[0], np.cumsum(task.sizes())])
    keys = jax.random.split(jax.random.PRNGKey(0), task.case.nodes)
    buckets = 2 if backend == "jit" and task.batch >= LARGE else 1
    kept = {}

    def client(i: int):
        if i not in kept:
            at = slice(int(starts[i]), int(starts[i + 1]))
            node = Cut(floats(x[at]), y[at].astype(np.int32), task.batch, buckets)
            kept[i] = (i, node, keys[i])
        return kept[i]

    return client, kept


def run(task: Task, backend: str) -> None:
    """Run the case."""
    case, client, kept = task.case, *clients_of(task, backend)
    x, y = floats(task.array("test_x")), task.array("test_y").astype(np.int32)
    model = fedjax.create_model_from_haiku(
        hk.transform(partial(forward, task.model)), {"x": x[:1], "y": y[:1]}, cross_entropy
    )
    algorithm = fed_avg.federated_averaging(
        fedjax.model_grad(model),
        client_optimizer=fedjax.optimizers.sgd(case.lr, momentum=case.momentum or None),
        server_optimizer=fedjax.optimizers.sgd(1.0),
        client_batch_hparams=fedjax.ShuffleRepeatBatchHParams(case.batch),
    )
    pieces = [
        jax.device_put({"x": x[i : i + task.piece], "y": y[i : i + task.piece]})
        for i in range(0, len(y), task.piece)
    ]

    @jax.jit
    def tally(params, piece):
        logits = model.apply_for_eval(params, piece)
        return (logits.argmax(1) == piece["y"]).sum(), cross_entropy(piece, logits).sum()

    def score(params) -> tuple[float, float]:
        right, loss = np.sum([jax.device_get(tally(params, piece)) for piece in pieces], axis=0)
        return float(right) / len(y), float(loss) / len(y)

    state = algorithm.init(first_weights(task))
    task.record(0, *score(state.params), 0)
    for done in range(1, case.rounds + 1):
        state, _ = algorithm.apply(state, [client(int(i)) for i in task.cohort(done)])
        if task.due(done):
            seen = sum(node.seen for _, node, _ in kept.values())
            task.record(done, *score(state.params), seen)


def main() -> None:
    """Run what was asked for."""
    task = asked(__doc__)
    backend = "pmap" if task.cores > 1 and task.model.startswith("cnn") else "jit"
    if backend == "pmap":
        jax.config.update("jax_num_cpu_devices", task.cores)
        jax.config.update("jax_pmap_no_rank_reduction", False)
    with fedjax.for_each_client_backend(backend):
        run(task, backend)


if __name__ == "__main__":
    main()
