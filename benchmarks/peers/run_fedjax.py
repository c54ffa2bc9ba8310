# mypy: ignore-errors
"""Google's FedJAX: its federated averaging with for_each_client's jit backend.

The jit backend is FedJAX's choice for one device (pmap is for several). FedJAX's own batches fill
up a last short one with repeated examples; to give it no more work than the others it gets batches
that are cut beforehand and lie on the device. A last short one is left as it is, or padded as
FedJAX's padded_batch does, with a mask that keeps the padding out of the loss, where that is
quicker. Every length is compiled in the warm-up round. The CNN has no local response normalisation
here.
"""

from functools import partial

import fedjax
import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
from fedjax.algorithms import fed_avg
from watch import Task, Watch, asked
from work import LEARNING_RATE, Work

LOSS_EXAMPLES = 2000
BUCKETS_OF_ROUNDS = {"2nn": 1}  # lengths of batches, when compiling does not count; others: all


class Cut(fedjax.ClientDataset):
    """A node whose mini-batches are there already, and which counts what is taken."""

    def __init__(self, x: np.ndarray, y: np.ndarray, batch: int, buckets: int) -> None:
        """Cut the node and put its batches on the device: padded to so many lengths; 0: not."""
        super().__init__({"x": x, "y": y})
        cut = (
            self.padded_batch(batch_size=batch, num_batch_size_buckets=buckets)
            if buckets
            else self.batch(batch_size=batch)
        )
        self._batches = [jax.device_put(piece) for piece in cut]
        self._batch = batch
        self.seen = 0

    def shuffle_repeat_batch(self, hparams=None, **kwargs):
        """Give the batches in order, once."""
        for i, batch in enumerate(self._batches):
            self.seen += min(self._batch, len(self) - i * self._batch)
            yield batch


def forward(model: str, batch: dict) -> jax.Array:
    """Return the logits of a batch: [B, 10]."""
    x, hidden = batch["x"], {"sr": (), "2nn": (200, 200)}.get(model, (256,))
    if model.startswith("cnn"):  # [B, 28, 28, 1]
        for _ in range(2):
            x = jax.nn.relu(hk.Conv2D(64, 5, padding="VALID")(x))
            x = hk.max_pool(x, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
    x = hk.Flatten()(x)
    for width in hidden:
        x = jax.nn.relu(hk.Linear(width)(x))
    return hk.Linear(10)(x)


def first_weights(work: Work) -> dict:
    """Lay out the work's first weights as Haiku does: [in, out], images with channels last."""
    drawn = work.weights()
    layers: dict[str, dict[str, jax.Array]] = {}
    for w, b in zip(drawn[::2], drawn[1::2], strict=True):
        kind = "conv2_d" if w.ndim == 4 else "linear"
        before = sum(name.startswith(kind) for name in layers)
        if w.ndim == 4:
            w = w.transpose(2, 3, 1, 0)  # noqa: PLW2901
        elif w.shape == (256, 1024):  # behind the convolutions
            w = w.reshape(256, 64, 4, 4).transpose(2, 3, 1, 0).reshape(1024, 256)  # noqa: PLW2901
        else:
            w = w.T  # noqa: PLW2901
        layers[f"{kind}_{before}" if before else kind] = {"w": jnp.array(w), "b": jnp.array(b)}
    return layers


def cross_entropy(batch: dict, logits: jax.Array) -> jax.Array:
    """Return the loss of each example."""
    return -jnp.take_along_axis(jax.nn.log_softmax(logits), batch["y"][:, None], 1)[:, 0]


def train(task: Task, watch: Watch) -> None:
    """Run a warm-up round and the timed ones."""
    work = task.work
    images, y = work.data()
    x = (images.transpose(0, 2, 3, 1) / np.float32(255)).astype(np.float32)
    y = y.astype(np.int32)
    cuts = np.cumsum(work.sizes())[:-1]
    pairs = zip(np.split(x, cuts), np.split(y, cuts), strict=True)
    nodes = [Cut(*pair, work.batch, BUCKETS_OF_ROUNDS.get(work.model, 0)) for pair in pairs]

    model = fedjax.create_model_from_haiku(
        hk.transform(partial(forward, work.model)),
        {"x": x[:1], "y": y[:1]},
        cross_entropy,
    )
    algorithm = fed_avg.federated_averaging(
        fedjax.model_grad(model),
        client_optimizer=fedjax.optimizers.sgd(LEARNING_RATE),
        server_optimizer=fedjax.optimizers.sgd(1.0),
        client_batch_hparams=fedjax.ShuffleRepeatBatchHParams(work.batch),
    )
    keys = jax.random.split(jax.random.PRNGKey(0), work.nodes)
    clients = [(i, node, keys[i]) for i, node in enumerate(nodes)]
    some = {"x": x[:LOSS_EXAMPLES], "y": y[:LOSS_EXAMPLES]}

    @jax.jit
    def loss(params: dict) -> jax.Array:
        return cross_entropy(some, model.apply_for_eval(params, some)).mean()

    state = algorithm.init(first_weights(work))
    watch.loss(loss(state.params))
    for _ in range(1 + task.rounds):
        before = sum(node.seen for node in nodes)
        watch.start()
        state, diagnostics = algorithm.apply(state, clients)
        jax.block_until_ready((state.params, diagnostics))
        watch.stop(sum(node.seen for node in nodes) - before)
        watch.loss(loss(state.params))


def main() -> None:
    """Run what was asked for."""
    task = asked(__doc__)
    watch = Watch()
    with fedjax.for_each_client_backend("jit"):
        train(task, watch)
    note = "without local response normalisation" if task.work.model == "cnn" else ""
    watch.tell("fedjax", task, ["fedjax", "jax", "jaxlib", "dm-haiku"], note)


if __name__ == "__main__":
    main()
