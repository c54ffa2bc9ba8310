"""The Flower apps of the edge tier; `coterie flower up` names them in what it writes.

`edge` is the ServerApp of an edge's SuperLink, `bridge` the ClientApp by which an edge is a node of
the coordinator's SuperLink, and `coordinator` the ServerApp there.
"""

import logging
import math
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Context, Message
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

from coterie.core.errors import CoterieError
from coterie.core.files import write_json
from coterie.core.plugins import import_by_path
from coterie.flower import FlowerError
from coterie.flower.client import answer_query, answer_train, arrays_of, node_name, steps_of
from coterie.flower.crew import GridCrew
from coterie.flower.edge import (
    RESULT,
    app_log,
    coordinator_terms,
    digest_of,
    edge_name,
    said_scores,
    serve,
    settings_of,
    terms_of,
)
from coterie.flower.groups import Groups
from coterie.flower.hosts import COORDINATOR
from coterie.flower.messages import CONFIG, COUNTS, Arrays, Crew
from coterie.flower.roster import wait_for
from coterie.flower.rounds import rounds
from coterie.flower.spool import Order, Spool
from coterie.flower.state import State, load_state, save_state
from coterie.preview.planfile import Plan as PlanFile
from coterie.preview.planfile.reading import read_plan
from coterie.simulation.state import Plan

log = logging.getLogger("coterie.flower")

edge = ServerApp()
bridge = ClientApp()
coordinator = ServerApp()


@contextmanager
def _words(folder: Path, name: str) -> Iterator[None]:
    """Keep what an app says in a file of the deployment too: Flower has it for `flwr log` alone."""
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    logger, path = logging.getLogger("coterie"), folder / "logs" / app_log(name)
    logger.setLevel(logging.INFO)
    path.parent.mkdir(parents=True, exist_ok=True)
    handler = logging.FileHandler(path, encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
    logger.addHandler(handler)
    try:
        yield
    except BaseException:
        log.exception("the app of %s ends", name)
        raise
    finally:
        logger.removeHandler(handler)
        handler.close()


def _folder(context: Context) -> Path:
    return Path(str(context.run_config["coterie-folder"]))


def _settings(folder: Path, run: dict[str, Any]) -> tuple[PlanFile, float]:
    """Return the plan of the deployment, and how long to wait for a node."""
    return read_plan(folder / "plan.json"), float(run["coterie-timeout"])


@edge.main()  # type: ignore[untyped-decorator]
def _edge(grid: Grid, context: Context) -> None:
    folder, group = _folder(context), int(context.run_config["coterie-group"])
    with _words(folder, edge_name(group)):
        _serve(GridCrew(grid), folder, group, dict(context.run_config))


def _serve(crew: Crew, folder: Path, group: int, run: dict[str, Any]) -> None:
    """Wait for the group's nodes, and fill the coordinator's orders."""
    plan, timeout_s = _settings(folder, run)
    least = int(run["coterie-min-per-group"])
    try:
        wait_for(crew, len(plan.members(group)), timeout_s, way_out="raise --timeout")
    except FlowerError as error:
        log.warning("group %d goes on without all of its nodes: %s", group, error)
    spool = Spool(folder / edge_name(group) / "spool")
    serve(crew, plan, group, spool, terms_of(plan, timeout_s, least))


@bridge.query()  # type: ignore[untyped-decorator]
def _who(message: Message, context: Context) -> Message:
    folder = Path(str(context.node_config["folder"]))
    plan = read_plan(folder / "plan.json")
    group = int(node_name(context).removeprefix("edge-"))
    return answer_query(message, context, sum(node.examples for node in plan.members(group)))


@bridge.train()  # type: ignore[untyped-decorator]
def _train(message: Message, context: Context) -> Message:
    config = message.content[CONFIG]
    start, stop = steps_of(message)
    last = stop >= int(config["steps"])
    order = Order(arrays_of(message), start, stop, last, digest_of(context.run_config))
    spool = Spool(Path(str(context.node_config["folder"])) / node_name(context) / "spool")
    spool.put(order)
    filled = spool.result(order, float(config["wait"]))
    counts = {key: int(filled.about.get(key, 0)) for key in COUNTS}
    metrics = {**filled.about.get("metrics", {}), **counts}
    return answer_train(message, filled.arrays, int(filled.about["num_examples"]), metrics)


@coordinator.main()  # type: ignore[untyped-decorator]
def _coordinator(grid: Grid, context: Context) -> None:
    folder = _folder(context)
    result = folder / RESULT
    result.unlink(missing_ok=True)
    with _words(folder, COORDINATOR):
        try:
            scores = _run(GridCrew(grid), folder, dict(context.run_config))
            write_json(result, {"status": "complete", **scores})
        except Exception as error:  # also one of the app's own: somebody waits for the result
            ours = isinstance(error, CoterieError)
            said = str(error) if ours else f"{type(error).__name__}: {error}"
            with suppress(OSError):  # a disk that is full is the reason, perhaps
                write_json(result, {"status": "failed", "error": said})
            raise


def _run(crew: Crew, folder: Path, run: dict[str, Any]) -> dict[str, Any]:
    """Average across the edges, round by round, from where it was left."""
    plan, timeout_s = _settings(folder, run)
    edges = tuple(edge_name(k) for k in range(len(plan.servers)))
    terms = coordinator_terms(plan, int(run["coterie-rounds"]), timeout_s)
    first = _initial(str(run["coterie-initial"]), run)
    own = {f"config.{key}": value for key, value in settings_of(run).items()}
    about = {"edges": len(edges), "tau1": plan.tau1, "tau2": plan.tau2, **own}
    groups = Groups(tuple((name,) for name in edges))
    state = State(0, (first,), Plan(terms.schedule, groups))
    state = load_state(folder / "state", about, state, terms.schedule)
    if state.t:
        log.info("goes on from step %d of %d", state.t, terms.steps)
    wait_for(crew, len(edges), timeout_s, way_out="raise --timeout")
    for now in rounds(crew, terms, state):
        state = now
        score = _evaluate(str(run["coterie-evaluate"]), run, state.models[0])
        state.rows[-1].update(score)
        log.info("step %d of %d: %s", state.t, terms.steps, _said(state.rows[-1]))
        save_state(folder / "state", state, about)
    return {"rows": list(state.rows)}


def _initial(path: str, run: dict[str, Any]) -> Arrays:
    arrays = import_by_path(path, FlowerError)(run)
    if not isinstance(arrays, dict) or not all(isinstance(a, np.ndarray) for a in arrays.values()):
        raise FlowerError(f"{path!r} must return the first model as named NumPy arrays")
    return arrays


def _evaluate(path: str, run: dict[str, Any], arrays: Arrays) -> dict[str, float | None]:
    """Score a model as the app does; what is not finite is None, as JSON has no word for it."""
    if not path:
        return {}
    score = {
        f"test.{key}": float(value)
        for key, value in import_by_path(path, FlowerError)(run, arrays).items()
    }
    return {key: value if math.isfinite(value) else None for key, value in score.items()}


def _said(row: dict[str, Any]) -> str:
    return ", ".join([f"{row['counted']} edges counted", *said_scores(row)])
