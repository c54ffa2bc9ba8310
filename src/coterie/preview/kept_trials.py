"""What trials came to, kept in a file, so that none is run twice."""

import json
import math
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from os import SEEK_END
from pathlib import Path

from coterie.config.files import PATHS, flat
from coterie.config.settings import Config
from coterie.core.errors import RecordError
from coterie.data.files import file_sha256
from coterie.runs.provenance import versions


@dataclass(frozen=True)
class End:
    """Where a run was at the loss, or else the least loss that it had."""

    seconds: float | None
    slow_bytes: float | None
    steps: int | None
    least: float | None


NO_END = End(None, None, None, None)  # it diverged


@dataclass
class Kept:
    """What trials came to, kept in a file line by line, so that none is run twice."""

    path: Path | None = None
    known: dict[str, End] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Read what is there; a line that is cut off, or no trial's, is left out."""
        if self.path is None or not self.path.exists():
            return
        with cannot_be("read", self.path):
            lines = self.path.read_text(encoding="utf-8", errors="replace").splitlines()
        for line in lines:
            with suppress(ValueError, TypeError, KeyError, AttributeError):
                told = json.loads(line)
                key = str(told.pop("trial"))
                end = End(**told)
                if all(v is None or 0 <= float(v) < math.inf for v in vars(end).values()):
                    self.known[key] = end

    def keep(self, key: str, end: End) -> None:
        """Remember what a trial came to."""
        self.known[key] = end
        if self.path is None:
            return
        with cannot_be("written", self.path):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("ab+") as file:
                begun = file.tell() and (file.seek(-1, SEEK_END), file.read(1))[1] != b"\n"
                line = json.dumps({"trial": key, **asdict(end)})
                file.write(f"{chr(10) * begun}{line}\n".encode())


@contextmanager
def cannot_be(done: str, path: Path) -> Iterator[None]:
    """Say in one line what cannot be done with a file."""
    try:
        yield
    except OSError as error:
        raise RecordError(f"{path}: cannot be {done} ({error.strerror})") from error


def sources_of(config: Config) -> str:
    """Return what decides a result beside the settings: files that they name, and this version."""
    told, lines = flat(config), [f"{versions()}"]
    for path in (Path(str(told[key])) for key in PATHS if told[key]):
        files = sorted(path.rglob("*")) if path.is_dir() else [path]
        lines += [f"{file} {file_sha256(file)}" for file in files if file.is_file()]
    return "\n".join(lines)
