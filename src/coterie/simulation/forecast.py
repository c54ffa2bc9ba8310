"""How many groups, and how often to average: forecasts by a pilot, and the choice among them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from coterie.core.arrays import Floats
from coterie.core.errors import GroupingError
from coterie.simulation.progress import Fit, History, Round, farther, worth

PILOT = (1, 5, 1)  # steps before each of the first global means: alone, astray, and alone again
GROUPS = (1, 2, 5, 10, 20)  # K to try, where it is open
TAU1 = (1, 2, 3, 4, 5, 7, 10, 15, 20, 30, 50)
TAU2 = (1, 2, 3, 5, 10, 20)
USUAL = 5  # local steps of a round of FedAvg, whose end is the target unless another is given
AGAIN = 1.15  # tune again when there are so many times as many steps as then
BETTER = 0.97  # of the forecast seconds, to change the schedule
DOUBT = 1.2  # a reach may be so many times what fits best, or less by that
SHORT = 2  # which of an outlook's fits has the short reach
POWER, LEAST_POWER = 0.85, 0.6  # of the loss above its floor that errors fall with, and at least
MOST_TOLD = 5  # schedules of a run, one by one
NEAR = 0.05  # in the logarithm of that loss


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

    def rank(self) -> tuple[float, float, float, int, int]:
        """Return what to sort by: seconds with some doubt, then the loss in the end."""
        return self.seconds + self.high_s, self.seconds, self.loss, self.tau1, self.tau2


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
        losses = (self.first_loss, *(look.loss for look in self.looks))
        rounds = tuple(look.round for look in self.looks)
        found = History(self.tuning.rates, rounds, losses).fits
        best = found[0]
        doubted = [replace(best, reach=best.reach * d) for d in (DOUBT, 1 / DOUBT)]
        return [best, *doubted, *found[1:]]

    def target_loss(self, fit: Fit, power: float = POWER) -> float | None:
        """Return the loss to reach, by a fit; None: what FedAvg ends with."""
        if self.tuning.target_accuracy:
            return loss_at(self.tuning.target_accuracy, self.looks, fit.curve.floor, power)
        return self.tuning.target_loss or None

    def target(self, fit: Fit, power: float = POWER) -> float:
        """Return the progress to reach, from the start of the run."""
        loss = self.target_loss(fit, power)
        if loss is not None:
            return fit.curve.progress(loss)
        rates = self.tuning.rates
        T = len(rates)
        rounds = [Round(t, min(USUAL, T - t), 1) for t in range(0, T, USUAL)]
        return float(sum(r.worth(rates, fit.reach) for r in rounds))

    def so_far(self, fit: Fit) -> float:
        """Return the progress made, by a fit."""
        return float(sum(look.round.worth(self.tuning.rates, fit.reach) for look in self.looks))

    def forecasts(self, options: Sequence[Option]) -> list[Forecast]:
        """Return the forecast of every schedule with every option, the soonest first.

        Soonest with some doubt: both if steps count as they seem to, and if they count less.
        """
        rests = self._rests(self.fits[:3])
        found = [
            self._ranged(rests, option, tau1, tau2)
            for option in options
            for tau1 in self.tuning.tau1
            for tau2 in (self.tuning.tau2 if option.num_groups > 1 else (1,))
        ]
        if self.tuning.target_accuracy and all(math.isinf(f.seconds) for f in found):
            # Accuracy is guessed, and may well be reached: then what is soon elsewhere is better.
            usual = replace(self, tuning=replace(self.tuning, target_accuracy=0.0))
            ranked = usual.forecasts(options)
            order = {(f.option, f.tau1, f.tau2): at for at, f in enumerate(ranked)}
            return sorted(found, key=lambda f: order[f.option, f.tau1, f.tau2])
        return sorted(found, key=Forecast.rank)

    def of(self, option: Option, tau1: int, tau2: int) -> Forecast:
        """Return the forecast of one schedule, its range by all that fits."""
        return self._ranged(self._rests(self.fits), option, tau1, tau2)

    def _ranged(self, rests: "Sequence[_Rest]", option: Option, tau1: int, tau2: int) -> Forecast:
        best, *others = (self._forecast(rest, option, tau1, tau2) for rest in rests)
        seconds = [best.seconds, *(other.seconds for other in others)]
        return replace(best, low_s=min(seconds), high_s=max(seconds))

    def accuracy(self, forecast: Forecast) -> float | None:
        """Return the accuracy in the end, where that is what a run is tuned for."""
        if not self.tuning.target_accuracy:
            return None
        return accuracy_at(forecast.loss, self.looks, self.fits[0].curve.floor)

    def beyond_s(self, forecast: Forecast) -> float:
        """Return a forecast's seconds, or what they would be if steps went on after T."""
        if math.isfinite(forecast.seconds):
            return forecast.seconds
        (rest,) = self._rests(self.fits[:1])
        option, tau1, tau2 = forecast.option, forecast.tau1, forecast.tau2
        return rest.beyond(tau1, tau2, option.ratio) * self._round_s(option, tau1, tau2)

    def _round_s(self, option: Option, tau1: int, tau2: int) -> float:
        return self.global_s + (tau2 - 1) * option.mean_s + tau1 * tau2 * self.step_s

    def _rests(self, fits: Sequence[Fit]) -> "list[_Rest]":
        """What is left by every fit; the target is farther off by that with the short reach."""
        powers = [LEAST_POWER if n == SHORT else POWER for n in range(len(fits))]
        return [
            _Rest(self.tuning.rates, self.t, fit, self.so_far(fit), self.target(fit, power))
            for fit, power in zip(fits, powers, strict=True)
        ]

    def _forecast(self, rest: "_Rest", option: Option, tau1: int, tau2: int) -> Forecast:
        rounds, made = rest.rounds(tau1, tau2, option.ratio)
        reached = made >= rest.target
        round_s = self._round_s(option, tau1, tau2)
        round_bytes = self.global_bytes + (tau2 - 1) * option.mean_bytes
        return Forecast(
            option,
            tau1,
            tau2,
            rounds * round_s if reached else math.inf,
            rounds * tau1 * tau2 if reached else math.inf,
            rounds * round_bytes,
            rest.fit.curve.loss(made),
        )


