"""Who does the work: threads of one core each, whose results come in the order of the jobs."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

Job = TypeVar("Job")
Result = TypeVar("Result")


class Team:
    """Threads of one machine; jobs are cut without regard to how many there are."""

    def __init__(self, workers: int, device: torch.device) -> None:
        """Take how many cores to use; a GPU keeps itself busy with one."""
        self.workers = workers if device.type == "cpu" else 1
        self._device = device
        torch.set_num_threads(1)  # of an operation: sums would differ in their last digits
        self._pool = ThreadPoolExecutor(self.workers, "coterie", torch.set_num_threads, (1,))

    def do(self, work: Callable[[Job], Result], jobs: list[Job]) -> Iterator[Result]:
        """Do jobs on all cores; results come in the order of the jobs."""
        if self.workers > 1:
            yield from self._pool.map(work, jobs)
            return
        gpus = [torch.cuda.current_device()] if self._device.type == "cuda" else []
        with torch.random.fork_rng(devices=gpus):  # random layers draw from streams of their own
            yield from map(work, jobs)
