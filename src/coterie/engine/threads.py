"""Who does the work: threads of one core each, whose results come in the order of the jobs."""

import weakref
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from itertools import islice
from threading import Event
from typing import TypeVar

import torch

from coterie.core.signals import undisturbed
from coterie.engine.device import with_generators

NAME = "coterie"
AHEAD = 2  # jobs of each thread that are begun, or done, before a result is asked for
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
        """Do jobs on all cores; results come in the order of the jobs.

        Nobody runs far ahead, so that few results are there at a time.
        """
        if self.workers > 1:
            left, futures = iter(jobs), deque[Future[Result]]()
            try:
                while True:
                    with undisturbed():  # nobody waits for a thread that starts as Ctrl-C comes
                        few = islice(left, AHEAD * self.workers - len(futures))
                        futures += [self._pool.submit(work, job) for job in few]
                    if not futures:
                        return
                    found = futures[0].result()
                    futures.popleft()
                    yield found
                    del found
            except BaseException:
                self.leaving.set()
                for future in futures:
                    future.cancel()
                wait(futures)
                self.leaving.clear()
                raise
        # Random layers draw from streams of their own.
        with torch.random.fork_rng(devices=with_generators(self._device)):
            yield from map(work, jobs)


def _dismiss(pool: ThreadPoolExecutor) -> None:
    """Let threads end; nobody waits for it.

    A team may be collected anywhere, even in a thread that is just starting and holds the lock that
    joining another needs.
    """
    pool.shutdown(wait=False)
