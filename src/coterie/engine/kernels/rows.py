"""A module as a row of layers: what its forward calls, one after the other, if it is no more.

A forward is traced by torch.fx. What cannot be seen to be a row is None: it trains as it is.
"""

import copy
import dis
import operator
import random
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from inspect import isfunction, isroutine
from threading import Lock
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor, fx, nn
from torch.nn import functional

from coterie.engine.habits import states
from coterie.engine.kernels.dense import has_hooks
from coterie.engine.module import inputs
from coterie.models.norm import LocalNorm

PLAIN = (bool, int, float, complex, str, bytes, torch.dtype, torch.device, np.generic)
CHANGING = ("STORE_ATTR", "DELETE_ATTR", "STORE_GLOBAL", "DELETE_GLOBAL", "STORE_SUBSCR")
Named = list[nn.Module | str]  # a module of the traced one by its name, or one for a call

_tracing = Lock()  # torch.fx takes the place of Module.__call__ while it traces


def find_row(
    model: nn.Module, x: Tensor, dtype: torch.dtype = torch.float32
) -> nn.Sequential | None:
    """Return the row of layers that equals a module, with its parameters; None if none is found.

    A row of layers is itself. Any other module is traced in training mode, twice, and in evaluation
    mode. Then row and module must agree on numbers of the shape of examples x, in both modes:
    scores and gradients.

    >>> class Net(nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.body, self.head = nn.Linear(4, 3), nn.Linear(3, 2)
    ...     def forward(self, x):
    ...         return self.head(torch.relu(self.body(x.flatten(1))))
    >>> [type(layer).__name__ for layer in find_row(Net(), torch.rand(5, 2, 2))]
    ['Flatten', 'Linear', 'ReLU', 'Linear']
    """
    if type(model) is nn.Sequential:
        return model
    if not _is_usual(model) or _changes_something(model) or inputs(x[:0], dtype).dtype != dtype:
        return None
    try:
        with _as_it_was():
            trial = copy.deepcopy(model).cpu()
            named = _named(trial)
            if named is None or not _agree(trial, _row(named, trial), tuple(x.shape[1:]), dtype):
                return None
    except Exception:  # whatever cannot be traced, or not be tried, in a user's module
        return None
    row = _row(named, model)
    mine, theirs = ([id(w) for w in m.parameters()] for m in (row, model))
    return row if mine == theirs else None


def _is_usual(model: nn.Module) -> bool:
    """Whether modules are called in the usual way, and keep nothing but parameters."""
    modules = list(model.modules())
    called = all(
        type(m).__call__ is nn.Module.__call__ and "forward" not in vars(m) for m in modules
    )
    return called and not has_hooks(model) and not list(model.buffers())


@contextmanager
def _as_it_was() -> Iterator[None]:
    """Leave random generators as they are, and keep a module's warnings for when it trains."""
    # a user's module may draw from any of them
    numpys, pythons = np.random.get_state(), random.getstate()  # noqa: NPY002
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            yield
        finally:
            np.random.set_state(numpys)  # noqa: NPY002
            random.setstate(pythons)


def _named(trial: nn.Module) -> Named | None:
    """Return the layers that a forward calls, if it draws nothing, keeps nothing and is a row."""
    found: list[Named] = []
    for mode in (True, True, False):
        trial.train(mode)
        before = states(), _kept(trial, set())
        layers = _traced(trial)
        if layers is None or before != (states(), _kept(trial, set())):
            return None
        found.append(layers)
    one, again, scoring = ([repr(layer) for layer in layers] for layers in found)
    weighty = [name for name in found[0] if isinstance(name, str) and _weights(trial, name)]
    alike = one == again == scoring and len(set(weighty)) == len(weighty)
    return found[0] if alike else None


def _weights(model: nn.Module, name: str) -> int:
    return len(list(model.get_submodule(name).parameters()))


