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
from torch import Tensor

from coterie.core.arrays import Floats, Ints
from coterie.engine.contract import LocalSteps
from coterie.engine.habits import Habits
from coterie.engine.kernels.compiled import filled, layers_in_memory, serves
from coterie.engine.kernels.dropping import Factors
from coterie.engine.kernels.single import Single, drawing_seed
from coterie.engine.kernels.stages import Convolution, Net, Norm, Pool, Pooled, Stage
from coterie.engine.local_rule import LocalRule
from coterie.engine.module import Shards, inputs, model_errors
from coterie.engine.update import At

# Numbers times examples from which loops save about the second that it takes to load them: about 1
# ns for a number that lies between two layers, and 2 ns for a linear weight in every batch.
MUCH = 8e8

Back = Callable[[Tensor], Tensor]


def numbers_of_an_example(net: Net, image: tuple[int, int, int], batch: int) -> float:
    """Count what loops save time on for one of `batch` images: outputs, and two for every weight.

    The weights of linear layers are read and changed once in every batch.
    """
    return net.outputs(image) + 2 * sum(x.rows * x.columns for x in net.layers) / batch


class Convolved:
    """Trains nodes of such a network one by one; what adds to plain SGD goes through the module."""

    name, one_by_one = "convolved", True

    def __init__(self, net: Net, shards: Shards, single: Single, habits: Habits) -> None:
        """Take the stages, the nodes' data, who trains through the module, and how that draws."""
        self._net, self._shards, self._single = net, shards, single
        self._draws, self._most = not habits.apart, int(shards.sizes.max())
        self.forget()

    def forget(self) -> None:
        """Give up the memory of all threads, in which numbers may be that are none."""
        self._own = threading.local()

    def stack(self, batch: int) -> int:
        """Return how many nodes are trained together: one."""
        return 1

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
            return self._single.train(w, rows, nodes, start, stop, steps, rule, at)
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
        way = self._pass(min(steps.batch_size, self._most))
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

    def gradients(self, w: Tensor, nodes: Ints, out: Tensor) -> Tensor:
        """Full-data losses [c] at one model w [d]; the gradients go to out [c, d]."""
        return self._single.gradients(w, nodes, out)

    def weighted(self, w: Tensor, index: Tensor, weights: Tensor) -> Tensor:
        """Gradient [d] of the weighted sum of some examples' losses at one model w."""
        return self._single.weighted(w, index, weights)


