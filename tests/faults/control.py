"""The shim that faults come from, built from shim.c, and the block that says what it does."""

import errno
import mmap
import shutil
import struct
import subprocess
from dataclasses import astuple, dataclass
from pathlib import Path

HERE = Path(__file__).parent
FORM = struct.Struct("<11q4096s")
GROUP = 2  # of kill: not only the process that makes the call


@dataclass(frozen=True)
class Happens:
    """What the shim does, and when: at a call, or when so many bytes are written; 0 is never."""

    at_call: int = 0
    at_byte: int = 0
    error: int = errno.EIO
    lasting: bool = False
    kill: int = 0  # 1 the process, GROUP all of its group
    reads: bool = False
    jump_s: int = 0


@dataclass(frozen=True)
class Counted:
    """What the shim saw below its folder: calls, bytes written, and how often it struck."""

    calls: int
    bytes: int
    happened: int


def compiler() -> str | None:
    """Return the C compiler that builds the shim, if there is one."""
    return next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None)


def build(folder: Path) -> Path:
    """Build the shim in a folder."""
    command = compiler()
    assert command, "no C compiler"
    made = folder / "shim.so"
    options = ["-O1", "-shared", "-fPIC", "-o", str(made)]
    subprocess.run([command, *options, str(HERE / "shim.c"), "-ldl"], check=True)
    return made


class Control:
    """Our side of the block, in a file that the shim maps, too."""

    def __init__(self, path: Path) -> None:
        """Make the block; nothing happens yet."""
        self.path = path
        path.write_bytes(bytes(mmap.PAGESIZE * -(-FORM.size // mmap.PAGESIZE)))
        with path.open("r+b") as file:
            self._block = mmap.mmap(file.fileno(), 0)

    def set(self, under: Path | None = None, what: Happens | None = None) -> None:
        """Say what happens below a folder from now on; without any, nothing does."""
        given = astuple(what or Happens())
        at_call, at_byte, *others, jump_s = map(int, given)
        numbers = (0, 0, 0, at_call, at_byte, *others, jump_s, 0)
        name = str(under.resolve()).encode() if under else b""
        self._block[: FORM.size] = FORM.pack(*numbers, name)

    @property
    def counted(self) -> Counted:
        """What was counted since."""
        return Counted(*FORM.unpack(self._block[: FORM.size])[:3])
