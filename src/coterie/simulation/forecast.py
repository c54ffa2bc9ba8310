"""How many groups, and how often to average: forecasts by a pilot, and the choice among them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from coterie.core.arrays import Floats
from coterie.core.errors import GroupingError
from coterie.simulation.accuracy import DEEP, LINEAR, SCATTER, Errors, Family, errors_by
from coterie.simulation.progress import Fit, History, Round, worth
from coterie.simulation.remaining import Rest

PILOT = (1, 5, 1)  # steps before each of the first global means: alone, astray, and alone again
GROUPS = (1, 2, 5, 10, 20)  # K to try, where it is open
TAU1 = (1, 2, 3, 4, 5, 7, 10, 15, 20, 30, 50)
TAU2 = (1, 2, 3, 5, 10, 20)
USUAL = 5  # local steps of a round of FedAvg, whose end is the target unless another is given
AGAIN = 1.15  # tune again when there are so many times as many steps as then
BETTER = 0.97  # of the forecast seconds, to change the schedule
DOUBT = 1.2  # a reach may be so many times what fits best, or less by that
COUNTS = 0.5  # of a step's rate, for one farther from a mean than the pilot went
PAYS = 0.95  # of FedAvg's forecast seconds to an accuracy, to group at all
MOST_TOLD = 5  # schedules of a run, one by one


def named_target(loss: float, accuracy: float) -> str:
    """Name what a run is to reach; 0 is not given.

    >>> named_target(0.0, 0.85), named_target(0.4, 0.0), named_target(0.0, 0.0)
    ('an accuracy of 0.85', 'a loss of 0.4', "FedAvg's loss")
    """
    if accuracy:
        return f"an accuracy of {accuracy:g}"
    return f"a loss of {loss:g}" if loss else "FedAvg's loss"


def named_schedules(changes: Sequence[tuple[int, int, int]]) -> str:
    """Write step, tau1 and tau2 of schedules, some of many.

    >>> named_schedules([(7, 1, 3), (12, 7, 1)])
    '(1, 3) from step 7, (7, 1) from step 12'
    >>> named_schedules([(t, 1, t) for t in range(1, 7)])[60:]
    '(1, 4) from step 4, (1, 5) from step 5, (1, 6) from step 6'
    >>> named_schedules([(t, 1, t) for t in range(1, 9)])[40:]
    '(1, 3) from step 3, (1, 4) from step 4, 3 others, (1, 8) from step 8'
    """
    said = [f"({tau1}, {tau2}) from step {t}" for t, tau1, tau2 in changes]
    if len(said) > MOST_TOLD + 1:  # one more is told rather than counted
        between = len(said) - MOST_TOLD
        said = [*said[: MOST_TOLD - 1], f"{between} others", said[-1]]
    return ", ".join(said)


@dataclass(frozen=True)
class Tuning:
    """What is open, and what to reach: a loss, an accuracy, or FedAvg's end if neither is given."""

    rates: Floats = field(repr=False)  # [T], of steps 1, 2, ...
    num_groups: tuple[int, ...] = GROUPS
    tau1: tuple[int, ...] = TAU1
    tau2: tuple[int, ...] = TAU2
    target_loss: float = 0.0
    target_accuracy: float = 0.0
    max_bytes: float = math.inf
    again: bool = True

    @property
    def target(self) -> str:
        """Name what is to be reached."""
        return named_target(self.target_loss, self.target_accuracy)


@dataclass(frozen=True)
class Look:
    """A global mean that was looked at, and how the run came there."""

    round: Round
    loss: float
    accuracy: float


@dataclass(frozen=True)
class Option:
    """Groups that could be used: their divergence over that of nodes, and what a mean costs."""

    num_groups: int
    ratio: float
    mean_s: float
    mean_bytes: float
    at: int = 0  # which of the groupings that were searched for


@dataclass(frozen=True)
class Forecast:
    """When an option with a schedule is expected at the target, infinite for never.

    `seconds` and `bytes` count from now; `loss` is that of the last step, T.
    """

    option: Option
    tau1: int
    tau2: int
    seconds: float
    steps: float
    bytes: float
    loss: float
    low_s: float = math.nan
    high_s: float = math.nan
    accuracy: float | None = None  # of the last step, where that is the target

    def rank(self) -> tuple[float, float, float, int, int]:
        """Return what to sort by: seconds with some doubt, then the loss in the end."""
        return _sum_s(self), self.seconds, self.loss, self.tau1, self.tau2


@dataclass(frozen=True)
class Expected:
    """When a run was first expected at its target, in its own seconds; infinite for never."""

    seconds: float
    low_s: float
    high_s: float
    loss: float  # in the end
    accuracy: float | None = None  # likewise, where that is the target

    @property
    def ends(self) -> str:
        """What the run is forecast to end with."""
        about = "" if self.accuracy is None else f"an accuracy of about {self.accuracy:.3g} and "
        return f"{about}a loss of {self.loss:.3g}"


