"""A network of convolutions taken apart: stages on images, then a chain of linear layers."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import prod

from torch import nn

from coterie.engine.kernels.dense import Layer, flattens_all, has_hooks, in_order
from coterie.models.norm import LocalNorm

WIDE = 16  # channels of a convolution come in multiples of this
MOST_SIDE = 16  # of a window that is pooled: places in it are bytes
WRITTEN_OUT = (nn.Linear, nn.ReLU, nn.Flatten, nn.Conv2d, nn.MaxPool2d, nn.Dropout, LocalNorm)


@dataclass(frozen=True)
class Convolution:
    """A convolution: where its weight [out, in, h, w] and bias lie in the vector."""

    shape: tuple[int, int, int, int]
    at: int
    bias: bool
    stride: tuple[int, int]
    padding: tuple[int, int]

    @property
    def end(self) -> int:
        """Where the next layer begins."""
        return self.at + prod(self.shape) + self.bias * self.shape[0]


@dataclass(frozen=True)
class Pool:
    """The most of every window of side x side."""

    side: int


@dataclass(frozen=True)
class Pooled:
    """A convolution of the images themselves, and the most of every window of side x side."""

    convolution: Convolution
    side: int


@dataclass(frozen=True)
class Relu:
    """max(0, x)."""


@dataclass(frozen=True)
class Norm:
    """Local response normalisation over `size` channels."""

    size: int
    a: float
    k: float


Stage = Convolution | Pool | Pooled | Relu | Norm


@dataclass(frozen=True)
class Net:
    """Stages on images, then linear layers; dropout before the first, and after each, or 0.

    The first stage is a convolution, pooled or not.
    """

    stages: tuple[Stage, ...]
    layers: tuple[Layer, ...]
    drop_first: float
    drops: tuple[float, ...]

    def outputs(self, image: tuple[int, int, int]) -> int:
        """Count the numbers that all stages make of one image [channels, height, width].

        >>> net = find_net(nn.Sequential(nn.Conv2d(1, 16, 3), nn.ReLU(), nn.MaxPool2d(2),
        ...     nn.Flatten(), nn.Linear(64, 5)))
        >>> net.outputs((1, 6, 6)) == 16 * (4 * 4 + 2 * 2 + 2 * 2)
        True
        """
        channels, *sides = image
        count = 0
        for stage in self.stages:
            convolution = stage.convolution if isinstance(stage, Pooled) else stage
            if isinstance(convolution, Convolution):
                channels, _, *window = convolution.shape
                ways = zip(sides, window, convolution.stride, convolution.padding, strict=True)
                sides = [(side + 2 * beside - w) // by + 1 for side, w, by, beside in ways]
                count += channels * prod(sides) if isinstance(stage, Pooled) else 0
            if isinstance(stage, Pool | Pooled):
                sides = [side // stage.side for side in sides]
            count += channels * prod(sides)
        return count


def find_net(model: nn.Module) -> Net | None:
    """Return a module's stages, if it is convolutions, then linear layers; else None.

    ReLU and pooling change places where pooling comes second: the same numbers, a part of the work.

    >>> net = find_net(nn.Sequential(nn.Conv2d(1, 16, 3), nn.ReLU(), nn.MaxPool2d(2),
    ...     nn.Flatten(), nn.Linear(16, 5)))
    >>> [type(stage).__name__ for stage in net.stages], net.layers[0].at
    (['Pooled', 'Relu'], 160)
    """
    if type(model) is not nn.Sequential or has_hooks(model) or list(model.buffers()):
        return None
    modules = list(_opened(model))
    flat = [at for at, m in enumerate(modules) if type(m) is nn.Flatten and flattens_all(m)]
    if len(flat) != 1 or not in_order(modules, model):
        return None
    before, after = modules[: flat[0]], modules[flat[0] + 1 :]
    first = _take_dropout(before, after)
    stages = _stages(before)
    # a ReLU that comes first would change the data
    if first is None or not stages or not isinstance(stages[0], Convolution):
        return None
    tail = _layers(after, max(s.end for s in stages if isinstance(s, Convolution)))
    match stages:
        case [Convolution() as convolution, Pool(side), *others]:
            stages = [Pooled(convolution, side), *others]
    return None if tail is None else Net(tuple(stages), tail[0], first, tail[1])


def _opened(model: nn.Sequential) -> Iterator[nn.Module]:
    """Yield a row's modules, and those of rows in it."""
    for module in model:
        yield from _opened(module) if type(module) is nn.Sequential else (module,)