def _kept(value: object, seen: set[int]) -> object:
    """Return what a module, and all that is in it, keeps: to be compared."""
    if isinstance(value, Tensor):
        return id(value), value._version
    parts = _inside(value)
    if parts is None:
        return _told(value)
    if id(value) in seen:
        return id(value)
    seen.add(id(value))
    return id(value), [_kept(part, seen) for part in parts]


def _told(value: object) -> object:
    """Return a value of one piece so that it can be compared; other kinds might change unseen."""
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape, value.tobytes()
    if isinstance(value, set | frozenset):
        return sorted(map(repr, value))
    if value is None or isinstance(value, PLAIN):
        return repr(value)
    raise ValueError(f"a {type(value).__name__} cannot be seen to stay as it is")


def _changes_something(model: nn.Module) -> bool:
    """Whether a method of somebody's class sets what may last: an attribute, a global, an item.

    A counter in a class or a global may change what a forward does after many calls.
    """
    own = {c for m in model.modules() for c in _own_classes(m)}
    methods = (f for c in own for name, f in vars(c).items() if name != "__init__")
    codes = (f.__code__ for f in methods if isfunction(f))
    return any(line.opname in CHANGING for code in codes for line in dis.get_instructions(code))


def _own_classes(module: nn.Module) -> list[type]:
    """List the classes of a module that are neither torch's nor ours."""
    every = (c for c in type(module).__mro__ if c is not object)
    return [c for c in every if not c.__module__.startswith(("torch.", "coterie."))]


def _is_data(value: object) -> bool:
    """Whether what a class has is neither a method nor a property."""
    return not (callable(value) or isinstance(value, property | classmethod | staticmethod))


def _inside(value: object) -> list[object] | None:
    """Return what a value consists of; None if it is one piece."""
    if isinstance(value, dict):
        return [*value, *value.values()]
    if isinstance(value, list | tuple):
        return list(value)
    if isinstance(value, nn.Module):
        shared = (v for c in _own_classes(value) for k, v in vars(c).items() if k[:2] != "__")
        return [*vars(value), *vars(value).values(), *(v for v in shared if _is_data(v))]
    return [] if isroutine(value) or isinstance(value, type | ModuleType) else None