@dataclass(frozen=True, eq=False)
class _Rest:
    """What is left of a run after a step, by a fit: progress made, and to make."""

    rates: Floats
    start: int
    fit: Fit
    made: float
    target: float
    parts: dict[int, list[float]] = field(default_factory=dict)  # of local steps, by tau1

    def rounds(self, tau1: int, tau2: int, ratio: float) -> tuple[float, float]:
        """Return how many rounds the target takes, and the progress with all steps that are left.

        The round that reaches it counts in part, and half a round more: it is seen at an end.
        """
        reach = self.fit.reach * farther(ratio)
        parts, made, rounds = self._local(tau1), self.made, 0.0
        for at in range(0, len(parts), tau2):
            gained = 0.0
            for part in parts[at : at + tau2]:
                gained += part * math.exp(-((gained / reach) ** 2))
            if made < self.target:
                rounds += 1.0 if made + gained < self.target else (self.target - made) / gained
            made += gained
        return rounds + 0.5 if rounds else 0.0, made

    def beyond(self, tau1: int, tau2: int, ratio: float) -> float:
        """Return how many rounds the target takes if steps go on after the last, if ever."""
        last = self.rates[-1] * (self.rates[-1] / self.rates[-2]) ** np.arange(
            1, 2 * len(self.rates)
        )
        rounds, made = replace(self, rates=np.append(self.rates, last), parts={}).rounds(
            tau1, tau2, ratio
        )
        return rounds if made >= self.target else math.inf

    def _local(self, tau1: int) -> list[float]:
        """Return the worth of every tau1 steps that are left, of the last ones too."""
        if tau1 not in self.parts:
            rates = self.rates[self.start :]
            padded = np.append(rates, np.zeros(-len(rates) % tau1)).reshape(-1, tau1)
            self.parts[tau1] = [float(gained) for gained in worth(padded.T, self.fit.reach)]
        return self.parts[tau1]


def doubt(first_loss: float, looks: Sequence[Look]) -> str:
    """Say why forecasts by a pilot are not to be trusted, if they are not.

    >>> doubt(2.0, [Look(Round(0, 1, 1), 3.8, 0.1), Look(Round(1, 5, 1), 4.5, 0.1)])
    'the loss rose in the pilot, from 2 to 4.5: forecasts mean little; lower train.lr'
    """
    if looks[-1].loss <= first_loss:
        return ""
    rose = f"the loss rose in the pilot, from {first_loss:.3g} to {looks[-1].loss:.3g}"
    return f"{rose}: forecasts mean little; lower train.lr"


def loss_at(accuracy: float, looks: Sequence[Look], floor: float, power: float = POWER) -> float:
    """Guess the loss at which a run will have an accuracy.

    Errors fall with a power of the loss above its floor, from where the run is; looks at about the
    loss of the last one count, so that near the target little is left to guess.

    >>> looks = [Look(Round(0, 1, 1), 2.0, 0.6), Look(Round(1, 1, 1), 1.0, 0.8)]
    >>> round(loss_at(0.8, looks, 0.3), 3), round(loss_at(0.9, looks, 0.3), 3)
    (1.0, 0.61)
    """
    if accuracy <= looks[-1].accuracy:
        return looks[-1].loss
    start = _errors_from(looks, floor, power)
    return floor + math.exp((math.log(max(1 - accuracy, 1e-9)) - start) / power)


def accuracy_at(loss: float, looks: Sequence[Look], floor: float, power: float = POWER) -> float:
    """Guess the accuracy that a run will have at a loss, in the same way.

    >>> looks = [Look(Round(0, 1, 1), 2.0, 0.6), Look(Round(1, 1, 1), 1.0, 0.8)]
    >>> round(accuracy_at(1.0, looks, 0.3), 3), round(accuracy_at(0.61, looks, 0.3), 3)
    (0.8, 0.9)
    """
    start = _errors_from(looks, floor, power)
    return max(0.0, 1 - math.exp(start + power * math.log(max(loss - floor, 1e-9))))


def _errors_from(looks: Sequence[Look], floor: float, power: float) -> float:
    """Return the logarithm of the errors at a loss of 1 above the floor."""
    above = np.log([max(look.loss - floor, 1e-9) for look in looks])
    errors = np.log([max(1 - look.accuracy, 1e-9) for look in looks])
    weights = np.exp(-np.square((above - above[-1]) / NEAR))
    return float(np.average(errors - power * above, weights=weights))


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
