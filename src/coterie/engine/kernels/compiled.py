"""Chains of linear layers by loops that Numba compiles: no Python between two batches."""

from collections.abc import Sequence
from importlib.util import find_spec

import numpy as np
import torch
from torch import Tensor

from coterie.core.arrays import Floats, Ints
from coterie.core.seeding import words
from coterie.engine.contract import LocalSteps
from coterie.engine.kernels import reasons
from coterie.engine.kernels.dense import Dense, Layer
from coterie.engine.local_rule import LocalRule
from coterie.engine.module import Shards

# Weights times examples from which compiled loops save more than the 0.7 s that it takes to load
# them; compiling takes seven more, once. That is 640,000 examples of softmax regression, 25,000 of
# 2NN.
MUCH = 5e9


def has_numba() -> bool:
    """Whether Numba is installed."""
    return find_spec("numba") is not None


def loads() -> bool:
    """Whether the loops can be loaded: a Numba that is installed may not go with this NumPy."""
    try:
        import coterie.engine.kernels.loops  # noqa: F401
    except ImportError:
        return False
    return True


def why_not_compiled(steps: LocalSteps, rule: LocalRule, work: float, much: float = MUCH) -> str:
    """Say why compiled loops cannot take such steps, or are not worth loading; "" if they are.

    `work` counts weights times examples, or what else takes so `much`. Speeds are not measured, so
    that no digit depends on them.
    """
    if not serves(steps, rule):
        return reasons.FULL if steps.batch_size is None else reasons.ADDED
    if work < much:
        return reasons.SHORT
    if not has_numba():
        return reasons.NO_NUMBA
    return "" if loads() else reasons.NOT_LOADED


def serves(steps: LocalSteps, rule: LocalRule) -> bool:
    """Whether compiled loops can take such steps: plain SGD in mini-batches."""
    return rule.fused and not rule.update.local and steps.batch_size is not None


class Compiled(Dense):
    """A written-out chain that adds up models trained by plain SGD in compiled loops."""

    name, one_by_one = "compiled", False

    def __init__(self, layers: Sequence[Layer], shards: Shards) -> None:
        """Take the chain and the nodes' data."""
        super().__init__(layers, shards)
        x = shards.x.flatten(1)
        self._x, self._y = x.numpy(), shards.y.numpy()
        self._kind = torch.empty(0, dtype=shards.dtype).numpy().dtype.type
        self._unit = self._kind(1 / 255 if x.dtype == torch.uint8 else 1.0)

    def serves(self, steps: LocalSteps, rule: LocalRule) -> bool:
        """Whether compiled loops can take such steps."""
        return serves(steps, rule)

    def add(
        self,
        total: Tensor,
        group: Ints,
        share: Floats,
        w: Tensor,
        rows: Ints,
        nodes: Ints,
        start: int,
        stop: int,
        steps: LocalSteps,
    ) -> None:
        """Take plain steps start+1 .. stop from models w[rows]; add their share to total[group].

        The steps must have batches.
        """
        from coterie.engine.kernels.loops import train

        assert steps.batch_size is not None
        table, space = self._table(min(steps.batch_size, int(self._shards.sizes.max())))
        order, ends = self._order(nodes, start, stop, steps)
        rates = np.array([steps.lr_at(t) for t in range(start + 1, stop + 1)], dtype=self._kind)
        train(
            w.numpy(),
            rows,
            total.numpy(),
            group,
            share.astype(self._kind),
            table,
            space,
            self._x,
            self._unit,
            self._y,
            order,
            ends,
            steps.batch_size,
            rates,
        )

    def _table(self, batch: int) -> tuple[Ints, Floats]:
        """Return where every layer lies in memory [layers + 1, 10], and that memory."""
        known: tuple[int, Ints, Floats] | None = getattr(self._own, "table", None)
        if known is None or known[0] != batch:
            table, space = layers_in_memory(self._layers, batch, self._shards.dtype)
            known = self._own.table = batch, table, space
        return known[1:]

    def _order(self, nodes: Ints, start: int, stop: int, steps: LocalSteps) -> tuple[Ints, Ints]:
        """Rows of the data that nodes take, node by node and step by step, and where steps end."""
        sizes = self._shards.sizes[nodes]
        taken = steps.examples_per_step(sizes)
        each = np.concatenate([[0], np.repeat(taken, stop - start).cumsum()])
        ends = np.stack(
            [
                each[k : k + len(nodes) * (stop - start) : stop - start]
                for k in range(stop - start + 1)
            ],
            axis=1,
        )
        width, times = steps.batch_size, range(start + 1, stop + 1)
        assert width is not None
        if not steps.anew:
            from coterie.engine.kernels.shuffling import take_orders

            before = np.array([[*words([steps.seed, t]), 0] for t in times], dtype=np.uint64)
            found = np.empty(each[-1], dtype=np.int64)
            take_orders(before, nodes, sizes, self._shards.starts[nodes], width, ends, found)
            return found, ends
        found = np.repeat(self._shards.starts[nodes], taken * (stop - start))
        for column, t in enumerate(times):
            for number, own in enumerate(steps.orders(t, nodes, sizes)):
                place = found[ends[number, column] : ends[number, column + 1]]
                place += np.arange(len(place)) if own is None else own
        return found, ends


def layers_in_memory(
    layers: Sequence[Layer], batch: int, dtype: torch.dtype, drops: Sequence[float] = ()
) -> tuple[Ints, Floats]:
    """Return where every layer lies in memory [layers + 1, 10], and that memory, of zeros.

    The columns are named in loops.py. The last row is of the scores, and of the place where a
    gradient is made. `drops` says how likely a layer's values are dropped.
    """
    from coterie.engine.kernels.loops import LANES, ROWS

    m, at, table = filled(batch, ROWS), 0, []
    for number, n in enumerate(layers):
        stride, height = filled(n.columns, LANES), n.rows + n.rows % 2
        weights, at = at, at + height * stride
        biases, at = at, at + filled(n.rows, LANES)
        values, at = at, at + m * stride
        factors = 0
        if drops and drops[number]:
            factors, at = at, at + m * filled(n.rows, LANES)
        table.append(
            [n.at, n.bias, n.rows, n.columns, stride, weights, biases, values, n.relu, factors]
        )
    classes = filled(layers[-1].rows, LANES)
    widest = max(filled(n.columns, LANES) for n in layers)
    table.append([0, 0, 0, 0, classes, at, 0, at + m * widest, 0, 0])
    # torch's memory begins at a multiple of 64 bytes
    space = torch.zeros(at + m * (widest + classes), dtype=dtype).numpy()
    return np.array(table, dtype=np.int64), space


def filled(count: int, by: int) -> int:
    """Round up to a multiple.

    >>> filled(200, 16), filled(784, 16)
    (208, 784)
    """
    return -(-count // by) * by