class Pass:
    """A network's way there and back for batches of at most so many examples, in its own memory."""

    def __init__(self, net: Net, batch: int, dtype: torch.dtype) -> None:
        """Take the network; memory is made as it is needed, and kept."""
        self.batch, self._net, self._dtype = batch, net, dtype
        self.factors = Factors(dtype)
        self._kind = torch.empty(0, dtype=dtype).numpy().dtype.type
        self._weights = torch.empty(net.layers[0].at, dtype=dtype)
        self._kept: dict[object, Tensor] = {}

    @cached_property
    def _layers(self) -> tuple[Ints, Floats]:
        """Where the linear layers lie in memory, and that memory."""
        return layers_in_memory(self._net.layers, self.batch, self._dtype, self._net.drops)

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
        for number, stage in enumerate(self._net.stages):
            x, back = self._forward(number, stage, _channels_last(x))
            backs.append(back)
        dx = self._linear(x, y, rate)
        for back in reversed(backs):
            dx = back(_channels_last(dx))

    def _linear(self, x: Tensor, y: Tensor, rate: float) -> Tensor:
        """Step the linear layers, which see images x; return the gradient by these."""
        from coterie.engine.kernels.loops import learn

        flat = self._memory("flat", (len(x), x[0].numel()))
        before = self._memory("before", flat.shape)
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
        if isinstance(stage, Pooled):
            return self._pool_first(stage, x)
        if isinstance(stage, Convolution):
            return self._convolve(stage, x, first=number == 0)
        if isinstance(stage, Pool):
            return self._pool(number, stage, x)
        if isinstance(stage, Norm):
            return self._normalise(number, stage, x)
        y, back = x.relu_(), torch.ops.aten.threshold_backward.grad_input
        return y, lambda dy: back(dy, y, 0.0, grad_input=dy)

    def _convolve(self, stage: Convolution, x: Tensor, *, first: bool) -> tuple[Tensor, Back]:
        """Convolve; nobody asks for the gradient by the images themselves, which come first."""
        weight, bias = self._parts(stage)

        def back(dy: Tensor) -> Tensor:
            dx, dw, db = torch.ops.aten.convolution_backward(
                *(dy, x, weight, [len(weight)], stage.stride, stage.padding),
                *([1, 1], False, [0, 0], 1, [not first, True, stage.bias]),
            )
            self._descend(stage, dw, db)
            return dy if first else dx

        return torch.conv2d(x, weight, bias, stage.stride, stage.padding), back

    def _parts(self, stage: Convolution) -> tuple[Tensor, Tensor | None]:
        """Return weight and bias of a convolution, where they are trained."""
        end = stage.at + prod(stage.shape)
        weight = self._weights[stage.at : end].view(stage.shape)
        return weight, self._weights[end : stage.end] if stage.bias else None

    def _descend(self, stage: Convolution, dw: Tensor, db: Tensor) -> None:
        """Step a convolution along its gradients, which the learning rate is in."""
        weight, bias = self._parts(stage)
        weight.sub_(dw)
        if bias is not None:
            bias.sub_(db)

    def _pool(self, number: int, stage: Pool, x: Tensor) -> tuple[Tensor, Back]:
        """Pool, and remember where the most was."""
        from coterie.engine.kernels.image_loops import unpool

        B, C, H, W = x.shape
        y, where = self._pooled(number, stage.side, x)

        def back(dy: Tensor) -> Tensor:
            dx = self._memory((number, "dx"), (B, H, W, C))
            unpool(_rows(dy), where.numpy(), stage.side, dx.numpy())
            return _images(dx)

        return y, back

    def _pooled(self, number: int, side: int, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return pooled images, and where in its window the most was [B, h, w, C]."""
        from coterie.engine.kernels.image_loops import pool

        B, C, H, W = x.shape
        small = (B, H // side, W // side, C)
        y = self._memory((number, "y"), small)
        where = self._memory((number, "where"), small, torch.uint8)
        pool(_rows(x), side, y.numpy(), where.numpy())
        return _images(y), where

    def _pool_first(self, stage: Pooled, x: Tensor) -> tuple[Tensor, Back]:
        """Convolve the images themselves, and pool; on the way back only the most count."""
        from coterie.engine.kernels.image_loops import EIGHT, pooled_gradient

        conv, side = stage.convolution, stage.side
        wide = _channels_last(self._convolve(conv, x, first=True)[0])
        y, where = self._pooled(0, side, wide)
        after, before, kh, kw = conv.shape
        rows, columns = y.shape[2] * side, filled(y.shape[3] * side, EIGHT)
        height = max((rows - 1) * conv.stride[0] + kh, x.shape[2] + 2 * conv.padding[0])
        width = max((columns - 1) * conv.stride[1] + kw, x.shape[3] + 2 * conv.padding[1])

        def back(dy: Tensor) -> Tensor:
            padded = self._memory("padded", (height, width * before))
            dx = self._memory("dx", (1, rows, columns, after))
            sums = self._memory("sums", (kh, kw * before, after))
            dw, db = self._memory("dw", conv.shape), self._memory("db", (after,))
            memory = [part.numpy() for part in (padded, dx, sums, dw, db)]
            given = _rows(x), _rows(dy), where.numpy()
            pooled_gradient(*given, side, conv.stride, conv.padding, *memory)
            self._descend(conv, dw, db)
            return dy

        return y, back

    def _normalise(self, number: int, stage: Norm, x: Tensor) -> tuple[Tensor, Back]:
        """Normalise pixel by pixel; the gradient gives way to the one before."""
        from coterie.engine.kernels.image_loops import normalise, normalise_back

        B, C, H, W = x.shape
        y, root = (self._memory((number, name), (B, H, W, C)) for name in ("y", "root"))
        flat, roots = (part.reshape(-1, C) for part in (_rows(x), root.numpy()))
        a, k = self._kind(stage.a), self._kind(stage.k)
        normalise(flat, stage.size, a, k, y.numpy().reshape(-1, C), roots)

        def back(dy: Tensor) -> Tensor:
            normalise_back(_rows(dy).reshape(-1, C), flat, roots, stage.size, a)
            return dy

        return _images(y), back

    def _memory(
        self, name: object, shape: Sequence[int], dtype: torch.dtype | None = None
    ) -> Tensor:
        """Return memory, the same in every call, for as many examples; it began as zeros."""
        kept = self._kept.get(name)
        if kept is None:
            most = max(shape[0], self.batch)
            kept = self._kept[name] = torch.zeros(most, *shape[1:], dtype=dtype or self._dtype)
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
