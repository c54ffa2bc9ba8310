"""A user's own algorithm: called with its options, and told apart from ours where it fails."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, get_args

from coterie.core.errors import ConfigError, CoterieError, OwnCodeError, unknown
from coterie.core.plugins import import_by_path, reason
from coterie.engine.update import NOTHING, PARTS, Arrays, At, Kept, Mean, Pull, Scope, Update
from coterie.simulation.algorithm import Algorithm, Groups

if TYPE_CHECKING:
    from torch import Tensor, nn

KINDS: dict[str, tuple[tuple[type, ...], str]] = {
    "float": ((float, int), "a number"),
    "int": ((int,), "a whole number"),
    "bool": ((bool,), "true or false"),
    "str": ((str,), "a string"),
}


def own_algorithm(path: str, options: Mapping[str, Any]) -> Algorithm:
    """Import a function that returns an algorithm, or the algorithm itself, and call it."""
    found = import_by_path(path, ConfigError, value=(Algorithm, Update))
    if isinstance(found, Algorithm | Update):
        if options:
            raise ConfigError(f"algorithm.options are not read: {path!r} is no function of any")
        return told_apart(found, path)
    return told_apart(called(path, found, options), path)


def called(name: str, make: Callable[..., Any], options: Mapping[str, Any]) -> Any:
    """Call the function that makes an algorithm with its options, checked by its signature."""
    takes = inspect.signature(make).parameters
    for key, value in options.items():
        if not takes:
            raise ConfigError(f"{name} has no options, got {key!r}; leave out algorithm.options")
        if key not in takes:
            has = ", ".join(f"{k} = {p.default}" for k, p in takes.items())
            raise ConfigError(
                f"{unknown(f'algorithm.options of {name}', key, takes)} (it has {has})"
            )
        note = takes[key].annotation
        noted = note if isinstance(note, str) else getattr(note, "__name__", "")
        kinds, words = KINDS.get(noted, ((object,), ""))
        truth = isinstance(value, bool) and not {bool, object} & set(kinds)
        if truth or not isinstance(value, kinds):
            raise ConfigError(f"algorithm.options.{key} must be {words}, got {value!r}")
    try:
        return make(**options)
    except CoterieError:
        raise
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise ConfigError(f"{name!r} cannot be made: {reason(error)}") from error


def told_apart(found: object, name: str) -> Algorithm:
    """Return a user's algorithm whose faults are told as its own, with file and line."""
    if isinstance(found, Update):
        found = Algorithm(f"your own: {name}", found)
    if not isinstance(found, Algorithm):
        kind = type(found).__name__
        must = "must return" if ":" in name else "must be"
        call = "; call it" if callable(found) else ""
        raise ConfigError(f"{name!r} {must} a coterie.Algorithm or Update, got {kind}{call}")
    _check_parts(found, name)
    if found.update == NOTHING:
        return found
    watched = {part: getattr(Watched(name, found.update), part) for part in WATCHED}
    there = {part: f for part, f in watched.items() if getattr(found.update, part) is not None}
    return replace(found, update=replace(found.update, **there))


def _check_parts(found: Algorithm, name: str) -> None:
    """Refuse an algorithm whose parts are not what they have to be."""
    update, groups = found.update, get_args(Groups)
    for part in WATCHED:
        function = getattr(update, part)
        if not callable(function) and (part == "extra" or function is not None):
            kind = type(function).__name__
            raise ConfigError(f"{name!r}: {part} must be a function, got {kind}")
    if found.groups not in groups:
        said = f"{', '.join(map(repr, groups[:-1]))} or {groups[-1]!r}"
        raise ConfigError(f"{name!r}: groups must be {said}, got {found.groups!r}")
    work: object = update.work
    if isinstance(work, bool) or not isinstance(work, int | float) or not 0 < work < math.inf:
        raise ConfigError(f"{name!r}: work must be a number above 0, got {work!r}")


WATCHED = (*PARTS, "extra")


