# mypy: ignore-errors
"""A whole run by FedJAX: federated averaging with the jit backend, set up as in run_fedjax.py.

Compiling is part of the run, so the last short batch of a node is padded to one of few lengths, as
FedJAX's guide has it, and a mask keeps the padding out of the loss. Tried were all lengths as they
are, and one, two, three and four: two are quickest for batches of 128, one for batches of 10.

On two cores it is the jit backend too, with XLA's threads. The pmap backend was tried with a device
a core (it needs one length of batches, and jax_pmap_no_rank_reduction off, else FedJAX 0.0.17 gets
weights with an axis too many): it took 1.4 to 1.6 times as long on 2nn-100, a tenth longer on
sr-1000, 2nn-1000 and lr-mnist.

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


def clients_of(task: Task):
    """Return a function that makes a client when it is first asked for, and keeps it."""
    x, y = task.array("train_x"), task.array("train_y")
    starts = np.concatenate([[0], np.cumsum(task.sizes())])
    keys = jax.random.split(jax.random.PRNGKey(0), task.case.nodes)
    buckets = 2 if task.batch >= LARGE else 1
    kept = {}

    def client(i: int):
        if i not in kept:
            at = slice(int(starts[i]), int(starts[i + 1]))
            node = Cut(floats(x[at]), y[at].astype(np.int32), task.batch, buckets)
            kept[i] = (i, node, keys[i])
        return kept[i]

    return client, kept


def run(task: Task) -> None:
    """Run the case."""
    case, client, kept = task.case, *clients_of(task)
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
    with fedjax.for_each_client_backend("jit"):
        run(asked(__doc__))


if __name__ == "__main__":
    main()
