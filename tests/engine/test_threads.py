"""The threads of an engine: the order of results, errors, and how they end."""

import signal
import threading
import time
from weakref import WeakSet

import pytest
import torch

from coterie.engine.threads import AHEAD, Team

CPU = torch.device("cpu")


def ours() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name.startswith("coterie")}


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_results_come_in_the_order_of_the_jobs(workers: int) -> None:
    def slow_first(job: int) -> int:
        time.sleep(0.02 / (1 + job))
        return job * job

    assert list(Team(workers, CPU).do(slow_first, list(range(8)))) == [j * j for j in range(8)]


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_results_are_given_up_as_they_are_taken(workers: int) -> None:
    class Result:
        pass

    alive, most = WeakSet[Result](), 0

    def work(_: int) -> Result:
        result = Result()
        alive.add(result)
        return result

    results = Team(workers, CPU).do(work, list(range(50)))
    for _ in range(50):
        next(results)
        most = max(most, len(alive))
    assert most <= AHEAD * workers + 1


@pytest.mark.parametrize("workers", [1, 2])
def test_an_error_of_a_job_reaches_whoever_asked_and_the_team_goes_on(workers: int) -> None:
    team = Team(workers, CPU)
    with pytest.raises(ZeroDivisionError):
        list(team.do(lambda job: 1 / job, [1, 0, 2]))
    assert list(team.do(lambda job: job + 1, [1, 2])) == [2, 3]


def test_who_stops_asking_waits_until_the_jobs_have_left() -> None:
    team, begun = Team(2, CPU), threading.Event()
    started: list[int] = []
    ended: list[int] = []

    def work(job: int) -> int:
        if not job:
            assert begun.wait(60)
            return job
        started.append(job)
        begun.set()
        assert team.leaving.wait(60)
        ended.append(job)
        return job

    for _ in team.do(work, [0, 1, 2]):
        break
    assert 1 in started
    assert sorted(ended) == sorted(started)  # nobody is still at work, in whatever order they left
    assert not team.leaving.is_set()


def test_ctrl_c_as_a_thread_starts_leaves_nobody_at_work(monkeypatch: pytest.MonkeyPatch) -> None:
    team, begun, told = Team(2, CPU), threading.Event(), list[bool]()
    start = threading.Thread.start

    def pressed(thread: threading.Thread) -> None:
        start(thread)
        assert begun.wait(60)
        signal.raise_signal(signal.SIGINT)

    def work(job: int) -> None:
        begun.set()
        told.append(team.leaving.wait(10))

    monkeypatch.setattr(threading.Thread, "start", pressed)
    with pytest.raises(KeyboardInterrupt):
        list(team.do(work, [0]))
    assert told == [True]


def test_threads_end_when_their_team_is_gone() -> None:
    others = ours()  # of teams that other tests have left to the garbage collector
    team, met = Team(3, CPU), threading.Barrier(3)
    assert sorted(team.do(lambda _: met.wait(60), [None] * 3)) == [0, 1, 2]  # all at work at once
    own = ours() - others
    assert len(own) == 3
    del team
    for thread in own:
        thread.join(60)
    assert not own & ours()


def test_a_team_that_its_own_thread_was_the_last_to_know_ends_without_a_word() -> None:
    def last(held: list[Team]) -> None:
        assert leave.wait(60)
        held.clear()

    others, leave = ours(), threading.Event()
    held = [Team(2, CPU)]
    done = held[0]._pool.submit(last, held)
    own = ours() - others
    assert own
    leave.set()
    assert done.result(60) is None
    for thread in own:
        thread.join(60)
    assert not own & ours()