@dataclass(frozen=True)
class Tuned:
    """What a run that chooses its schedule has seen at its global means, and what it took up."""

    looks: tuple[Look, ...] = ()
    first_loss: float = math.nan
    ratio: float = 0.0
    looked_at: int = 0  # the step of the last look at other schedules
    changes: tuple[tuple[int, int, int], ...] = ()  # step, tau1 and tau2 of every schedule taken up
    expected: "Expected | None" = None  # at the first choice


@dataclass(frozen=True, eq=False)
class Outlook:
    """What can be said of the rest of a run at a global mean."""

    tuning: Tuning
    looks: tuple[Look, ...]
    first_loss: float
    step_s: float
    global_s: float
    global_bytes: float

    @property
    def t(self) -> int:
        """Steps so far."""
        return self.looks[-1].round.stop

    @cached_property
    def fits(self) -> list[Fit]:
        """What explains the losses so far, the best first, and some others for the range."""
        found = self._history(self.looks).fits
        best = found[0]
        doubted = [replace(best, reach=best.reach * d) for d in (DOUBT, 1 / DOUBT)]
        return [best, *doubted, *found[1:]]

    def _history(self, looks: tuple[Look, ...]) -> History:
        losses = (self.first_loss, *(look.loss for look in looks))
        return History(self.tuning.rates, tuple(look.round for look in looks), losses)

    @cached_property
    def family(self) -> Family:
        """What kind of model it is, by how its loss starts."""
        return DEEP if self._history(self.looks).starts_slowly else LINEAR

    @property
    def reach(self) -> float:
        """How far steps count for what is to be reached."""
        return self.reaches[0] if self.tuning.target_accuracy else self.fits[0].reach

    @cached_property
    def reaches(self) -> list[float]:
        """How far steps count for accuracy, by the pilot's losses: the best guess, and others."""
        reach = self._history(self.looks[: len(PILOT)]).fits[0].reach * self.family.reach
        return [reach, *(reach * doubt for doubt in self.family.doubt)]

    def errors(self, reach: float) -> Errors:
        """Return the law that errors fall by, for a reach."""
        u = self._history(self.looks).progress(reach)[1:]
        seen = np.array([1 - look.accuracy for look in self.looks])
        law = errors_by(u, seen, self.family.power)
        return law.likely(self.wanted, self._usual(reach) / 2, float(self.tuning.rates.sum()))

    @property
    def wanted(self) -> float:
        """The errors to reach: fewer than the target's, by as much as they scatter."""
        return (1 - self.tuning.target_accuracy) * math.exp(-SCATTER)

    def target(self, fit: Fit) -> float:
        """Return the progress to reach, from the start of the run: to a loss, or FedAvg's end."""
        if self.tuning.target_loss:
            return fit.curve.progress(self.tuning.target_loss)
        return self._usual(fit.reach)

    def _usual(self, reach: float) -> float:
        """Return the progress that FedAvg ends with."""
        rates = self.tuning.rates
        T = len(rates)
        rounds = [Round(t, min(USUAL, T - t), 1) for t in range(0, T, USUAL)]
        return float(sum(r.worth(rates, reach) for r in rounds))

    def so_far(self, reach: float) -> float:
        """Return the progress made, by a reach."""
        return float(sum(look.round.worth(self.tuning.rates, reach) for look in self.looks))

    def forecasts(self, options: Sequence[Option]) -> list[Forecast]:
        """Return the forecast of every schedule with every option, the soonest first.

        Soonest with some doubt: both if steps count as they seem to, and if they count less. To an
        accuracy, groups come first only where they save more than forecasts err by.
        """
        rests = self._rests(3)
        found = self._each(rests, options)
        if not self.tuning.target_accuracy:
            return sorted(found, key=Forecast.rank)
        ranked, tried = found, self._tried
        if all(math.isinf(f.seconds) for f in found if f.tau1 in tried):
            # Accuracy is guessed, and may well be reached: as soon as may be where FedAvg ends.
            nearer = [replace(r, target=min(r.target, self._usual(r.fit.reach))) for r in rests]
            ranked = self._each(nearer, options)
        order = sorted(
            range(len(found)), key=lambda n: (found[n].tau1 not in tried, ranked[n].rank())
        )
        alone = [n for n in order if ranked[n].option.num_groups == 1]
        if alone and _sum_s(ranked[order[0]]) >= PAYS * _sum_s(ranked[alone[0]]):
            order = [alone[0], *(n for n in order if n != alone[0])]
        return [found[n] for n in order]

    def _each(self, rests: Sequence[Rest], options: Sequence[Option]) -> list[Forecast]:
        return [
            self._ranged(rests, option, tau1, tau2)
            for option in options
            for tau1 in self.tuning.tau1
            for tau2 in (self.tuning.tau2 if option.num_groups > 1 else (1,))
        ]

    @property
    def _tried(self) -> tuple[int, ...]:
        """Local steps to an accuracy: not more than the pilot had, where nodes stray."""
        rate = self.tuning.rates[min(self.t, len(self.tuning.rates) - 1)]
        gained = float(worth([rate] * max(PILOT), self.reaches[0]))
        if math.exp(-((gained / self.reaches[0]) ** 2)) >= COUNTS:
            return self.tuning.tau1
        near = tuple(tau1 for tau1 in self.tuning.tau1 if tau1 <= max(PILOT))
        return near or self.tuning.tau1[:1]

    def of(self, option: Option, tau1: int, tau2: int) -> Forecast:
        """Return the forecast of one schedule, its range by all that fits."""
        return self._ranged(self._rests(), option, tau1, tau2)

    def _ranged(self, rests: Sequence[Rest], option: Option, tau1: int, tau2: int) -> Forecast:
        best, *others = (self._forecast(rest, option, tau1, tau2) for rest in rests)
        seconds = [best.seconds, *(other.seconds for other in others)]
        return replace(best, low_s=min(seconds), high_s=max(seconds))

    def beyond_s(self, forecast: Forecast) -> float:
        """Return a forecast's seconds, or what they would be if steps went on after T."""
        if math.isfinite(forecast.seconds):
            return forecast.seconds
        (rest,) = self._rests(1)
        option, tau1, tau2 = forecast.option, forecast.tau1, forecast.tau2
        return rest.beyond(tau1, tau2, option.ratio) * self._round_s(option, tau1, tau2)

    def _round_s(self, option: Option, tau1: int, tau2: int) -> float:
        return self.global_s + (tau2 - 1) * option.mean_s + tau1 * tau2 * self.step_s

    def _rests(self, first: int | None = None) -> list[Rest]:
        """What is left by every fit of the losses, or by every reach that accuracy may have."""
        rates = self.tuning.rates
        if not self.tuning.target_accuracy:
            fits = self.fits[:first]
            return [Rest(rates, self.t, f, self.so_far(f.reach), self.target(f)) for f in fits]
        found = []
        for reach, sign in zip(self.reaches[:first], (0, 1, -1), strict=False):
            law = self.errors(reach).doubted(sign)
            target = law.progress(self.wanted)
            by = replace(self._by_loss.fit, reach=reach)
            found.append(Rest(rates, self.t, by, law.made, target, law))
        return found

    @cached_property
    def _by_loss(self) -> Rest:
        """What is left by the losses that were seen, with no end but the last step."""
        fit = self.fits[0]
        return Rest(self.tuning.rates, self.t, fit, self.so_far(fit.reach), math.inf)

    def _forecast(self, rest: Rest, option: Option, tau1: int, tau2: int) -> Forecast:
        rounds, made = rest.rounds(tau1, tau2, option.ratio)
        reached = made >= rest.target
        round_s = self._round_s(option, tau1, tau2)
        round_bytes = self.global_bytes + (tau2 - 1) * option.mean_bytes
        accuracy = None
        if rest.law is not None:
            accuracy, rest = 1 - rest.law.at(made), self._by_loss
            _, made = rest.rounds(tau1, tau2, option.ratio)
        return Forecast(
            option,
            tau1,
            tau2,
            rounds * round_s if reached else math.inf,
            rounds * tau1 * tau2 if reached else math.inf,
            rounds * round_bytes,
            rest.fit.curve.loss(made),
            accuracy=accuracy,
        )


