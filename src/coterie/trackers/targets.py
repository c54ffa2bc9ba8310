"""Where runs are sent: `mlflow`, `tensorboard=DIR`, `wandb=PROJECT`, or a function of your own."""

import importlib.util
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from coterie.core.errors import CoterieError, unknown
from coterie.core.files import write_json
from coterie.core.plugins import import_by_path
from coterie.core.regular import read_mapping
from coterie.trackers.values import About, Note, Tracker

REMEMBERED = "tracking.json"  # in the folder of a run or sweep: where it is sent
Opener = Callable[[str, About, Note], Tracker]


class TrackingError(CoterieError):
    """A tracker that cannot be used as asked."""


@dataclass(frozen=True)
class Target:
    """A tracker by name and where it keeps runs, whole enough to be used from any folder."""

    kind: str
    destination: str

    def __str__(self) -> str:
        """Write it as `--track` takes it, without a password."""
        return f"{self.kind}={self.hidden(self.destination)}".removesuffix("=")

    def hidden(self, text: str) -> str:
        """Return a text without the password that the destination may hold."""
        password = _password(self.destination)
        return text.replace(password, "***") if password else text

    @property
    def file(self) -> str:
        """Name of the file in a run's folder that says where the run is in this tracker."""
        return f"tracked-{re.sub(r'[^A-Za-z0-9_.]', '.', self.kind)}.json"

    def open(self, run: About, note: Note) -> Tracker:
        """Go on with a run that a note is of, or begin it."""
        return opener(self.kind)(self.destination, run, note)


def parse_target(text: str) -> Target:
    """Read `TRACKER` or `TRACKER=DESTINATION`, and refuse what cannot be meant.

    >>> str(parse_target("wandb"))
    'wandb=coterie'
    >>> parse_target("mlfow")
    Traceback (most recent call last):
    coterie.trackers.targets.TrackingError: unknown tracker 'mlfow'; did you mean 'mlflow'?
    """
    kind, _, destination = text.partition("=")
    if ":" in kind:
        return Target(kind, destination)
    if kind not in KINDS:
        raise TrackingError(unknown("tracker", kind, KINDS))
    return Target(kind, KINDS[kind](destination))


def usable(target: Target) -> None:
    """Refuse, before anything runs, a tracker whose library is not here; nothing is imported."""
    if ":" in target.kind:
        import_by_path(target.kind, TrackingError)
        return
    found = importlib.util.find_spec(target.kind)
    if found is None or found.origin is None:  # a folder of that name is not the library
        extra = f"coterie[{target.kind}]"
        raise TrackingError(f"{target.kind}: needs {extra}: pip install '{extra}'")


def opener(kind: str) -> Opener:
    """Return the function that begins or finds a run in a tracker; imports its library."""
    if kind in KINDS:
        found: Opener = importlib.import_module(f"coterie.trackers.{kind}").open_run
        return found
    return import_by_path(kind, TrackingError)


def remember(folder: Path, targets: Sequence[Target]) -> None:
    """Write down where a run or sweep is sent, for when it goes on; no address with a password."""
    told = [str(target) for target in targets if not _password(target.destination)]
    write_json(folder / REMEMBERED, {"to": told})


def remembered(folder: Path) -> list[str]:
    """Return where a run or sweep was sent when it was begun; nothing if that cannot be read."""
    told = read_mapping(folder / REMEMBERED).get("to")
    return [text for text in told if isinstance(text, str)] if isinstance(told, list) else []


def _folder(text: str) -> str:
    path = Path(text or "tensorboard").absolute()
    if path.exists() and not path.is_dir():
        raise TrackingError(f"tensorboard must be given a folder, got {text!r}")
    return str(path)


def _store(text: str) -> str:
    """Return MLflow's address of a server, or of a file; the file store of old is refused by it."""
    text = text or os.environ.get("MLFLOW_TRACKING_URI", "") or "mlflow.db"
    if "://" in text or text.startswith(("databricks", "uc:")):
        return text
    if Path(text).suffix in (".db", ".sqlite") and not Path(text).is_dir():
        return f"sqlite:///{Path(text).absolute()}"
    raise TrackingError(
        f"mlflow must be given a server such as http://localhost:5000 or a file such as mlflow.db, "
        f"got {text!r}"
    )


def _project(text: str) -> str:
    if text and not re.fullmatch(r"([^/\\#?%:]+/)?[^/\\#?%:]{1,128}", text):
        raise TrackingError(f"wandb must be given PROJECT or ENTITY/PROJECT, got {text!r}")
    return text or "coterie"


def _password(destination: str) -> str | None:
    try:
        return urlsplit(destination).password
    except ValueError:
        return None


KINDS: dict[str, Callable[[str], str]] = {
    "tensorboard": _folder,
    "mlflow": _store,
    "wandb": _project,
}
