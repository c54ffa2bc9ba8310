"""A device that is not there: its tensors lie on the CPU, claim to be elsewhere, and are watched.

What is computed with them is what a CPU computes, so that an engine gives its usual results. Unlike
tensors of the CPU they cannot be mixed with those, and everything that a GPU would have to be
waited for is written down, with the function of ours that asked for it. torch's own `meta` is the
name of the device: it is known to every build of torch, and nothing has to be started for it.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

NAME = "meta"
AWAY, HERE = torch.device(NAME), torch.device("cpu")
# A GPU tells how large their results are before the host can go on.
SIZED = {"nonzero", "masked_select", "unique_dim", "_unique2", "bincount"}
_inside = [False]  # a kernel of the CPU: there tensors say where they truly are


class Far(Tensor):
    """A tensor of the CPU that says it is away."""

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:  # of whoever has left the watch
        if func is torch.ops.prim.device.default:
            return HERE if _inside[0] else AWAY
        return _computed(func, args, kwargs or {}, far=True)


class Watch(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Makes tensors of the device, and keeps a list of who looked at them."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.looked: list[str] = []  # "operation in function", a line for each
        self.sent = 0  # copies to the device

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.prim.device.default:
            return HERE if _inside[0] else AWAY
        kwargs = kwargs or {}
        with self:  # what is made of other operations, such as `cpu` in inference mode
            found = func.decompose(*args, **kwargs)
        if found is not NotImplemented:
            return found
        name = func.overloadpacket.__name__
        far = [isinstance(leaf, Far) for leaf in tree_leaves((args, kwargs)) if _is_vector(leaf)]
        source = next((leaf for leaf in tree_leaves(args) if isinstance(leaf, Tensor)), None)
        to = torch.device(kwargs["device"]) if kwargs.get("device") is not None else None
        if name == "copy_":
            onto, of = isinstance(args[0], Far), isinstance(args[1], Far)
            self._moved(name, of, onto)
        elif to is not None:
            made = source is None or name.startswith("new_") or name.endswith("_like")
            self._moved(name, isinstance(source, Far), to.type == NAME, made=made)
        elif name in SIZED:
            self._moved(name, isinstance(source, Far), onto=False)
        elif name in ("index", "index_put", "index_put_", "_index_put_impl_"):
            for at in (index for index in args[1] if index is not None):
                if at.dtype == torch.bool:
                    self._moved(f"{name} by a mask", isinstance(at, Far), onto=False)
                self.sent += isinstance(args[0], Far) and not isinstance(at, Far)
        else:
            _check_one_place(func, args, kwargs, far)
        away = to.type == NAME if to is not None else any(far) or isinstance(source, Far)
        found = _computed(func, args, kwargs, far=away)
        if any(far) and isinstance(found, bool | int | float):  # as `item`, `equal` and `allclose`
            self._moved(name, of=True, onto=False)
        return found

    def _moved(self, name: str, of: bool, onto: bool, *, made: bool = False) -> None:
        if of and not onto and not made:
            self.looked.append(f"{name} in {_asker()}")
        elif onto and not of and not made:
            self.sent += 1


def _is_vector(leaf: Any) -> bool:
    return isinstance(leaf, Tensor) and (leaf.ndim > 0 or isinstance(leaf, Far))


def _check_one_place(func: Any, args: Any, kwargs: Any, far: list[bool]) -> None:
    """Refuse what a GPU refuses: vectors of two devices, or to change a CPU's by one of its own."""
    tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
    own = func._schema.is_mutable and tensors and not isinstance(tensors[0], Far)
    if any(far) and (own or not all(far)):
        raise RuntimeError(f"{func}: expected all tensors to be on the same device, {_asker()}")


def _asker() -> str:
    """Name the innermost function of coterie's at work."""
    frame = sys._getframe(1)
    while frame is not None:
        if frame.f_globals.get("__name__", "").startswith("coterie."):
            return f"{frame.f_globals['__name__'].removeprefix('coterie.')}.{frame.f_code.co_name}"
        if frame.f_back is None:
            break
        frame = frame.f_back
    return "a test"


def _computed(func: Any, args: Any, kwargs: Any, *, far: bool) -> Any:
    """Compute on the CPU; results are where they belong."""
    if kwargs.get("device") is not None:
        kwargs = {**kwargs, "device": HERE}
    before, _inside[0] = _inside[0], True
    try:
        with torch._C._DisableTorchDispatch():
            found = func(*args, **kwargs)
    finally:
        _inside[0] = before
    if not far:
        return found
    return tree_map(_away, found)


def _away(found: Any) -> Any:
    if not isinstance(found, Tensor) or isinstance(found, Far):
        return found
    return Tensor._make_subclass(Far, found, found.requires_grad, dispatch_device=True)


@contextmanager
def watched() -> Iterator[Watch]:
    """Have a device while it lasts; modules that are moved there get parameters of their own."""
    before = torch.__future__.get_overwrite_module_params_on_conversion()
    torch.__future__.set_overwrite_module_params_on_conversion(True)
    try:
        with Watch() as watch:
            yield watch
    finally:
        torch.__future__.set_overwrite_module_params_on_conversion(before)


def brought(tensor: Tensor) -> Tensor:
    """Return a copy on the CPU, which no watch sees."""
    copy = torch.ops.aten._to_copy.default
    copied: Tensor = _computed(copy, (tensor,), {"device": HERE}, far=False)
    return copied