def _take_dropout(before: list[nn.Module], after: list[nn.Module]) -> float | None:
    """Take dropout out that is next to where all is flattened; None if it cannot be written out."""
    first = 0.0
    for part, at in ((before, -1), (after, 0)):
        if part and type(part[at]) is nn.Dropout:
            # torch drops in the order of memory, which a norm changes until all is flat
            odd = part is before and any(type(m) is LocalNorm for m in before)
            drop = _dropped(part.pop(at))
            if first or odd or not drop:
                return None
            first = drop
    return first


def _dropped(module: nn.Module) -> float:
    """Return how likely dropout drops a number; 0 if it drops none, or all."""
    return module.p if isinstance(module, nn.Dropout) and 0 < module.p < 1 else 0.0


def _stages(modules: list[nn.Module]) -> list[Stage] | None:
    """Return what modules do to images, or None where it is something else."""
    stages: list[Stage] = []
    at = 0
    for module in modules:
        found = _stage(module, at)
        if found is None:
            return None
        if isinstance(found, Convolution):
            at = found.end
        if isinstance(found, Pool) and stages and isinstance(stages[-1], Relu):
            stages.insert(-1, found)
        else:
            stages.append(found)
    return stages


def _stage(module: nn.Module, at: int) -> Stage | None:
    if type(module) is nn.Conv2d and _plain(module):
        shape: tuple[int, int, int, int] = tuple(module.weight.shape)  # type: ignore[assignment]
        stride, padding = _pair(module.stride), _pair(module.padding)
        # oneDNN errs where one channel, laid out last, has another stride across than down
        if stride is None or padding is None or (shape[1] == 1 and stride[0] != stride[1]):
            return None
        return Convolution(shape, at, module.bias is not None, stride, padding)
    if type(module) is nn.MaxPool2d:
        side = _window(module)
        return Pool(side) if side else None
    if type(module) is nn.ReLU:
        return Relu()
    if type(module) is LocalNorm:
        return Norm(module.size, module.alpha / module.size, module.k)
    return None


def _plain(module: nn.Conv2d) -> bool:
    """Whether a convolution is a usual one, and wide enough for loops over its channels to pay."""
    whole = all(w.requires_grad for w in module.parameters())
    usual = (module.groups, _pair(module.dilation), module.padding_mode) == (1, (1, 1), "zeros")
    return whole and usual and module.weight.ndim == 4 and module.out_channels % WIDE == 0


def _window(module: nn.MaxPool2d) -> int:
    """Return the side of windows that are squares beside each other, or 0 if they are not."""
    size, stride = _pair(module.kernel_size), _pair(module.stride)
    usual = (_pair(module.padding), _pair(module.dilation)) == ((0, 0), (1, 1))
    odd = module.ceil_mode or module.return_indices
    if size is None or not usual or odd or size != stride or size[0] != size[1]:
        return 0
    return size[0] if size[0] <= MOST_SIDE else 0


def _pair(value: object) -> tuple[int, int] | None:
    """Return the number down and across, or None where that is said in another way.

    >>> _pair(2), _pair([1, 3]), _pair("same"), _pair((2,))
    ((2, 2), (1, 3), None, None)
    """
    match value:
        case int():
            return value, value
        case (int(down), int(across)):
            return down, across
    return None


def _layers(
    modules: list[nn.Module], at: int
) -> tuple[tuple[Layer, ...], tuple[float, ...]] | None:
    """Return linear layers with ReLUs between them, and what is dropped after each."""
    layers: list[Layer] = []
    drops: list[float] = []
    for module in modules:
        if type(module) is nn.Linear and all(w.requires_grad for w in module.parameters()):
            start, bias = layers[-1].end if layers else at, module.bias is not None
            layers.append(Layer(module.out_features, module.in_features, start, bias, False))
            drops.append(0.0)
        elif type(module) is nn.ReLU and layers and not drops[-1]:
            layers[-1] = replace(layers[-1], relu=True)
        elif type(module) is nn.Dropout and layers and _dropped(module):
            # a zero must be one of ReLU's or of dropout's
            if drops[-1] or not layers[-1].relu:
                return None
            drops[-1] = _dropped(module)
        else:
            return None
    done = layers and not (layers[-1].relu or drops[-1])
    return (tuple(layers), tuple(drops)) if done else None
