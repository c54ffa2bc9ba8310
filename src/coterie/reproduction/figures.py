"""The figures: what the paper says of each, and what was measured."""

from collections.abc import Sequence
from itertools import pairwise
from statistics import mean

from coterie.record import RecordedRun
from coterie.reproduction.runs import (
    FEDAVG,
    HIERFAVG,
    OURS,
    THEIRS,
    Mean,
    Runs,
    accuracy,
    accuracy_at,
    mean_of,
    speed_up,
    targets,
    times,
)
from coterie.reproduction.tables import Table, holds, percent
from coterie.retime import retime
from coterie.table import number

POINTS = 0.005  # of accuracy; what is less than half a point apart is level
Named = dict[str, Mean | None]


def accuracies(runs: Runs) -> list[Table]:
    """Accuracy by time: FedAvg-IC above FedAvg by up to 17.4 points, above HierFAVG by 22.2."""
    by_time = Table(
        "Accuracy (%) when FedAvg has taken its steps",
        ("data", *runs.labels, "FedAvg-IC - FedAvg", "FedAvg-IC - HierFAVG", "verdict"),
        foot="The paper: FedAvg-IC is above both on all four datasets, by up to 17.4 points over "
        "FedAvg (CelebA) and 22.2 over HierFAVG (MNIST-F). FedAvg-IC grouped as the authors do.",
    )
    by_step = Table(
        "Accuracy (%) after as many epochs",
        ("data", *runs.labels, "verdict"),
        foot="The paper: FedAvg-IC and FedAvg-C are above the others.",
    )
    for data, some in runs.each("data.name"):
        ends = {seed: run.summary["seconds"] for seed, run in some.of(FEDAVG).seeds().items()}
        then = {name: _at(some.of(name), ends) for name in runs.labels}
        over = _gap(then, THEIRS, FEDAVG), _gap(then, THEIRS, HIERFAVG)
        ahead = None if None in over else all(gap is not None and gap > 0 for gap in over)
        cells = [percent(then[name]) for name in runs.labels]
        by_time.rows.append([data, *cells, *map(_points, over), holds(ahead)])
        final = {name: some.of(name).average(accuracy) for name in runs.labels}
        best = _best(final, ("fedavg-c (reference)", THEIRS), (FEDAVG, HIERFAVG))
        by_step.rows.append([data, *(percent(final[n]) for n in runs.labels), best])
    return [by_time, by_step]


def diversities(runs: Runs) -> list[Table]:
    """Six kinds of skew: who is worse than FedAvg-IC, and where."""
    found = Table(
        "Accuracy (%) when FedAvg has taken its steps, by class diversity",
        ("data", "diversity", *runs.labels, "the paper says", "verdict"),
        foot="Behind: by more than half a point. FedAvg-IC grouped as the authors do.",
    )
    said = {
        "Dtt": (FEDAVG, HIERFAVG),
        "Dtq": (FEDAVG, HIERFAVG),
        "Dth": (FEDAVG,),
        "Dqq": (HIERFAVG,),
        "Dqh": (),
        "Dhh": (),
    }
    for data, at_data in runs.each("data.name"):
        for kind, some in at_data.each("partition.kind"):
            ends = {seed: run.summary["seconds"] for seed, run in some.of(FEDAVG).seeds().items()}
            then = {name: _at(some.of(name), ends) for name in runs.labels}
            gaps = {name: _gap(then, THEIRS, name) for name in (FEDAVG, HIERFAVG)}
            behind = [name for name, gap in gaps.items() if gap is not None and gap > POINTS]
            ahead = [name for name, gap in gaps.items() if gap is not None and gap < -POINTS]
            right = None if None in gaps.values() else set(said[kind]) <= {*behind} and not ahead
            but = f"{', '.join(behind) or 'nobody'} behind, {', '.join(ahead) or 'nobody'} ahead"
            told = f"{' and '.join(said[kind]) or 'nobody'} behind, nobody ahead"
            cells = [percent(then[name]) for name in runs.labels]
            found.rows.append([data, kind, *cells, told, holds(right, but)])
    return [found]


