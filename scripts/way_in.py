"""Print how far it is from a command to the first line of Algorithm 1.

    python scripts/way_in.py              of this tree
    python scripts/way_in.py CHECKOUT     of another one; with --list, every change of package

Counted are the modules whose functions are called, and how often a call goes from one package to
another. Imports and comprehensions do not count.
"""

import argparse
import inspect
import os
import sys
import tempfile
from contextlib import redirect_stderr, redirect_stdout, suppress
from io import StringIO
from pathlib import Path
from types import FrameType
from typing import Any

LOOPS = {("simulation/loop.py", "rounds"), ("run.py", "rounds")}  # now, and in older trees
FUNCTION = inspect.CO_OPTIMIZED  # which a class body is not
COMMAND = ["run", "quickstart", "--set", "train.steps=1"]


def main() -> None:
    """Run the command in a tree, and count until the loop begins."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("checkout", nargs="?", type=Path, default=Path(__file__).parents[1])
    parser.add_argument("--list", action="store_true", help="print every change of package")
    asked = parser.parse_args()
    root = asked.checkout.resolve()
    source = f"{root / 'src' / 'coterie'}{os.sep}"
    sys.path.insert(0, str(root / "src"))
    modules: set[str] = set()
    places: list[tuple[str, str, str]] = []
    importing = 0

    def follow(frame: FrameType, event: str, _: Any) -> None:
        nonlocal importing
        code = frame.f_code
        if (code.co_filename, code.co_name) == ("<frozen importlib._bootstrap>", "_find_and_load"):
            importing += (event == "call") - (event == "return")
        ours = code.co_filename.startswith(source) and code.co_flags & FUNCTION
        if event != "call" or importing or not ours or code.co_name.startswith("<"):
            return
        module = code.co_filename.removeprefix(source).replace(os.sep, "/")
        if (module, code.co_name) in LOOPS:
            sys.setprofile(None)
            return
        modules.add(module)
        package = module.split("/")[0].removesuffix(".py")
        if not places or places[-1][0] != package:
            places.append((package, module, code.co_name))

    from coterie.cli import main as command

    with tempfile.TemporaryDirectory() as folder:
        sys.argv = ["coterie", *COMMAND, "-o", str(Path(folder) / "run")]
        with redirect_stdout(StringIO()), redirect_stderr(StringIO()), suppress(SystemExit):
            sys.setprofile(follow)
            command()
    sys.setprofile(None)
    for _, module, function in places if asked.list else ():
        print(f"  {module} {function}")
    print(f"{len(modules)} modules, {len(places) - 1} changes of package")


if __name__ == "__main__":
    main()
