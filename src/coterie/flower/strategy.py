"""GroupStrategy: group learning for Flower's Message API, as a strategy like Flower's own."""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy

from coterie.engine.update import Update
from coterie.flower import FlowerError
from coterie.flower.algorithm import Added, added, trained_of
from coterie.flower.crew import GridCrew, answer_of, numpy_of, record_of
from coterie.flower.groups import Planning, Shown, about_planning, digest
from coterie.flower.means import mean, mean_metrics, num_examples, sort_answers
from coterie.flower.messages import ARRAYS, CONFIG, Arrays, Request
from coterie.flower.roster import wait_for
from coterie.flower.rounds import Terms, overall, rounds
from coterie.flower.state import State, load_state, save_state
from coterie.grouping import NO_LIMITS, Limits
from coterie.network import Network
from coterie.preview.planfile import Plan
from coterie.preview.planfile.reading import read_plan
from coterie.simulation.algorithm import Algorithm
from coterie.simulation.schedule import Event, Schedule
from coterie.simulation.search import Search

log = logging.getLogger("coterie.flower")
Evaluate = Callable[[int, ArrayRecord], MetricRecord | None]


class GroupStrategy(Strategy):  # type: ignore[misc]
    """Plans groups of the connected nodes, and trains each group's own model between global means.

    A round of `start` is tau1 * tau2 local steps: tau2 - 1 means of every group and a global one.
    The first step of the first round ends with a global mean, at which the groups are planned, on
    what the nodes show: label counts or sketches of their gradients. With `plan`, a plan file or
    what `read_plan` returned, they are taken from there, and so are tau1 and tau2.

    `network` is a CSV file, "measured", a coterie Network, or None: only data count. The state is
    saved in `state_dir` after every mean; `start` goes on from it. See docs/howto/flower.md.

    `algorithm` is what is added to SGD and means, by name or import path with its `options`, or as
    a value. `trained` names the arrays of the model that it is about; by default all that are
    floating-point numbers.
    """

    def __init__(
        self,
        num_groups: int = 2,
        tau1: int = 1,
        tau2: int = 5,
        *,
        evidence: Shown = "labels",
        grouping: str = "coterie",
        alpha_iid: float = 1.0,
        alpha_comm: float = 1.0,
        plan: Plan | Path | str | None = None,
        network: Network | Path | str | None = None,
        limits: Limits = NO_LIMITS,
        min_nodes: int = 2,
        min_per_group: int = 1,
        patience: int = 3,
        wait_s: float = 120.0,
        poll_s: float = 0.5,
        state_dir: Path | str | None = None,
        evaluate: bool = False,
        sketch_size: int = 256,
        seed: int = 0,
        algorithm: str | Algorithm | Update = "fedavg",
        options: Mapping[str, Any] | None = None,
        trained: Sequence[str] = (),
    ) -> None:
        """Take who is grouped, how, and who is waited for; wrong values are refused here."""
        at_least = {
            "num_groups": num_groups,
            "tau1": tau1,
            "tau2": tau2,
            "min_nodes": min_nodes,
            "min_per_group": min_per_group,
            "patience": patience,
            "sketch_size": sketch_size,
        }
        for name, value in at_least.items():
            if value < 1:
                raise FlowerError(f"{name} must be >= 1, got {value}")
        if evidence not in ("labels", "sketch"):
            raise FlowerError(f"evidence must be 'labels' or 'sketch', got {evidence!r}")
        search = Search(grouping, alpha_iid, alpha_comm)
        search.planner()  # an unknown name is an error before anybody trains
        self.added = added(algorithm, options, tuple(trained))
        self.plan = read_plan(Path(plan)) if isinstance(plan, str | Path) else plan
        if self.plan is not None:
            tau1, tau2, num_groups = self.plan.tau1, self.plan.tau2, len(self.plan.servers)
            min_nodes = len(self.plan.nodes)
        self.schedule = Schedule(tau1, tau2)
        self.planning = Planning(num_groups, evidence, search, network, limits, seed, sketch_size)
        self.min_nodes, self.min_per_group, self.patience = min_nodes, min_per_group, patience
        self.wait_s, self.poll_s, self.evaluate = wait_s, poll_s, evaluate
        self.state_dir = None if state_dir is None else Path(state_dir)
        self.state: State | None = None
        self._sent: Arrays = {}  # by configure_train

    def summary(self) -> None:
        """Log what was asked for."""
        c = self.planning
        by = "a plan file" if self.plan else f"{c.search.method} on {c.evidence}"
        taus = self.schedule.tau1, self.schedule.tau2
        log.info("%d groups by %s, tau1 %d, tau2 %d", c.num_groups, by, *taus)
        if not self.added.plain:
            log.info("the algorithm is %s", self.added.name)

    def start(
        self,
        grid: Grid,
        initial_arrays: ArrayRecord,
        num_rounds: int = 3,
        timeout: float = 600,
        train_config: ConfigRecord | None = None,
        evaluate_config: ConfigRecord | None = None,
        evaluate_fn: Evaluate | None = None,
    ) -> Result:
        """Run so many global rounds, or what is left of them, and return what Flower's do."""
        self.summary()
        crew = GridCrew(grid, self.poll_s)
        first = numpy_of(initial_arrays)
        if not self.added.plain:
            trained_of(self.added, first)  # refused before anybody is waited for
        terms = self.terms(num_rounds, timeout, dict(train_config or {}))
        about = self.about(terms)
        state = load_state(self.state_dir, about, State(0, (first,)), self.schedule)
        result, began = Result(), state.t == 0
        if not began:
            log.info("going on from %s after step %d of %d", self.state_dir, state.t, terms.steps)
        result.arrays = record_of(overall(state))
        if evaluate_fn and began:
            _keep(result.evaluate_metrics_serverapp, 0, evaluate_fn(0, initial_arrays))
        self._wait(crew, state)
        for row in state.rows:
            _tell(result, row)
        for now in rounds(crew, terms, state):
            self.state = state = now
            row = now.rows[-1]
            if self.state_dir is not None:
                save_state(self.state_dir, state, about)
            log.info("step %d of %d, %s mean: %s", state.t, terms.steps, row["event"], _said(row))
            _tell(result, row)
            if self.schedule.event(state.t) is Event.GLOBAL:  # else groups were planned
                arrays = record_of(state.models[0])
                result.arrays = arrays
                if self.evaluate:
                    said = self._evaluate(crew, terms, state, dict(evaluate_config or {}))
                    _keep(result.evaluate_metrics_clientapp, row["round"], said)
                if evaluate_fn:
                    score = evaluate_fn(row["round"], arrays)
                    _keep(result.evaluate_metrics_serverapp, row["round"], score)
        return result

    def terms(self, num_rounds: int, timeout_s: float, config: Mapping[str, Any]) -> Terms:
        """Return how a run of so many global rounds goes."""
        steps, by = num_rounds * self.schedule.cycle, self.plan or self.planning
        least, patience = self.min_per_group, self.patience
        return Terms(self.schedule, steps, by, least, patience, timeout_s, config, added=self.added)

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """One message for every connected node; `start` sends its own, group by group."""
        if not self.added.plain:
            raise FlowerError(f"{self.added.name} needs the messages of start; call that")
        record = RecordDict({ARRAYS: arrays, CONFIG: config})
        self._sent = numpy_of(arrays)
        return [Message(record, dst_node_id=i, message_type="train") for i in grid.get_node_ids()]

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Mean of the replies that are whole; the others are named in the log."""
        answers = [answer for m in replies if (answer := answer_of(m)) is not None]
        named = {a.node_id: str(a.node_id) for a in answers}
        sent = self._sent or next((a.arrays for a in answers if a.arrays), {})
        heard = sort_answers(named, answers, dict.fromkeys(named.values(), sent))
        used = list(heard.used.values())
        if not used:
            return None, None
        models = [a.arrays for a in used if a.arrays]
        return record_of(mean(models, num_examples(used))), MetricRecord(mean_metrics(used))

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """One message for every connected node if nodes evaluate, else none."""
        record = RecordDict({ARRAYS: arrays, CONFIG: config})
        ids = grid.get_node_ids() if self.evaluate else []
        return [Message(record, dst_node_id=i, message_type="evaluate") for i in ids]

    def aggregate_evaluate(
        self, server_round: int, replies: Iterable[Message]
    ) -> MetricRecord | None:
        """Weighted means of what the nodes measured."""
        answers = [answer for m in replies if (answer := answer_of(m)) is not None]
        heard = sort_answers({a.node_id: str(a.node_id) for a in answers}, answers, None)
        return MetricRecord(mean_metrics(list(heard.used.values()))) if heard.used else None

    def about(self, terms: Terms) -> dict[str, Any]:
        """Return what a run is: it is gone on with by the same alone."""
        plan, sent = self.plan, terms.config
        groups = [] if plan is None else [(node.node, node.group) for node in plan.nodes]
        by = about_planning(self.planning) if plan is None else {"plan": digest(groups)}
        taus = {"tau1": self.schedule.tau1, "tau2": self.schedule.tau2}
        own = {} if self.added.plain else _about_algorithm(self.added)
        return {**taus, **by, **own, **{f"train_config.{k}": sent[k] for k in sent}}

    def _wait(self, crew: GridCrew, state: State) -> None:
        """Wait for the nodes; a run that is gone on with needs no more than its groups do."""
        how = "raise wait_s, or lower min_nodes" if self.plan is None else "raise wait_s"
        try:
            wait_for(crew, self.min_nodes, self.wait_s, way_out=how)
        except FlowerError as error:
            groups = state.groups or ()
            least = sum(min(self.min_per_group, len(names)) for names in groups)
            if not groups or len(crew.nodes()) < least:
                raise
            log.warning("going on without all of the nodes: %s", error)

    def _evaluate(
        self, crew: GridCrew, terms: Terms, state: State, config: dict[str, Any]
    ) -> MetricRecord | None:
        asked = {i: Request(state.models[0], config) for i in crew.nodes()}
        answers = crew.ask("evaluate", asked, terms.timeout_s)
        heard = sort_answers({i: str(i) for i in asked}, answers, None)
        return MetricRecord(mean_metrics(list(heard.used.values()))) if heard.used else None


def _about_algorithm(added: Added) -> dict[str, Any]:
    return {"algorithm": added.name, "trained": list(added.trained)}


def _keep(where: dict[int, MetricRecord], round_: int, record: MetricRecord | None) -> None:
    if record is not None:
        where[round_] = record


def _tell(result: Result, row: Mapping[str, Any]) -> None:
    """Add a row to Flower's result: a round's counts are summed up, its losses are the last."""
    counts: Sequence[str] = ("late", "failed", "rejected", "held")
    before = result.train_metrics_clientapp.get(row["round"], {})
    found = {key: int(before.get(key, 0)) + int(row[key]) for key in counts}
    losses = {k: v for k, v in row.items() if k.startswith("train.")}
    result.train_metrics_clientapp[row["round"]] = MetricRecord(
        {"counted": int(row["counted"]), **found, **losses}
    )


def _said(row: Mapping[str, Any]) -> str:
    faults = [f"{row[f]} {f}" for f in ("late", "failed", "rejected") if row[f]]
    return ", ".join([f"{row['counted']} nodes counted in {row['groups']} groups", *faults])
