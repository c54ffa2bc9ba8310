"""Actors that hold the parts of a run, and are replaced when they die."""

import gc
import os
import weakref
from collections.abc import Callable, Sequence
from typing import Any

from coterie.core.errors import ClusterError
from coterie.core.types import Say
from coterie.engine.ray.cluster import Cluster, Lost, Size

PLACE_S = 120.0  # for an actor to find room and load its part
FREE_S = 5.0  # for the CPUs of an actor that died to be free again, if they are there at all
DEATHS = 3  # of one actor in one question, after which something else is wrong


class Actors:
    """Where an engine's actors come from: a cluster, and what each of them asks for."""

    def __init__(self, cluster: Cluster, size: Size, say: Say = lambda line: None) -> None:
        """Take the cluster and the size of an actor; `say` is told of those that die."""
        self._cluster, self._size, self._say = cluster, size, say

    def pack(self, module: Any) -> bytes:
        """Pickle a module."""
        return self._cluster.pack(module)

    def crew(self, kind: Callable[[Any], Any], parts: Sequence[Any]) -> "RayCrew":
        """Start an actor for every part."""
        return RayCrew(self._cluster, kind, parts, self._size, self._say)


class RayCrew:
    """Actors that each hold a part; parts are kept here too, for actors that follow dead ones."""

    def __init__(
        self,
        cluster: Cluster,
        kind: Callable[[Any], Any],
        parts: Sequence[Any],
        size: Size,
        say: Say,
    ) -> None:
        """Place every part in the object store once, and start its actor."""
        self._cluster, self._kind, self._parts, self._say = cluster, kind, parts, say
        self._size = self._room(size, len(parts))
        self._placed = [cluster.put(part) for part in parts]
        self._actors: list[Any] = [None] * len(parts)
        self.deaths = 0
        weakref.finalize(self, _end_all, cluster, self._actors)
        gc.collect()  # actors of an engine that nobody uses any more make room
        for at in range(len(parts)):
            self._start(at, self._size)
        self.pids: list[int] = [self._made(at) for at in range(len(parts))]

    def ask(self, method: str, *shared: Any, each: Sequence[Any] | None = None) -> list[Any]:
        """Call a method of every actor; return the answers in the order of the parts.

        What goes to all is placed in the object store once. An actor that dies is followed by
        another, with the same part, which is asked the same again.
        """
        placed = self._cluster.put(shared)
        extra = [()] * len(self._actors) if each is None else [(one,) for one in each]

        def call(at: int) -> Any:
            return self._actors[at].call.remote(method, placed, *extra[at])

        answers: dict[int, Any] = {}
        failed: dict[int, BaseException] = {}
        waiting = {call(at): at for at in range(len(self._actors))}
        deaths = [0] * len(self._actors)
        while waiting:
            for done in self._cluster.first(list(waiting)):
                at = waiting.pop(done)
                try:
                    answers[at] = self._cluster.result(done)
                except Lost as lost:
                    deaths[at] += 1
                    self._follow(at, deaths[at], str(lost))
                    placed = self._cluster.put(shared)  # where it was may be gone, too
                    waiting[call(at)] = at
                except Exception as error:  # the first actor's is told, once all have answered
                    failed[at] = error
        if failed:
            raise failed[min(failed)]
        return [answers[at] for at in range(len(self._actors))]

    def _room(self, size: Size, number: int, wait_s: float = 0.0) -> Size:
        """Return the size of so many actors; without CPUs if these are not free, as with a machine.

        CPUs are shares that Ray counts, not a limit: actors that share one are slower, no more.
        """
        if self._cluster.local:
            return Size(0, size.gpus)
        free = self._cluster.has_free("CPU", size.cpus * number, wait_s)
        return size if free else Size(0, size.gpus)

    def _start(self, at: int, size: Size) -> None:
        self._actors[at] = self._cluster.actor(_Member, size, self._kind, self._placed[at])

    def _made(self, at: int) -> int:
        """Wait until an actor has its part; return the number of its process."""
        for deaths in range(1, DEATHS + 2):
            answer = self._actors[at].make.remote()
            if not self._cluster.first([answer], PLACE_S):
                raise ClusterError(
                    f"no room for an actor within {PLACE_S:.0f} s: it asks for "
                    f"{self._size.cpus:g} CPUs and {self._size.gpus:g} GPUs, and others have them; "
                    "lower ray.actors, ray.cpus_per_actor or ray.gpus_per_actor"
                )
            try:
                return int(self._cluster.result(answer))
            except Lost as lost:
                self._replace(at, deaths, str(lost))
        raise AssertionError  # _replace raises before

    def _follow(self, at: int, deaths: int, why: str) -> None:
        """Put another actor in the place of a dead one."""
        self._replace(at, deaths, why)
        self.pids[at] = self._made(at)

    def _replace(self, at: int, deaths: int, why: str) -> None:
        self.deaths += 1
        if deaths > DEATHS:
            raise ClusterError(_died(why))
        self._say(f"an actor died ({why}); its nodes go to another, and the round is repeated")
        self._cluster.end(self._actors[at])
        if deaths > 1:  # perhaps the store that its part was in died with it
            self._placed[at] = self._cluster.put(self._parts[at])
        self._start(at, self._room(self._size, 1, FREE_S))


class _Member:
    """An actor's side: it makes what it holds when asked to, so that an error can be told."""

    def __init__(self, kind: Callable[[Any], Any], part: Any) -> None:
        self._kind, self._part = kind, part
        self._held: Any = None

    def make(self) -> int:
        self._held = self._kind(self._part)
        return os.getpid()

    def call(self, method: str, shared: tuple[Any, ...], *own: Any) -> Any:
        if self._held is None:
            self.make()
        return getattr(self._held, method)(*shared, *own)


def _end_all(cluster: Cluster, actors: list[Any]) -> None:
    for actor in actors:
        cluster.end(actor)


def _died(why: str) -> str:
    if "memory" in why:
        return (
            "actors run out of memory, again and again; lower ray.actors, or train.batch_size, or "
            "use machines with more of it"
        )
    return f"an actor died {DEATHS + 1} times in one round: {why}; see Ray's logs"
