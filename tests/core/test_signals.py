"""Short work that a signal does not cut in two."""

import signal
import threading

import pytest

from coterie.core.signals import undisturbed


def test_ctrl_c_waits_until_short_work_is_done() -> None:
    before, done = signal.getsignal(signal.SIGINT), False
    with pytest.raises(KeyboardInterrupt), undisturbed():
        signal.raise_signal(signal.SIGINT)
        done = True
    assert done
    assert signal.getsignal(signal.SIGINT) is before


def test_an_error_of_the_work_ends_it_as_ever() -> None:
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(ValueError, match="of its own"), undisturbed():
        raise ValueError("of its own")
    assert signal.getsignal(signal.SIGINT) is before


def test_another_thread_works_as_without() -> None:
    done: list[int] = []

    def work() -> None:
        with undisturbed():
            done.append(1)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert done == [1]
