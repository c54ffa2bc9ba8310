"""A user's own part, named by import path."""

import hashlib
import importlib
import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from sysconfig import get_path
from traceback import extract_tb
from typing import Any

from coterie.core.boundary import LONGEST
from coterie.core.errors import CoterieError, words_of

OBJECT = "object"  # in place of a module: what a run was given in Python, and not by a path


def reason(error: BaseException) -> str:
    """Say in one line what a user's code raised, and where.

    >>> reason(KeyError("edge"))
    "KeyError: 'edge'"
    """
    said = words_of(error).strip().partition("\n")[0]
    said = said if len(said) <= LONGEST else f"{said[:LONGEST]}..."
    kind = type(error).__name__
    frames = [f for f in extract_tb(error.__traceback__) if _theirs(f.filename)]
    where = f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""
    return f"{kind}: {said}{where}" if said else f"{kind}{where}"


def is_theirs(error: BaseException) -> bool:
    """Whether an error comes from a user's code that coterie called."""
    files = [Path(frame.filename) for frame in extract_tb(error.__traceback__)]
    package, here = Path(__file__).parents[1], Path(__file__).parent  # core calls nobody
    ours = [at for at, file in enumerate(files) if file.is_relative_to(package)]
    called = [at for at in ours if not files[at].is_relative_to(here)]
    return bool(called) and any(_theirs(str(file)) for file in files[ours[-1] + 1 :])


def _theirs(file: str) -> bool:
    """Whether a file is neither coterie's nor of an installed package nor Python's own."""
    path = Path(file)
    installed = {"site-packages", "dist-packages"} & set(path.parts)
    others = (Path(__file__).parents[1], Path(get_path("stdlib")))
    return path.exists() and not installed and not any(map(path.is_relative_to, others))


def import_by_path(
    path: str, error: type[CoterieError], value: tuple[type, ...] = ()
) -> Callable[..., Any]:
    """Import `package.module:name`, looking in the current folder too; fail in one line.

    It must be a function, or a value of one of some types. Python's own modules are refused before
    anything is imported: whoever names `os:system` in a file wants no plug-in.

    >>> import_by_path("coterie.core.units:has_unit", CoterieError)("5MB")
    True
    """
    module_name, _, attribute = path.partition(":")
    if module_name == OBJECT:
        raise error(passed_again(path))
    if _of_python(module_name):
        raise error(_no_plugin(path))
    if _of_commands(module_name):
        raise error(_no_plugin(path, "coterie's command line"))
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.append(here)
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as cause:
        hint = "; leave out '.py'" if module_name.endswith(".py") else ""
        raise error(
            f"{path!r}: no module {cause.name!r} can be imported from here{hint}"
        ) from cause
    except KeyboardInterrupt:
        raise
    except BaseException as cause:
        if module_name.strip(".") != module_name or not module_name:
            raise error(f"{path!r} is not of the form 'package.module:name'") from cause
        raise error(f"{path!r}: {module_name} cannot be imported: {reason(cause)}") from cause
    found = getattr(module, attribute, None)
    if not callable(found) and not isinstance(found, value):
        raise error(f"{path!r}: {module_name} has no function {attribute!r}")
    if inspect.isroutine(found) and _of_python(str(found.__module__)):
        raise error(_no_plugin(path))
    if _of_commands(type(found).__module__):
        raise error(_no_plugin(path, "coterie's command line"))
    return found  # type: ignore[no-any-return]


def passed_again(path: str) -> str:
    """Say how to go on with what a run was given as an object.

    >>> passed_again("object:Net")
    "'object:Net' was an object in Python; pass it again: coterie.run(..., resume=True)"
    """
    return f"{path!r} was an object in Python; pass it again: coterie.run(..., resume=True)"


def _of_python(module: str) -> bool:
    """Whether a module comes with Python."""
    return module.partition(".")[0] in {*sys.stdlib_module_names, *sys.builtin_module_names}


def _of_commands(module: str) -> bool:
    """Whether a module is of coterie's command line."""
    return f"{module}.".startswith(("coterie.cli.", "coterie.__main__."))


def _no_plugin(path: str, whose: str = "Python's standard library") -> str:
    return f"{path!r} is no plug-in: it is of {whose}; name a function of your own module"


def source_sum(path: str) -> str:
    """Return the SHA-256 of the file that `package.module:name` is in; "" if there is none to read.

    >>> len(source_sum("coterie.core.plugins:reason")), source_sum("math:sqrt")
    (64, '')
    """
    module = sys.modules.get(path.partition(":")[0])
    file = getattr(module, "__file__", None)
    if not file or not file.endswith(".py"):
        return ""
    try:
        return hashlib.sha256(Path(file).read_bytes()).hexdigest()
    except OSError:
        return ""
