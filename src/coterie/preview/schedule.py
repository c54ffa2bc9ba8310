"""Why so many groups and steps: what a pilot shows, and what every other choice would take."""

import math
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from coterie.config.factories import load_dataset
from coterie.config.files import expand, parse_override, to_toml
from coterie.config.prepare import Prepared, prepare
from coterie.config.settings import Config
from coterie.core.types import Progress
from coterie.preview.plan import planned
from coterie.simulation.forecast import Forecast, doubt
from coterie.simulation.loop import piloted
from coterie.simulation.policies.pilot import Choice, expected
from coterie.simulation.state import State

OPEN = ("num_groups", "tau1", "tau2")
FEDAVG, PAPER = (1, 5, 1), (5, 1, 5)
Schedule3 = tuple[int, int, int]  # K, tau1, tau2


@dataclass(frozen=True, eq=False)
class Explained:
    """A pilot that was run, and the choice that it led to."""

    config: Config
    prepared: Prepared
    state: State
    choice: Choice

    @property
    def chosen(self) -> Forecast:
        """What a run goes on with."""
        return self.choice.chosen

    @property
    def pilot_s(self) -> float:
        """Simulated seconds that the pilot took."""
        return self.state.clock.seconds

    @property
    def doubt(self) -> str:
        """Why forecasts are not to be trusted, if they are not."""
        return doubt(self.choice.outlook.first_loss, self.choice.outlook.looks)

    @property
    def ends(self) -> str:
        """What the chosen one is forecast to end with."""
        return expected(self.choice, self.pilot_s).ends

    def total_s(self, forecast: Forecast) -> float:
        """Seconds from the start of the run."""
        return self.pilot_s + forecast.seconds

    def best(self, fits: Callable[[Forecast], bool] = lambda _: True) -> Forecast | None:
        """Return the soonest of some forecasts."""
        return next((f for f in self.choice.forecasts if fits(f)), None)

    def at(self, schedule: Schedule3) -> Forecast | None:
        """Return the soonest forecast of one schedule, whichever groups."""
        return self.best(lambda f: (f.option.num_groups, f.tau1, f.tau2) == schedule)

    def gbytes(self, forecast: Forecast) -> float:
        """GByte over all links until the target, the pilot's included."""
        return (self.choice.spent_bytes + forecast.bytes) / 1e9

    def runners_up(self) -> list[tuple[Forecast, str]]:
        """The chosen one, the best with every other number of groups, FedAvg and the paper's."""
        c = self.chosen
        found = [(c, "chosen")]
        for K in sorted({f.option.num_groups for f in self.choice.forecasts}):
            best = self.best(lambda f, K=K: f.option.num_groups == K)  # type: ignore[misc]
            if best is not None and K != c.option.num_groups:
                found.append((best, f"best with {K} group{'s' * (K > 1)}"))
        second = self.best(lambda f: (f.tau1, f.tau2) != (c.tau1, c.tau2) and f.option == c.option)
        if second is not None:
            found.append((second, "next best schedule"))
        usual = [(FEDAVG, "FedAvg, tau = 5"), (PAPER, "the paper's")]
        found += [(f, name) for key, name in usual if (f := self.at(key)) is not None]
        return sorted(found, key=lambda pair: (pair[1] != "chosen", *pair[0].rank()))

    def counts(self, rate: float) -> float:
        """Return the part of its rate that a second step without a mean counts."""
        reach = self.choice.outlook.reach
        return math.exp(-((rate / reach) ** 2))


def opened(configs: Sequence[Config], overrides: Sequence[str] = ()) -> Config:
    """Return the run that is planned, with more settings; all is open if nothing is."""
    config, _ = planned(configs)
    content = tomllib.loads(to_toml(config))
    told = dict(map(parse_override, overrides))
    given = {key: told.get(f"algorithm.{key}", getattr(config.algorithm, key)) for key in OPEN}
    every = [] if "auto" in given.values() else [f"algorithm.{key}=auto" for key in OPEN]
    (found,) = expand(content, [*every, *overrides])
    return found


def explain(config: Config, progress: Progress = lambda what, done, of: None) -> Explained:
    """Run the pilot of a config with something open."""
    dataset = load_dataset(config, progress)
    progress("preparing", 0, 0)
    ready = prepare(config, dataset)
    progress("pilot, and groups for every number of them", 0, 0)
    return Explained(config, ready, *piloted(ready.problem))
