"""`coterie`, and `python -m coterie`: the command line."""

import atexit
import gc
import os
import signal
import sys
from dataclasses import make_dataclass
from typing import Any

DIGITS = 15  # of any number in the environment
STOPPED = 130  # exit code of what a signal has ended
SELDOM = (50_000, 20, 20)  # new objects before Python looks for cycles; torch alone brings 300,000
ENDING = ("SIGINT", "SIGTERM", "SIGHUP")


def main() -> None:
    """Run the command line, whatever streams are closed; a signal on the way in or out is no fault.

    While the command line is imported nothing has been written or begun, so that a signal ends the
    program at once. Once it has come to its end, a first signal changes nothing.
    """
    _open_closed_streams()
    _mend_environment()
    gc.set_threshold(*SELDOM)
    heeded = [s for s in map(_number, ENDING) if s and signal.getsignal(s) != signal.SIG_IGN]
    before = {number: signal.signal(number, _leave) for number in heeded}
    from coterie.cli import main as run

    atexit.register(_answer, dict.fromkeys(heeded, signal.SIG_IGN))  # after what others registered
    atexit.register(gc.freeze)  # what ends with the process is not gone through once more
    try:
        _answer(before)
        run(prog_name="coterie")
    except KeyboardInterrupt:  # between the line above and where the command line heeds it
        _leave()
    finally:
        _answer(dict.fromkeys(heeded, _once))
        make_dataclass("Nothing", ())  # runs a text, so that Python forgets a Ctrl-C within another


def _mend_environment() -> None:
    """Take out what libraries would fail on: a number that is none, a way to draw on a screen."""
    os.environ.pop("MPLBACKEND", None)  # all drawings are files
    for name in ("COLUMNS", "LINES", "SOURCE_DATE_EPOCH"):
        value = os.environ.get(name, "0")
        if not (value.isascii() and value.isdecimal() and len(value) <= DIGITS):
            del os.environ[name]


def _number(name: str) -> signal.Signals | None:
    """Return a signal by its name, None where the system has none."""
    return getattr(signal, name, None)


def _answer(handlers: dict[signal.Signals, Any]) -> None:
    """Set what signals are answered by."""
    for number, handler in handlers.items():
        signal.signal(number, handler)


def _leave(*_: object) -> None:
    """End at once, with a line: for when there is nothing to lose."""
    os.write(2, b"coterie: stopped\n")
    os._exit(STOPPED)


def _once(number: int, _: object) -> None:
    """Let a signal pass that comes after the end; the next one of its kind ends the program."""
    signal.signal(number, signal.SIG_DFL)


def _open_closed_streams() -> None:
    """Let a stream that was closed by who started the program lead nowhere."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            stream = open(os.devnull, mode, encoding="utf-8")  # noqa: PTH123, SIM115
            os.set_inheritable(stream.fileno(), True)  # opened in order, it has the stream's number
            setattr(sys, name, stream)


if __name__ == "__main__":
    main()
