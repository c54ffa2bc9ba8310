"""What a run was made with: versions, platform, commit."""

import platform
import subprocess
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any


def versions() -> dict[str, Any]:
    """Versions of what the figures depend on, and the commit of a source checkout."""
    return {
        "versions": {"python": platform.python_version(), **_packages()},
        "platform": platform.platform(),
        "commit": _commit(),
    }


@cache
def _packages() -> dict[str, str]:
    return {name: version(name) for name in ("coterie", "numpy", "scipy", "torch")}


@cache  # what was loaded then is what runs, however many runs follow
def _commit() -> str | None:
    """Commit of the checkout that this package is in, with + if it was changed; None elsewhere."""
    here = Path(__file__).resolve().parents[1]

    def git(*words: str) -> str:
        command = ["git", "-C", str(here), *words]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=5)
        return done.stdout.strip()

    try:
        top, _, head = git("rev-parse", "--show-toplevel", "HEAD").partition("\n")
        if Path(top) / "src" / "coterie" != here:
            return None
        dirty = git("status", "--porcelain", ".")
    except (OSError, subprocess.SubprocessError):
        return None
    return f"{head}+" if dirty else head
