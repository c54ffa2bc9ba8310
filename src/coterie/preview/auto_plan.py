"""How many groups, and how often to average, without training: the quickest to the same loss."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from coterie.config.settings import AlgorithmConfig
from coterie.core.errors import GroupingError
from coterie.preview.plan import PlanView
from coterie.preview.pricing import Point
from coterie.simulation.forecast import GROUPS, TAU1, TAU2

FEWEST = 2  # nodes of a group, on average
MANY = 1_000  # nodes from which only these methods are asked for every number of groups
QUICK = ("coterie", "edge", "random")


@dataclass(frozen=True)
class Open:
    """What is to be chosen: a number of groups, tau1, tau2."""

    num_groups: tuple[int, ...]
    tau1: tuple[int, ...]
    tau2: tuple[int, ...]

    def at_least(self, fewest: int) -> "Open":
        """Leave out fewer groups; if none is left, take as many.

        >>> Open((2, 5, 10), (1,), (2,)).at_least(3).num_groups
        (5, 10)
        """
        enough = tuple(K for K in self.num_groups if K >= fewest)
        return replace(self, num_groups=enough or (fewest,))

    def schedules(self) -> Iterator[tuple[int, int]]:
        """List tau1 and tau2 that could be."""
        return ((tau1, tau2) for tau1 in self.tau1 for tau2 in self.tau2)


def opened(c: AlgorithmConfig, n: int, edges: int, *, timed: bool) -> Open:
    """Return what `auto` leaves open for n nodes under so many edges.

    Where local steps are not timed, there is nothing to weigh them against: a mean follows each.

    >>> opened(AlgorithmConfig(num_groups="auto", tau1="auto", tau2="auto"), 40, 8, timed=False)
    Open(num_groups=(2, 5, 8, 10, 20), tau1=(1,), tau2=(2, 3, 5, 10, 20))
    """
    most = max(1, n // FEWEST)
    groups = sorted({K for K in (*GROUPS, edges) if 1 < K <= most}) or [1]
    tau2 = tuple(t for t in TAU2 if t > 1)  # 1 is FedAvg, which is compared with anyway
    return Open(
        tuple(groups) if c.num_groups == "auto" else (c.usual[0],),
        (TAU1 if timed else TAU1[:1]) if c.tau1 == "auto" else (c.usual[1],),
        tau2 if c.tau2 == "auto" else (c.usual[2],),
    )


def quickest(views: list[PlanView], open_: Open) -> PlanView:
    """Return the view, its point and its schedule that are soonest at the same loss."""
    best: tuple[float, PlanView, Point, tuple[int, int]] | None = None
    for view in views:
        for point in view.points:
            if point.breaks or len(point.sizes) != view.num_groups:
                continue
            for schedule in open_.schedules():
                speed = _speed(view, point, schedule)
                if best is None or speed > best[0]:
                    best = speed, view, point, schedule
    assert best is not None  # every view has a point to choose
    _, view, point, (tau1, tau2) = best
    told = replace(view.algorithm, tau1=tau1, tau2=tau2)
    return replace(view, chosen=point, algorithm=told, by="time")


def soonest(view: PlanView) -> PlanView:
    """Return a view whose chosen groups are soonest at the same loss, its schedule staying."""
    K, tau1, tau2 = view.algorithm.usual
    return quickest([view], Open((K,), (tau1,), (tau2,)))


def _speed(view: PlanView, point: Point, schedule: tuple[int, int]) -> float:
    rivals, means = view.rivals, view.means_with(point, schedule)
    return means.speed(rivals.step_s, rivals.reach)


def each_number(
    open_: Open, plan: Callable[[int, tuple[str, ...]], PlanView], n: int, methods: tuple[str, ...]
) -> list[PlanView]:
    """Plan for every number of groups; many nodes by the quick methods, and by all where it counts.

    `plan` takes the number of groups and the methods to ask.
    """
    if len(open_.num_groups) == 1:
        return [plan(open_.num_groups[0], methods)]
    if n <= MANY or methods:
        return _each(open_, plan, methods)
    found = _each(open_, plan, QUICK)
    best = quickest(found, open_)
    others = [view for view in found if view.num_groups != best.num_groups]
    last = plan(best.num_groups, ())
    left_out = tuple(dict.fromkeys((*best.left_out, *last.left_out)))
    return [*others, replace(last, left_out=left_out)]


def _each(
    open_: Open, plan: Callable[[int, tuple[str, ...]], PlanView], methods: tuple[str, ...]
) -> list[PlanView]:
    """Plan for every number of groups that limits allow; all views name those that they do not."""
    found, refused = [], {}
    for K in open_.num_groups:
        try:
            found.append(plan(K, methods))
        except GroupingError as error:
            refused[K] = error
    if not found:
        raise next(iter(refused.values()))
    left_out = tuple(f"{K} groups: {error}" for K, error in refused.items())
    return [replace(view, left_out=(*left_out, *view.left_out)) for view in found]
