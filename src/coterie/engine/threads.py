"""Who does the work: threads of one core each, whose results come in the order of the jobs."""

import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from queue import SimpleQueue
from threading import Event, Thread, current_thread
from typing import Any, TypeVar

import torch

Job = TypeVar("Job")
Result = TypeVar("Result")
Todo = SimpleQueue[tuple["Future[Any]", Callable[[Any], Any], Any] | None]


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
        self._todo: Todo = SimpleQueue()
        if self.workers > 1:
            threads = [
                Thread(target=_serve, args=(self._todo,), name="coterie", daemon=True)
                for _ in range(self.workers)
            ]
            for thread in threads:
                thread.start()
            weakref.finalize(self, _dismiss, self._todo, threads)

    def do(self, work: Callable[[Job], Result], jobs: list[Job]) -> Iterator[Result]:
        """Do jobs on all cores; results come in the order of the jobs."""
        if self.workers > 1:
            futures: list[Future[Result]] = [Future() for _ in jobs]
            for future, job in zip(futures, jobs, strict=True):
                self._todo.put((future, work, job))
            try:
                yield from (future.result() for future in futures)
            except BaseException:
                self.leaving.set()
                for future in futures:
                    future.cancel()
                wait(futures)
                self.leaving.clear()
                raise
            return
        gpus = [torch.cuda.current_device()] if self._device.type == "cuda" else []
        with torch.random.fork_rng(devices=gpus):  # random layers draw from streams of their own
            yield from map(work, jobs)


def _serve(todo: Todo) -> None:
    """Do jobs one after the other, until there is None."""
    torch.set_num_threads(1)
    while (item := todo.get()) is not None:
        future, work, job = item
        if future.set_running_or_notify_cancel():
            try:
                future.set_result(work(job))
            except BaseException as error:  # whoever asked gets it
                future.set_exception(error)
        del item, future, work, job  # keep nothing alive while waiting


def _dismiss(todo: Todo, threads: list[Thread]) -> None:
    """Let threads end, and wait for it: one that ends after Python has ended aborts the process."""
    for _ in threads:
        todo.put(None)
    for thread in threads:
        if thread is not current_thread():
            thread.join()