def costs(runs: Runs) -> list[Table]:
    """Cost analysis: FedAvg-IC has less divergence and less transfer time than HierFAVG."""
    found = Table(
        "What groups cost at the planning",
        ("grouping", "alpha_comm", "Delta", "d_group ms", "less Delta", "less d_group"),
        foot="The paper: FedAvg-IC costs less than HierFAVG in both, on a front of its own. "
        "Verdicts are against HierFAVG, by transfer seconds.",
    )
    edge = runs.of(HIERFAVG)
    least = edge.average(_divergence), edge.average(_group_s)
    for name in runs.labels:
        for weight, some in runs.of(name).each("algorithm.alpha_comm"):
            cost = some.average(_divergence), some.average(_group_s)
            told = name.startswith("fedavg-ic")
            less = [
                (holds(mine.value < theirs.value) if mine and theirs else holds(None))
                if told
                else ""
                for mine, theirs in zip(cost, least, strict=True)
            ]
            row = [_figure(cost[0]), _figure(cost[1], 1e3)]
            found.rows.append([name, f"{weight:g}", *row, *less])
    return [found]


def combined(runs: Runs) -> list[Table]:
    """Combined aggregation: transfers take less time, global ones above all."""
    found = Table(
        "Seconds of a mean with and without combined aggregation",
        ("algorithm", "mean", "none", "all", "drop", "verdict"),
        foot="The paper: it drops, rapidly for the global mean.",
    )
    for name in runs.labels:
        for what, key in (("group", "d_group"), ("global", "d_global")):
            none, every = (
                runs.of(name)
                .where(network__combine=how)
                .average(lambda run, key=key: run.summary[key])  # type: ignore[misc]
                for how in ("none", "all")
            )
            if none is None or every is None:
                continue
            drop = 1 - every.value / none.value
            cells = [number(none.value), number(every.value), f"{drop:.0%}"]
            found.rows.append([name, what, *cells, holds(drop > 0.01, _change(drop))])
    return [found]


def learning_steps(runs: Runs) -> list[Table]:
    """Learning steps: fewer local steps between means are more accurate; FedAvg-IC loses least."""
    found = Table(
        "Accuracy (%) after as many epochs, by learning steps",
        ("algorithm", "5 or (1, 5)", "25 or (5, 5)", "loss in points", "verdict"),
        foot="The paper: everybody loses, and FedAvg-IC least.",
    )
    few, many = (runs.where(algorithm__tau1=tau1) for tau1 in (1, 5))
    losses = {name: _loss(few.of(name), many.of(name)) for name in runs.labels}
    known = [loss for loss in losses.values() if loss is not None]
    for name, loss in losses.items():
        means = few.of(name).average(accuracy), many.of(name).average(accuracy)
        judged = holds(None if loss is None else loss > 0, "it loses nothing")
        if name == THEIRS and loss is not None:
            judged = holds(loss == min(known), f"{_least(losses)} loses less")
        found.rows.append([name, *map(percent, means), _points(loss), judged])
    return [found]


def speeds(runs: Runs) -> list[Table]:
    """Links, processors and topology: faster ones reach FedAvg's accuracy sooner."""
    names = runs.labels
    found = Table(
        "Seconds to FedAvg's final accuracy by links, processors and topology",
        ("topology", "MByte/s", "GFLOPS", *names, "FedAvg-IC's speed-up"),
        foot="The paper: sooner with faster links, with faster processors, and on the jellyfish. "
        "'fedavg-ic' is with our planner, its groups planned for 100 MByte/s.",
    )
    took: dict[tuple[str, int, int], Mean | None] = {}
    for topology, some in runs.each("network.topology"):
        wanted = targets(some)
        for link in (10, 100):
            for gflops in (5, 250):
                clock = [f"network.link_mbytes_per_s={link}", f"compute.gflops={gflops}"]
                timed = Runs(tuple(retime(run, clock) for run in some.members))
                each = {name: times(timed, name, wanted) for name in names}
                means = {name: _reached(each[name]) for name in names}
                took[topology, link, gflops] = means.get(THEIRS)
                ratio = speed_up(each.get(FEDAVG, {}), each.get(OURS, {}))
                cells = [_figure(m) for m in means.values()]
                told = "-" if ratio is None else f"{ratio:.2f}x"
                found.rows.append([topology, f"{link}", f"{gflops}", *cells, told])
    claims = Table("What the paper says of them", ("claim", "verdict"))
    for claim, faster, slower in (
        ("100 MByte/s is faster than 10", (100, 5), (10, 5)),
        ("250 GFLOPS are faster than 5", (100, 250), (100, 5)),
    ):
        a, b = took.get(("fat-tree", *faster)), took.get(("fat-tree", *slower))
        claims.rows.append([claim, holds(a.value < b.value if a and b else None)])
    tree, fish = took.get(("fat-tree", 100, 5)), took.get(("jellyfish", 100, 5))
    same = holds(fish.value < tree.value if fish and tree else None, "the fat tree is faster")
    claims.rows.append(["the jellyfish is faster than the fat tree", same])
    return [found, claims]


