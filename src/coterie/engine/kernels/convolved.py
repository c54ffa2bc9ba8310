"""Networks of convolutions written out: oneDNN's convolutions, and compiled loops between them.

torch's autograd makes several passes over memory for each layer, and takes much of it anew for
every batch. Here a layer is one pass, in memory that is kept; linear layers are stepped by the
loops of loops.py.
"""

import threading
from collections.abc import Callable, Sequence
from functools import cached_property
from math import prod

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from coterie.core.arrays import Floats, Ints
from coterie.engine.contract import LocalSteps
from coterie.engine.habits import Habits
from coterie.engine.kernels.compiled import layers_in_memory, serves
from coterie.engine.kernels.dropping import Factors
from coterie.engine.kernels.single import Single, drawing_seed
from coterie.engine.kernels.stages import Convolution, Net, Norm, Pool, Stage
from coterie.engine.local_rule import LocalRule
from coterie.engine.module import Shards, inputs, model_errors
from coterie.engine.task import CLASSIFICATION, Task
from coterie.engine.update import At

Back = Callable[[Tensor], Tensor]


class Convolved(Single):
    """Trains nodes of such a network one by one; what adds to plain SGD goes through the module."""

    name = "convolved"

    def __init__(
        self,
        model: nn.Module,
        net: Net,
        shards: Shards,
        copies: int,
        habits: Habits,
        task: Task = CLASSIFICATION,
    ) -> None:
        """Take the module, its stages, the nodes' data, and what is known of it."""
        super().__init__(model, shards, copies, habits, task)
        self._net, self._draws = net, not habits.apart
        self._own = threading.local()

    def forget(self) -> None:
        """Give up the memory of all threads, in which numbers may be that are none."""
        self._own = threading.local()

    def train(
        self,
        w: Tensor,
        rows: Tensor,
        nodes: Ints,
        start: int,
        stop: int,
        steps: LocalSteps,
        rule: LocalRule,
        at: At | None,
    ) -> list[Tensor]:
        """Take steps start+1 .. stop from the models w[rows]; returns these [c, d] in a list."""
        if not serves(steps, rule):
            return super().train(w, rows, nodes, start, stop, steps, rule, at)
        found = w.new_empty(len(nodes), w.shape[1])
        for number, (row, i) in enumerate(zip(rows.tolist(), nodes.tolist(), strict=True)):
            self._train_one(w[row], i, start, stop, steps, found[number])
        return [found]

    def _train_one(
        self, w: Tensor, i: int, start: int, stop: int, steps: LocalSteps, found: Tensor
    ) -> None:
        """Take steps on node i from the model w [d]; it ends in found [d]."""
        x, y = self._shards.of(i)
        assert steps.batch_size is not None
        way = self._pass(min(steps.batch_size, int(self._shards.sizes.max())))
        way.load(w)
        for t in range(start + 1, stop + 1):
            if self._draws:
                way.factors.seed(drawing_seed(steps, t, i))
            rate = steps.lr_at(t)
            for batch in steps.batches(t, i, len(y)):
                xs, ys = (x, y) if batch is None else (x[batch], y[batch])
                with model_errors(f"at step {t} on node {i} with a batch of {len(ys)}"):
                    way.step(inputs(xs, w.dtype), ys, rate)
        way.store(found)

    def _pass(self, batch: int) -> "Pass":
        """Return the thread's pass for batches of at most so many."""
        known: Pass | None = getattr(self._own, "known", None)
        if known is None or known.batch != batch:
            known = self._own.known = Pass(self._net, batch, self._shards.dtype)
        return known