def _sum_s(forecast: Forecast) -> float:
    return forecast.seconds + forecast.high_s


def doubt(first_loss: float, looks: Sequence[Look]) -> str:
    """Say why forecasts by a pilot are not to be trusted, if they are not.

    >>> doubt(2.0, [Look(Round(0, 1, 1), 3.8, 0.1), Look(Round(1, 5, 1), 4.5, 0.1)])
    'the loss rose in the pilot, from 2 to 4.5: forecasts mean little; lower train.lr'
    """
    if looks[-1].loss <= first_loss:
        return ""
    rose = f"the loss rose in the pilot, from {first_loss:.3g} to {looks[-1].loss:.3g}"
    return f"{rose}: forecasts mean little; lower train.lr"


def affordable(forecasts: Sequence[Forecast], max_bytes: float, spent: float) -> list[Forecast]:
    """Return the forecasts that keep to the bytes, or say that none does."""
    kept = [f for f in forecasts if spent + f.bytes <= max_bytes]
    if not kept:
        least = spent + min(f.bytes for f in forecasts)
        raise GroupingError(
            f"no plan keeps to algorithm.max_gbytes = {max_bytes / 1e9:.4g}: the least is "
            f"{least / 1e9:.4g}, of which the pilot took {spent / 1e9:.4g}"
        )
    return kept
