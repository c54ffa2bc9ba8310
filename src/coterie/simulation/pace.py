"""Whose turn it is: all groups step together and wait for the slowest, as in the paper."""

import numpy as np

from coterie.core.arrays import Ints
from coterie.network import Transfer
from coterie.simulation.fleet import Averaging
from coterie.simulation.problem import Problem
from coterie.simulation.schedule import Event
from coterie.simulation.state import Plan, Turn


def lockstep(problem: Problem, plan: Plan[Averaging], start: int) -> Turn:
    """Return the steps after `start` up to the next mean of the plan, and that mean."""
    stop, scope = plan.schedule.next_aggregation(start, problem.steps)
    who = plan.groups if plan.groups and scope is Event.GROUP else problem.everyone
    among = (plan.groups or problem.everyone).grouping.z
    counted, compute_s, transfer = costs(problem, who, among, stop, stop - start)
    return Turn(start, stop, scope, who, counted, compute_s, transfer)


def costs(
    problem: Problem, who: Averaging, among: Ints, t: int, steps: int
) -> tuple[Ints | None, float, Transfer]:
    """Who counts in a mean after step t, None for everybody; seconds of the work; the transfer.

    Where nodes are sampled by groups, `among` are the groups.
    """
    fleet, once_s = problem.fleet, problem.fleet.node_turn_s
    if problem.participation.full and once_s is None:
        return None, steps * fleet.step_s, who.transfer
    each = np.full(fleet.n, fleet.step_s)
    work_s = steps * (each if fleet.node_step_s is None else fleet.node_step_s)
    work_s = work_s if once_s is None else work_s + once_s
    if problem.participation.full:
        return None, float(work_s.max()), who.transfer
    there = problem.participation.at(t, among, work_s, problem.seed)
    z, servers = who.grouping.z, who.grouping.servers
    transfer = fleet.network.part(
        z, servers, who.nbytes, there.asked, there.counted, who.down_bytes
    )
    return there.counted, there.compute_s, transfer