@dataclass(frozen=True)
class Watched:
    """An update whose functions are called with care: what they raise or return is checked."""

    name: str
    update: Update

    def begin(self, n: int, w: Tensor) -> Kept:
        """Look at what is kept at first."""
        kept = self._call("begin", n, w)
        if not isinstance(kept, Kept):
            raise self._fault("begin", f"must return a coterie.Kept, got {type(kept).__name__}")
        for arrays, rows in ((kept.node, (n,)), (kept.group, ()), (kept.server, ())):
            self._arrays("begin", arrays, w, rows)
        return kept

    def pull(self, at: At) -> Pull:
        """Look at a pull."""
        found = self._call("pull", at)
        if not isinstance(found, Pull):
            raise self._fault("pull", f"must return a coterie.Pull, got {type(found).__name__}")
        for what in ("offset", "towards"):
            if getattr(found, what) is not None:
                self._like("pull", what, getattr(found, what), at.given, tuple(at.given.shape))
        strength: object = found.strength
        if not isinstance(strength, int | float) or not math.isfinite(strength):
            raise self._fault("pull", f"strength must be a finite number, got {strength!r:.40}")
        return found

    def correct(self, g: Tensor, w: Tensor, at: At) -> Tensor:
        """Look at a gradient, once a turn and layer: to look costs as much as to step."""
        return self._gradient("correct", g, w, at)

    def beside(self, g: Tensor, w: Tensor, at: At) -> Tensor:
        """Look at a gradient of a node's second model."""
        return self._gradient("beside", g, w, at)

    def renew(self, w: Tensor, at: At) -> Arrays:
        """Look at what nodes keep."""
        return self._arrays("renew", self._call("renew", w, at), w, (len(w),), at.node)

    def send(self, w: Tensor, at: At) -> Tensor:
        """Look at what nodes send."""
        return self._like("send", "the model", self._call("send", w, at), w, tuple(w.shape))

    def group(self, mean: Mean) -> Arrays:
        """Look at what groups keep."""
        K = int(mean.z.max()) + 1
        return self._arrays("group", self._call("group", mean), mean.given, (K,), mean.group)

    def server(self, w: Tensor, mean: Mean) -> tuple[Tensor, Arrays]:
        """Look at the global model and at what the server keeps."""
        found = self._call("server", w, mean)
        if not (isinstance(found, tuple) and len(found) == 2):
            kind = f"a tuple of {len(found)}" if isinstance(found, tuple) else type(found).__name__
            raise self._fault("server", f"must return (model, what the server keeps), got {kind}")
        model = self._like("server", "the model", found[0], w, tuple(w.shape))
        return model, self._arrays("server", found[1], w, (), mean.server)

    def personal(self, model: nn.Module) -> Collection[str]:
        """Look at the names of tensors that stay on nodes."""
        found = self._call("personal", model)
        if isinstance(found, str) or not isinstance(found, Collection):
            kind = type(found).__name__
            raise self._fault("personal", f"must return names of tensors, got {kind}")
        there = [name for name, _ in (*model.named_parameters(), *model.named_buffers())]
        for name in found:
            if name not in there:
                raise self._fault("personal", unknown("tensor", str(name), there))
        return found

    def extra(self, d: int, scope: Scope) -> int:
        """Look at how many numbers travel with a model."""
        found = self._call("extra", d, scope)
        if isinstance(found, bool) or not isinstance(found, int) or not -d < found < 2**53:
            raise self._fault("extra", f"must return a whole number above -{d}, got {found!r}")
        return found

    def _call(self, part: str, *given: Any) -> Any:
        try:
            return getattr(self.update, part)(*given)
        except CoterieError:
            raise
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            raise OwnCodeError(f"{self.name!r}, {part}: {reason(error)}") from error

    def _fault(self, part: str, what: str) -> OwnCodeError:
        return OwnCodeError(f"{self.name!r}, {part}: {what} ({where(getattr(self.update, part))})")

    def _gradient(self, part: str, g: Tensor, w: Tensor, at: At) -> Tensor:
        found: Tensor = self._call(part, g, w, at)
        if at.looked:
            return found
        at.looked = True
        return self._like(part, "the gradient", found, w, tuple(w.shape))

    def _like(
        self, part: str, what: str, found: object, w: Tensor, *shapes: tuple[int, ...]
    ) -> Tensor:
        """Refuse what is no tensor of one of these shapes and of the model's dtype, or infinite."""
        from torch import Tensor

        if not isinstance(found, Tensor):
            raise self._fault(part, f"{what} must be a tensor, got {type(found).__name__}")
        if tuple(found.shape) not in shapes:
            wanted = " or ".join(str(list(shape)) for shape in shapes)
            raise self._fault(part, f"{what} must have the shape {wanted}, got {list(found.shape)}")
        if found.dtype != w.dtype:
            raise self._fault(part, f"{what} must be {w.dtype}, got {found.dtype}")
        if not bool(found.isfinite().all()) and bool(w.isfinite().all()):
            raise self._fault(part, f"{what} is not finite")
        return found

    def _arrays(
        self,
        part: str,
        found: object,
        w: Tensor,
        rows: tuple[int, ...],
        known: Arrays | None = None,
    ) -> Arrays:
        """Refuse what are no arrays by name, or others than were there at first."""
        if not (isinstance(found, Mapping) and all(isinstance(key, str) for key in found)):
            raise self._fault(part, f"must return arrays by name, got {type(found).__name__}")
        vector, number = [(*rows, w.shape[-1])], [rows, *([(*rows, 1)] if part == "renew" else [])]
        for key, array in found.items():
            if known is not None and key not in known:
                raise self._fault(part, f"{key!r} is not among what begin keeps")
            if key.startswith("~"):
                raise self._fault(part, f"the name {key!r} must not begin with '~'")
            shapes = [*vector, *number]
            if known is not None:  # it stays what it was at first
                shapes = vector if tuple(known[key].shape) in vector else number
            self._like(part, repr(key), array, w, *shapes)
        return found


def where(function: Callable[..., Any]) -> str:
    """Say where a function is written.

    >>> where(where)[:13]
    'own.py, line '
    """
    code = getattr(function, "__code__", None)
    if code is None:
        return type(function).__name__
    return f"{code.co_filename.rpartition('/')[2]}, line {code.co_firstlineno}"
