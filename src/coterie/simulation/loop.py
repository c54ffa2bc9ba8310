"""Algorithm 1: whose turn it is, step and average, let the clock move, let the policy plan."""

from collections.abc import Iterator
from dataclasses import replace

from coterie.engine.contract import Models
from coterie.engine.server import after_mean
from coterie.grouping import Evidence
from coterie.simulation.clock import Clock
from coterie.simulation.measuring import gradients_at, row_after
from coterie.simulation.pace import lockstep
from coterie.simulation.planning import evidence_for
from coterie.simulation.policies.pilot import Choice, Pilot
from coterie.simulation.policies.searched import UNPLANNED
from coterie.simulation.problem import Problem
from coterie.simulation.row import Row
from coterie.simulation.schedule import Event
from coterie.simulation.state import State, Turn


def rounds(problem: Problem, state: State | None = None) -> Iterator[State]:
    """Run Algorithm 1 from its start, or from a state; yield the state after each aggregation.

    Numbers are the paper's lines; docs/explanation/paper.md says where we depart from the print.
    """
    s = state or problem.policy.begin(problem, problem.first_models)  # lines 1-2
    if state is None:
        yield s
    while s.t < problem.steps:  # line 3, up to the next mean at once
        turn = lockstep(problem, s.plan, s.t)  # the conditions of lines 6 and 10
        models = _averaged(problem, s, turn)  # local steps, 4-5, and a mean: 7-9 or 11-12
        clock = s.clock.after(turn.scope, turn.compute_s, turn.transfer)
        s = replace(s, t=turn.stop, models=models, clock=clock)
        s = problem.policy.after(problem, s, turn)  # lines 13-15
        if s.row.t < s.t:  # the policy has not measured this mean
            s = replace(s, row=row_after(problem, s, turn))
        yield s


def _averaged(problem: Problem, s: State, turn: Turn) -> Models:
    """Local steps and the mean after them, and what groups and the server make of it."""
    z, p = turn.who.grouping.z, problem.fleet.p
    models = problem.engine.advance(s.models, turn.start, turn.stop, z, turn.counted)
    if not turn.anybody:
        return models
    groups = (s.groups or problem.everyone).grouping.z
    share = 1.0 if turn.counted is None else float(p[turn.counted].sum())
    everyone = turn.scope is Event.GLOBAL
    return after_mean(problem.update, models, problem.d, p, groups, share, everyone=everyone)


def first_evidence(problem: Problem) -> Evidence:
    """Return what the planner sees at the first global mean, after one step."""
    unmeasured = Row(0, 0.0, 0.0, "start", None, None, None, None, None, [], {})
    s = State(0, problem.first_models, UNPLANNED, Clock(), unmeasured)
    turn = lockstep(problem, s.plan, 0)
    models = _averaged(problem, s, turn)
    return evidence_for(problem, gradients_at(problem, models, turn.stop), 0)


def piloted(problem: Problem) -> tuple[State, Choice]:
    """Run the pilot of a problem with something open; return its last state and what it led to."""
    choices: list[Choice] = []
    assert isinstance(problem.policy, Pilot)  # asked of such a problem only
    problem = replace(problem, policy=replace(problem.policy, told=choices.append))
    s = next(state for state in rounds(problem) if state.groups)
    return s, choices[0]
