"""Processes that leave Ctrl-C to the one that starts them, also while they still import."""

import signal
from multiprocessing import resource_tracker
from multiprocessing.context import SpawnProcess

BLOCKED = {signal.SIGINT}


def start_deaf(process: SpawnProcess) -> None:
    """Start a process that a Ctrl-C does not reach until it calls `leave_ctrl_c_to_parent`.

    A terminal sends Ctrl-C to all processes of a command. One that comes while a new one imports
    its modules would end it with a traceback.
    """
    if not hasattr(signal, "pthread_sigmask"):
        process.start()
        return
    resource_tracker.ensure_running()  # or it is started on the way, and lifts the mask
    before = signal.pthread_sigmask(signal.SIG_BLOCK, BLOCKED)
    try:
        process.start()  # a new process has the mask of who starts it
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def leave_ctrl_c_to_parent() -> None:
    """Ignore Ctrl-C from now on, and one that has come since the process began."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, BLOCKED)
