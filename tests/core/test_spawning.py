"""Processes that a Ctrl-C does not reach."""

import multiprocessing
import os
import signal
from multiprocessing.connection import Connection

import pytest

from coterie.core.spawning import leave_ctrl_c_to_parent, start_deaf


def _struck(pipe: Connection) -> None:
    os.kill(os.getpid(), signal.SIGINT)
    leave_ctrl_c_to_parent()
    os.kill(os.getpid(), signal.SIGINT)
    pipe.send("still here")


@pytest.mark.skipif(not hasattr(signal, "pthread_sigmask"), reason="no signal masks here")
def test_a_ctrl_c_before_and_after_a_new_process_listens_is_left_to_its_parent() -> None:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_struck, args=(theirs,), daemon=True)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    start_deaf(process)
    theirs.close()
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == before
    assert ours.recv() == "still here"
    process.join()
    assert process.exitcode == 0
