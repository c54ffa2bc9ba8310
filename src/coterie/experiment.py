"""From a config to a run: prepare it, run Algorithm 1, and record it."""

from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

from coterie.config import to_toml
from coterie.data import Dataset
from coterie.errors import DivergenceError
from coterie.prepare import Prepared, prepare
from coterie.record import RunWriter, write_json
from coterie.run import Problem, State, rounds
from coterie.sections import Config


def simulate(config: Config) -> Iterator[State]:
    """Run a config and yield the state after every aggregation; nothing is written."""
    yield from rounds(prepare(config).problem)


def execute(
    config: Config,
    folder: Path,
    *,
    dataset: Dataset | None = None,
    on_state: Callable[[State], None] = lambda state: None,
) -> None:
    """Run a config into a folder.

    Nothing is written before the first state is there. A loss that is no longer a number, any
    other error, or Ctrl-C keeps the rows so far and leaves a summary that says so.
    """
    prepared = prepare(config, dataset)
    states = rounds(prepared.problem)
    first = state = next(states)
    writer = RunWriter(folder, to_toml(config), config.seed)
    Delta_first, status = None, "failed"
    try:
        for state in chain([first], states):
            writer.add(state.row)
            Delta_first = state.row.Delta if Delta_first is None else Delta_first
            on_state(state)
        status = "complete"
    except DivergenceError:
        status = "diverged"
        raise
    except KeyboardInterrupt:
        status = "interrupted"
        raise
    finally:
        summary = _summary(prepared.problem, state, status)
        about = {
            "n_parameters": prepared.n_parameters,
            "flops_per_example": prepared.flops_per_example,
            "Delta_first": Delta_first,
        }
        done = status == "complete"
        tensors = prepared.problem.engine.export(state.models.w[0]) if done else None
        write_json(folder / "grouping.json", _grouping(prepared, state))
        writer.finish({**summary, **about}, tensors)


def _grouping(prepared: Prepared, state: State) -> dict[str, Any]:
    grouping = (state.groups or prepared.problem.everyone).grouping
    return {
        "z": grouping.z.tolist(),
        "servers": grouping.servers.tolist(),
        "cost_trace": list(grouping.cost_trace),
        "edge_of": prepared.problem.edge_of.tolist(),
        "class_counts": prepared.class_counts.tolist(),
        "nodes": list(prepared.node_names),
        "edges": list(prepared.edge_names),
    }


def _summary(problem: Problem, state: State, status: str) -> dict[str, Any]:
    row, clock = state.row, state.clock
    everyone = problem.everyone
    groups = state.groups or everyone
    val = problem.engine.evaluate(state.models.w[0], "val") if status == "complete" else None
    return {
        "status": status,
        "steps": state.t,
        "test_accuracy": row.test_accuracy,
        "val_accuracy": val.accuracy if val else None,
        "train_loss": row.train_loss,
        "seconds": clock.seconds,
        "compute_s": clock.compute_s,
        "group_s": clock.group_s,
        "global_s": clock.global_s,
        "grouping_s": clock.grouping_s,
        "d_local": problem.step_s,
        "d_group": groups.transfer.seconds if problem.schedule.tau2 > 1 else None,
        "d_global": everyone.transfer.seconds,
        "Delta": row.Delta,
        "delta": row.delta,
        "group_sizes": groups.grouping.sizes,
        "bytes_by_tier": row.bytes_by_tier,
        "model_bytes": problem.model_bytes,
    }