class _Tracer(fx.Tracer):
    """Takes layers of torch and ours as they are, and leaves modules of other threads alone."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self._own = {id(m) for m in model.modules()}

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        """Whether a module is a layer."""
        return type(m) is LocalNorm or super().is_leaf_module(m, module_qualified_name)

    def call_module(
        self, m: nn.Module, forward: Callable[..., Any], args: Any, kwargs: dict[str, Any]
    ) -> Any:
        """Note a call of a layer."""
        if id(m) not in self._own:
            return forward(*args, **kwargs)
        return super().call_module(m, forward, args, kwargs)


def _traced(model: nn.Module) -> Named | None:
    """Return the layers that a forward calls in the mode that the model is in."""
    with _tracing:
        graph = _Tracer(model).trace(model)
    layers: Named = []
    line: list[fx.Node] = []
    sizes: set[fx.Node] = set()
    for node in graph.nodes:
        if node.op == "placeholder" and not line:
            line.append(node)
        elif node.op == "output":
            return layers if node.args == (line[-1],) else None
        elif line and _is_size(node, line, sizes):
            sizes.add(node)
        elif line and node.args and node.args[0] is line[-1]:
            layers.append(_layer(node, sizes, training=model.training))
            line.append(node)
        else:
            return None
    return None


def _is_size(node: fx.Node, line: list[fx.Node], sizes: set[fx.Node]) -> bool:
    """Whether a node is how many examples there are, or the shape that says so."""
    before, *more = node.args or (None,)
    if (node.op, node.target) == ("call_method", "size"):
        return before in line and more in ([], [0]) and not node.kwargs
    if (node.op, node.target) == ("call_function", getattr):
        return before in line and more == ["shape"]
    taken = (node.op, node.target) == ("call_function", operator.getitem)
    return taken and before in sizes and more == [0]


def _layer(node: fx.Node, sizes: set[fx.Node], *, training: bool) -> nn.Module | str:
    """Return the name of a layer that a node calls, or a layer that does the same."""
    more: tuple[Any, ...] = node.args[1:]
    named: dict[str, Any] = dict(node.kwargs)
    if node.op == "call_module" and not (more or named):
        return str(node.target)
    if (node.op, node.target) in VIEWS:
        _check_view(more, sizes)
        return nn.Flatten()
    if any(isinstance(value, fx.Node) for value in (*more, *named.values())):
        raise ValueError("a layer takes more than what comes before it")
    if node.target is functional.dropout:
        return _dropout(training, *more, **named)
    return CALLS[node.op, node.target](*more, **named)


def _check_view(shape: tuple[Any, ...], sizes: set[fx.Node]) -> None:
    """Refuse a view but those of an example a row: (examples, -1 or a number), (-1, a number)."""
    rows, columns = shape[0] if len(shape) == 1 else shape
    known = type(columns) is int and columns > 0
    if isinstance(rows, fx.Node):
        number = rows.target is operator.getitem or (rows.target == "size" and len(rows.args) == 2)
        fits = rows in sizes and number and (known or columns == -1)
    else:
        fits = known and rows == -1
    if not fits:
        raise ValueError("the view is not of an example a row")


def _dropout(now: bool, p: float = 0.5, training: bool = True, inplace: bool = False) -> nn.Module:
    """Return dropout that drops in training alone."""
    if training is not now:
        raise ValueError("what is dropped does not go by the module's mode")
    return nn.Dropout(p, inplace)


def _pool(
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> nn.Module:
    return nn.MaxPool2d(kernel_size, stride, padding, dilation, return_indices, ceil_mode)


def _relu(inplace: bool = False) -> nn.Module:
    return nn.ReLU(inplace)


def _flatten(start_dim: int = 0, end_dim: int = -1) -> nn.Module:
    return nn.Flatten(start_dim, end_dim)


VIEWS: set[tuple[str, Any]] = {("call_method", "view"), ("call_method", "reshape")}
CALLS: dict[tuple[str, Any], Callable[..., nn.Module]] = {
    ("call_function", functional.relu): _relu,
    ("call_function", torch.relu): _relu,
    ("call_method", "relu"): _relu,
    ("call_function", functional.max_pool2d): _pool,
    ("call_function", torch.flatten): _flatten,
    ("call_method", "flatten"): _flatten,
}


def _row(named: Named, model: nn.Module) -> nn.Sequential:
    """Return layers, those that are named being a model's own."""
    return nn.Sequential(*(model.get_submodule(m) if isinstance(m, str) else m for m in named))


def _agree(model: nn.Module, row: nn.Module, shape: tuple[int, ...], dtype: torch.dtype) -> bool:
    """Whether two ways through the same parameters make the same numbers, and the same gradients.

    Away from the first weights, as zeros there would hide what a layer does.
    """
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(2, *shape, generator=generator, dtype=dtype)
    with torch.no_grad():
        for w in model.parameters():
            w.add_(0.01 * torch.randn(w.shape, generator=generator, dtype=w.dtype))
    for mode in (True, False):
        one, other = (
            _tried(m.train(mode), x.clone(), list(model.parameters())) for m in (model, row)
        )
        for a, b in zip(one, other, strict=True):
            if a is None or b is None or not torch.equal(a, b):
                return False
    return True


def _tried(model: nn.Module, x: Tensor, weights: list[nn.Parameter]) -> list[Tensor | None]:
    """Return scores, and gradients by parameters that have them."""
    torch.default_generator.manual_seed(1)
    scores = model(x)
    trained = [w for w in weights if w.requires_grad]
    loss = (scores * torch.linspace(1, 2, scores.numel(), dtype=scores.dtype).view_as(scores)).sum()
    return [scores, *torch.autograd.grad(loss, trained, allow_unused=True)]