def distributions(runs: Runs) -> list[Table]:
    """Data distributions: the more unequal the nodes, the noisier; FedAvg-IC still first."""
    found = Table(
        "Seconds to FedAvg's final accuracy, and noise, by how unequal nodes are",
        ("distribution", *runs.labels, "noise of FedAvg-IC", "FedAvg-IC is first"),
        foot="Noise: mean change of accuracy between two measurements in the second half of a run, "
        "in points. The paper: FedAvg-IC converges first, and curves get noisier. First among "
        "FedAvg, HierFAVG and FedAvg-IC grouped as the authors do.",
    )
    for spread, some in runs.each("partition.spread"):
        for sd, these in some.each("partition.sd"):
            wanted = targets(these)
            means = {name: _reached(times(these, name, wanted)) for name in runs.labels}
            noise = these.of(THEIRS).average(_noise)
            rivals = [m.value for name in (FEDAVG, HIERFAVG) if (m := means.get(name))]
            mine = means.get(THEIRS)
            first = holds(mine.value < min(rivals) if mine and rivals else None)
            cells = [_figure(m) for m in means.values()]
            told = f"{spread}, SD {sd:g}" if spread == "normal" else spread
            shown = f"{100 * noise.value:.2f}" if noise else "-"
            found.rows.append([told, *cells, shown, first])
    return [found]


def counts(runs: Runs) -> list[Table]:
    """How many groups, or nodes: no figures are printed; what was measured."""
    keys = [
        key for key in ("partition.num_nodes", "algorithm.num_groups") if len(runs.each(key)) > 1
    ] or ["algorithm.num_groups"]
    found = Table(
        "Accuracy and seconds to FedAvg's final accuracy",
        (keys[0].partition(".")[2], "algorithm", "accuracy %", "s to target", "speed-up", "Delta"),
        foot="The paper prints no figures for these.",
    )
    nodes = keys[0] == "partition.num_nodes"
    for value, some in runs.each(keys[0]):
        wanted = targets(some if nodes else runs)
        base = times(some if nodes else runs, FEDAVG, wanted)
        for name in some.labels:
            mine = times(some, name, wanted)
            ratio, took = speed_up(base, mine), _reached(mine)
            grouped = nodes or name == OURS
            found.rows.append(
                [
                    f"{value}" if grouped else "",
                    name,
                    percent(some.of(name).average(accuracy)),
                    _figure(took),
                    "-" if ratio is None else f"{ratio:.2f}x",
                    _figure(some.of(name).average(_divergence)),
                ]
            )
    return [found]


def _change(drop: float) -> str:
    return "it takes longer" if drop < -0.01 else "it takes as long"


def _at(runs: Runs, ends: dict[int, float]) -> Mean | None:
    """Mean accuracy at every seed's given time."""
    found = runs.seeds()
    return mean_of([accuracy_at(run, ends[seed]) for seed, run in found.items() if seed in ends])


def _gap(means: Named, mine: str, other: str) -> float | None:
    a, b = means.get(mine), means.get(other)
    return a.value - b.value if a and b else None


def _points(gap: float | None) -> str:
    return "-" if gap is None else f"{100 * gap:+.1f}"


def _best(means: Named, above: Sequence[str], below: Sequence[str]) -> str:
    upper = [m.value for name in above if (m := means.get(name))]
    lower = [m.value for name in below if (m := means.get(name))]
    if not upper or not lower:
        return holds(None)
    return holds(min(upper) > max(lower))


def _divergence(run: RecordedRun) -> float | None:
    found = run.summary["Delta_first"]
    return None if found is None else float(found)


def _group_s(run: RecordedRun) -> float | None:
    found = run.summary["d_group"]
    return None if found is None else float(found)


def _loss(few: Runs, many: Runs) -> float | None:
    a, b = few.average(accuracy), many.average(accuracy)
    return a.value - b.value if a and b else None


def _least(losses: dict[str, float | None]) -> str:
    known = {name: loss for name, loss in losses.items() if loss is not None}
    return min(known, key=known.__getitem__)


def _figure(value: Mean | None, unit: float = 1.0) -> str:
    return number(value.value if value else None, unit)


def _reached(found: dict[int, float | None]) -> Mean | None:
    """Mean seconds, if all seeds got there."""
    known = [s for s in found.values() if s is not None]
    return mean_of(known) if known and len(known) == len(found) else None


def _noise(run: RecordedRun) -> float | None:
    seen = [row["test_accuracy"] for row in run.rows if row["test_accuracy"] is not None]
    late = seen[len(seen) // 2 :]
    return mean(abs(b - a) for a, b in pairwise(late)) if len(late) > 1 else None
