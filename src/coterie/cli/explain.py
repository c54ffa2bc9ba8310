"""`coterie plan --explain`: how many groups and how often to average, and why."""

import json
import math
from pathlib import Path
from typing import Any

from coterie.cli.commands import echo, loading
from coterie.cli.pages import print_page, write_files
from coterie.config.settings import Config
from coterie.preview.data import title_of
from coterie.preview.schedule import Explained, explain
from coterie.render.page.explain import explain_page
from coterie.render.page.html import Table, page_files
from coterie.simulation.forecast import Forecast

HEAD = "", "groups", "tau1", "tau2", "round\ns", "target at\ns", "from - to\ns", "steps", "GByte"


def explain_plan(name: str, config: Config, path: Path | None, as_json: bool) -> None:
    """Run the pilot, print what it leads to and why, and draw it."""
    with loading(name) as progress:
        found = explain(config, progress)
        progress("drawing", 0, 0)
        page = explain_page(found, _table(found), _why(found))
        files = page_files(page, path)
    if as_json:
        echo(json.dumps(_plain(found), indent=1))
    else:
        print_page(page, wrap="")
    write_files(files, err=as_json)


def _table(found: Explained) -> Table:
    outlook = found.choice.outlook
    rows = [_row(found, forecast, name) for forecast, name in found.runners_up()]
    title = (
        f"{title_of(found.config)}: {found.prepared.problem.fleet.n:,} nodes, "
        f"{found.prepared.problem.steps} steps, to {outlook.tuning.target}"
    )
    foot = "target at: simulated seconds from the start, the pilot included; -: not in these steps"
    if math.isfinite(outlook.tuning.max_bytes):
        foot += f"\n*: beyond algorithm.max_gbytes = {outlook.tuning.max_bytes / 1e9:g}"
    ends = "accuracy in\nthe end, %" if outlook.tuning.target_accuracy else "loss in\nthe end"
    return Table(title, (*HEAD, ends), rows, foot)


def _row(found: Explained, f: Forecast, name: str) -> list[str]:
    outlook = found.choice.outlook
    ranged = outlook.of(f.option, f.tau1, f.tau2)
    ends = [_number(found.pilot_s + s) for s in (ranged.low_s, ranged.high_s)]
    accuracy = f.accuracy
    round_s = outlook.global_s + (f.tau2 - 1) * f.option.mean_s + f.tau1 * f.tau2 * outlook.step_s
    return [
        name,
        str(f.option.num_groups),
        str(f.tau1),
        str(f.tau2),
        f"{round_s:.3g}",
        _number(found.total_s(f)),
        " - ".join(ends),
        _number(outlook.t + f.steps, 0),
        f"{found.gbytes(f):.3g}{'*' * (1e9 * found.gbytes(f) > outlook.tuning.max_bytes)}",
        f"{f.loss:.3g}" if accuracy is None else f"{100 * accuracy:.1f}",
    ]


def _number(value: float, digits: int = 3) -> str:
    if not math.isfinite(value):
        return "-"
    return f"{value:.{digits}g}" if digits else f"{value:.0f}"


def _why(found: Explained) -> list[str]:
    """Say what the choice comes from."""
    outlook, c = found.choice.outlook, found.chosen
    rates = outlook.tuning.rates
    lines = [
        f"pilot: {outlook.t} steps and {len(outlook.looks)} global means, which trained too, and "
        f"what nodes showed of their data: {found.pilot_s:.3g} s, counted above",
        f"a global mean takes {1e3 * outlook.global_s:.3g} ms, a step {1e3 * outlook.step_s:.3g} ms"
        + (f", a mean of the chosen groups {1e3 * c.option.mean_s:.3g} ms" * (c.tau2 > 1)),
        f"of a second step without a mean {100 * found.counts(rates[outlook.t]):.0f}% counts now, "
        f"and {100 * found.counts(rates[-1]):.0f}% of the last one: rates fall, so that tau1 may "
        "grow",
    ]
    if c.option.num_groups > 1:
        lines.append(
            f"the chosen groups' gradients are {100 * c.option.ratio:.2g}% as far from everyone's "
            "as those of nodes alone"
        )
    if not math.isfinite(c.seconds):
        sure = "is" if math.isinf(c.low_s) else "may"
        lines.append(
            f"{outlook.tuning.target} {sure} not {'be ' * (sure == 'may')}reached in {len(rates)} "
            f"steps by what is chosen, which is forecast to end with {found.ends}"
        )
        if outlook.tuning.target_accuracy:
            lines.append(
                "chosen is therefore what is soonest at the accuracy that FedAvg would end with"
            )
    lines += filter(None, [found.doubt])
    lines += [f"left out: {line}" for line in found.choice.left_out]
    retunes = outlook.tuning.again and len(outlook.tuning.tau1) * len(outlook.tuning.tau2) > 1
    if retunes:
        lines.append("a run looks again at tau1 and tau2 on its way (algorithm.retune)")
    return lines


def _plain(found: Explained) -> dict[str, Any]:
    """Return everything as plain values; null is never."""
    outlook = found.choice.outlook
    fit = outlook.fits[0]
    return {
        "target": outlook.tuning.target,
        "pilot": {
            "steps": outlook.t,
            "seconds": found.pilot_s,
            "losses": [outlook.first_loss, *(look.loss for look in outlook.looks)],
        },
        "reach": outlook.reach,
        "curve": {"floor": fit.curve.floor, "height": fit.curve.height, "scale": fit.curve.scale},
        "d_local": outlook.step_s,
        "d_global": outlook.global_s,
        "chosen": _forecast(found, found.chosen),
        "z": found.choice.groups.grouping.z.tolist(),
        "servers": found.choice.groups.grouping.servers.tolist(),
        "forecasts": [_forecast(found, f) for f in found.choice.forecasts],
        "left_out": list(found.choice.left_out),
    }


def _forecast(found: Explained, f: Forecast) -> dict[str, Any]:
    values = {
        "seconds": found.total_s(f),
        "from_s": found.pilot_s + f.low_s,
        "to_s": found.pilot_s + f.high_s,
        "steps": found.choice.outlook.t + f.steps,
    }
    return {
        "num_groups": f.option.num_groups,
        "tau1": f.tau1,
        "tau2": f.tau2,
        **{key: value if math.isfinite(value) else None for key, value in values.items()},
        "bytes": round(1e9 * found.gbytes(f)),
        "loss": f.loss,
        "accuracy": f.accuracy,
        "divergence_ratio": f.option.ratio,
        "d_group": f.option.mean_s,
    }
