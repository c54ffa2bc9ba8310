"""Who does the work: threads of one core each, whose results come in the order of the jobs."""

import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from threading import Event
from typing import TypeVar

import torch

from coterie.core.signals import undisturbed
from coterie.engine.device import with_generators

NAME = "coterie"
Job = TypeVar("Job")
Result = TypeVar("Result")


class Team:
    """Threads of one machine; jobs are cut without regard to how many there are.

    Whoever stops in between sets `leaving`, which long jobs look at, and waits for them to end.
    """

    def __init__(self, workers: int, device: torch.device) -> None:
        """Take how many cores to use; a GPU keeps itself busy with one."""
        self.workers = workers if device.type == "cpu" else 1
        self._device = device
        torch.set_num_threads(1)  # of an operation: sums would differ in their last digits
        self.leaving = Event()
        self._pool = ThreadPoolExecutor(self.workers, NAME, torch.set_num_threads, (1,))
        weakref.finalize(self, _dismiss, self._pool)

    def do(self, work: Callable[[Job], Result], jobs: list[Job]) -> Iterator[Result]:
        """Do jobs on all cores; results come in the order of the jobs."""
        if self.workers > 1:
            futures: list[Future[Result]] = []
            try:
                with undisturbed():  # a thread that starts as Ctrl-C comes is waited for by nobody
                    futures += [self._pool.submit(work, job) for job in jobs]
                yield from (future.result() for future in futures)
            except BaseException:
                self.leaving.set()
                for future in futures:
                    future.cancel()
                wait(futures)
                self.leaving.clear()
                raise
            return
        # Random layers draw from streams of their own.
        with torch.random.fork_rng(devices=with_generators(self._device)):
            yield from map(work, jobs)


def _dismiss(pool: ThreadPoolExecutor) -> None:
    """Let threads end; nobody waits for it.

    A team may be collected anywhere, even in a thread that is just starting and holds the lock that
    joining another needs.
    """
    pool.shutdown(wait=False)