class Pass:
    """A network's way there and back for batches of at most so many examples, in its own memory."""

    def __init__(self, net: Net, batch: int, dtype: torch.dtype) -> None:
        """Take the network; memory is made as it is needed, and kept."""
        self.batch, self._stages, self._net = batch, net.stages, net
        self.factors = Factors(dtype)
        self._kind = torch.empty(0, dtype=dtype).numpy().dtype.type
        self._weights = torch.empty(net.layers[0].at, dtype=dtype)
        self._pooled_first = any(isinstance(stage, Pool) for stage in net.stages[1:2])
        self._kept: dict[object, Tensor] = {}

    @cached_property
    def _layers(self) -> tuple[Ints, Floats]:
        """Where the linear layers lie in memory, and that memory."""
        return layers_in_memory(self._net.layers, self.batch, self._weights.dtype, self._net.drops)

    def load(self, w: Tensor) -> None:
        """Begin with a model [d]."""
        from coterie.engine.kernels.loops import load

        self._weights.copy_(w[: len(self._weights)])
        load(w.numpy(), *self._layers)

    def store(self, w: Tensor) -> None:
        """Write the model [d]."""
        from coterie.engine.kernels.loops import store

        w[: len(self._weights)] = self._weights
        store(*self._layers, w.numpy())

    @torch.no_grad()
    def step(self, x: Tensor, y: Tensor, rate: float) -> None:
        """Go down the gradient of the mean loss of a batch."""
        backs: list[Back] = []
        for number, stage in enumerate(self._stages):
            x, back = self._forward(number, stage, _channels_last(x))
            backs.append(back)
        dx = self._linear(x, y, rate)
        for back in reversed(backs):
            dx = back(_channels_last(dx))

    def _linear(self, x: Tensor, y: Tensor, rate: float) -> Tensor:
        """Step the linear layers, which see images x; return the gradient by these."""
        from coterie.engine.kernels.loops import learn

        flat = self._memory("flat", (len(x), x[0].numel()), x.dtype)
        before = self._memory("before", flat.shape, x.dtype)
        flat.view(x.shape).copy_(x)
        drop = self._net.drop_first
        factors = self.factors.draw(drop, flat.shape) if drop else None
        if factors is not None:
            flat.mul_(factors)
        self._draw_factors(len(x))
        everyone, a_step = np.arange(len(x)), self._kind(rate)
        values, gradient = flat.numpy(), before.numpy()
        learn(*self._layers, values, y.numpy(), everyone, a_step, gradient)
        if factors is not None:
            before.mul_(factors)
        return before.view(x.shape)

    def _draw_factors(self, B: int) -> None:
        """Draw what the values of linear layers are multiplied by."""
        from coterie.engine.kernels.loops import DROPS, STRIDE

        table, space = self._layers
        for number, drop in enumerate(self._net.drops):
            if drop:
                factors = self.factors.draw(drop, (B, self._net.layers[number].rows))
                at, stride = int(table[number, DROPS]), int(table[number + 1, STRIDE])
                place = space[at : at + B * stride].reshape(B, stride)
                place[:, : factors.shape[1]] = factors.numpy()

    def _forward(self, number: int, stage: Stage, x: Tensor) -> tuple[Tensor, Back]:
        """Return what a stage makes of images, and the way back through it."""
        if isinstance(stage, Convolution):
            return self._convolve(stage, x, first=number == 0)
        if isinstance(stage, Pool):
            return self._pool(number, stage, x)
        if isinstance(stage, Norm):
            return self._normalise(number, stage, x)
        y, back = x.relu_(), torch.ops.aten.threshold_backward.grad_input
        return y, lambda dy: back(dy, y, 0.0, grad_input=dy)

    def _convolve(self, stage: Convolution, x: Tensor, *, first: bool) -> tuple[Tensor, Back]:
        weight, bias = self._parts(stage)
        if first:
            self._first = x
        y = torch.conv2d(x, weight, bias, stage.stride, stage.padding)

        def back(dy: Tensor) -> Tensor:
            dx, dw, db = torch.ops.aten.convolution_backward(
                *(dy, x, weight, [len(weight)], stage.stride, stage.padding),
                *([1, 1], False, [0, 0], 1, [not first, True, stage.bias]),
            )
            weight.sub_(dw)
            if bias is not None:
                bias.sub_(db)
            return dy if first else dx

        return y, (lambda dy: dy) if first and self._pooled_first else back

    def _parts(self, stage: Convolution) -> tuple[Tensor, Tensor | None]:
        """Return weight and bias of a convolution, where they are trained."""
        end = stage.at + prod(stage.shape)
        weight = self._weights[stage.at : end].view(stage.shape)
        return weight, self._weights[end : stage.end] if stage.bias else None

    def _pool(self, number: int, stage: Pool, x: Tensor) -> tuple[Tensor, Back]:
        from coterie.engine.kernels.image_loops import pool, unpool

        B, C, H, W = x.shape
        small = (B, H // stage.side, W // stage.side, C)
        y = self._memory((number, "y"), small, x.dtype)
        where = self._memory((number, "where"), small, torch.uint8)
        pool(_rows(x), stage.side, y.numpy(), where.numpy())
        if number == 1 and self._pooled_first:
            return _images(y), lambda dy: self._pooled_gradient(stage, dy, where)

        def back(dy: Tensor) -> Tensor:
            dx = self._memory((number, "dx"), (B, H, W, C), x.dtype)
            unpool(_rows(dy), where.numpy(), stage.side, dx.numpy())
            return _images(dx)

        return _images(y), back

    def _pooled_gradient(self, stage: Pool, dy: Tensor, where: Tensor) -> Tensor:
        """Step the first convolution, which is pooled, along the gradient dy after pooling."""
        from coterie.engine.kernels.image_loops import EIGHT, pooled_gradient

        first, x = self._stages[0], self._first
        assert isinstance(first, Convolution)
        after, before, high, wide = first.shape
        rows, columns = dy.shape[2] * stage.side, dy.shape[3] * stage.side
        columns = -(-columns // EIGHT) * EIGHT
        height = max((rows - 1) * first.stride[0] + high, x.shape[2] + 2 * first.padding[0])
        width = max((columns - 1) * first.stride[1] + wide, x.shape[3] + 2 * first.padding[1])
        padded, dx = x.new_zeros(height, width * before), x.new_zeros(1, rows, columns, after)
        sums = x.new_empty(high, wide * before, after)
        dw, db = x.new_empty(first.shape), x.new_empty(after)
        arrays = [a.numpy() for a in (padded, dx, sums, dw, db)]
        given = _rows(x), _rows(dy), where.numpy()
        pooled_gradient(*given, stage.side, first.stride, first.padding, *arrays)
        weight, bias = self._parts(first)
        weight.sub_(dw)
        if bias is not None:
            bias.sub_(db)
        return dy

    def _normalise(self, number: int, stage: Norm, x: Tensor) -> tuple[Tensor, Back]:
        from coterie.engine.kernels.image_loops import normalise, normalise_back

        B, C, H, W = x.shape
        y, root = (self._memory((number, name), (B, H, W, C), x.dtype) for name in ("y", "root"))
        flat, roots = (a.reshape(-1, C) for a in (_rows(x), root.numpy()))
        a, k = self._kind(stage.a), self._kind(stage.k)
        normalise(flat, stage.size, a, k, y.numpy().reshape(-1, C), roots)

        def back(dy: Tensor) -> Tensor:
            normalise_back(_rows(dy).reshape(-1, C), flat, roots, stage.size, a)
            return dy

        return _images(y), back

    def _memory(self, name: object, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        """Return memory, the same in every call; it began as zeros."""
        kept = self._kept.get(name)
        if kept is None:
            kept = self._kept[name] = torch.zeros(self.batch, *shape[1:], dtype=dtype)
        return kept[: shape[0]]


def _channels_last(x: Tensor) -> Tensor:
    """Lay images out with their channels last; with one channel torch takes either for the other.

    >>> _channels_last(torch.zeros(2, 1, 4, 3)).stride()
    (12, 1, 3, 1)
    """
    _, C, H, W = x.shape
    laid = x.contiguous(memory_format=torch.channels_last)
    return laid.as_strided(x.shape, (H * W * C, 1, W * C, C))


def _rows(x: Tensor) -> NDArray[np.generic]:
    """Return images [B, C, H, W], channels last, as an array [B, H, W, C]."""
    found: NDArray[np.generic] = x.permute(0, 2, 3, 1).numpy()
    return found


def _images(rows: Tensor) -> Tensor:
    """Return [B, H, W, C] as images [B, C, H, W]."""
    return rows.permute(0, 3, 1, 2)
