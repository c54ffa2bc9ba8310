"""How errors fall with progress: what a run to a target accuracy is forecast by.

Errors are the part of the validation examples that a model gets wrong. They fall with a power of
the progress, errors ~ u^-power. Progress is counted as in progress.py, but with a reach of its own:
what nodes disagree in after local steps costs loss and no right answers, so that in a linear model
local steps count for accuracy when they no longer do for the loss. Deep models start slowly, and
the pilot looks when their nodes do not disagree yet: later, their reach is much shorter.
"""

import math
from dataclasses import dataclass, replace

import numpy as np

from coterie.core.arrays import Floats

POWER_SD = 0.4  # of a family's power: 0.2 on MNIST-F and 0.4 on MNIST-O, both linear
LIKELY_SD = 0.5  # in the logarithm of progress: where people put their targets
SCATTER = 0.03  # of the logarithm of errors, by chance of which examples are there
SPAN = 0.7  # in the logarithm of progress: what is farther back tells little
FEWEST = 1e-4  # errors that are told from none


@dataclass(frozen=True)
class Family:
    """What is known of models beforehand, from the recorded curves of benchmarks/curves."""

    power: float  # that errors fall with
    reach: float  # over that which a pilot's losses show
    doubt: tuple[float, float]  # the reach may be so many times that


LINEAR = Family(0.22, 1.6, (1.4, 0.8))
DEEP = Family(0.4, 0.2, (2.0, 0.5))


@dataclass(frozen=True)
class Errors:
    """Errors by progress: `now` at the progress `made`, falling with a power.

    >>> law = Errors(1.0, 0.4, 0.5)
    >>> law.at(4.0), law.progress(0.2), law.progress(0.5)
    (0.2, 4.0, 1.0)
    """

    made: float
    now: float
    power: float
    doubt: float = POWER_SD  # of the power, over it

    def at(self, progress: float) -> float:
        """Return the errors after so much progress."""
        return float(self.now * (progress / self.made) ** -self.power)

    def far(self, errors: float) -> float:
        """Return the logarithm of how many times the progress so few errors take; at least 0."""
        return max(math.log(self.now / max(errors, FEWEST)) / self.power, 0.0)

    def progress(self, errors: float) -> float:
        """Return the progress that so few errors take; what is there is reached."""
        return self.made * math.exp(min(self.far(errors), 700.0))

    def likely(self, errors: float, usual: float, most: float) -> "Errors":
        """Return the law with the power that a target makes likely, which somebody has set.

        A target is about the `usual` progress away, half of what FedAvg ends with, and so much is
        known beforehand. Both are weighed by how sure they are, in the logarithm of progress. A
        target which twice the power would not reach after the `most` progress says nothing:

        >>> law = Errors(1.0, 0.4, 0.5, doubt=0.5)
        >>> round(law.likely(0.2, 4.0, 10.0).power, 6), round(law.likely(0.2, 3.0, 10.0).power, 2)
        (0.5, 0.58)
        >>> law.likely(0.01, 4.0, 10.0) == law
        True
        """
        far = self.far(errors)
        if not far or self.made * math.exp(min(far / 2, 700.0)) > most:
            return self
        told, set_ = 1 / (self.doubt * far) ** 2, 1 / LIKELY_SD**2
        away = math.log(max(usual / self.made, 1.0))
        between = (told * far + set_ * away) / (told + set_)
        doubt = 1 / (math.sqrt(told + set_) * between)
        return replace(self, power=self.power * far / between, doubt=doubt)

    def doubted(self, sign: int) -> "Errors":
        """Return the law with more power (1), less (-1) or as much (0), as it is in doubt."""
        return replace(self, power=self.power * (1 + self.doubt) ** sign)


def errors_by(progress: Floats, errors: Floats, power: float) -> Errors:
    """Fit the law to the errors after so much progress; the family's power is a prior.

    A power is drawn from its prior by least squares, and what was seen lately counts most. Two
    looks at the same progress say nothing of it:

    >>> law = errors_by(np.array([1.0, 1.0]), np.array([0.4, 0.4]), 0.2)
    >>> round(law.now, 6), round(law.power, 6)
    (0.4, 0.2)
    """
    far = np.log(progress / progress[-1])
    seen = np.log(np.maximum(errors, FEWEST))
    weight = np.exp(-np.square(far / SPAN)) / SCATTER**2
    x, y = far - np.average(far, weights=weight), seen - np.average(seen, weights=weight)
    sure = 1 / (POWER_SD * power) ** 2
    shown = float((weight * x * x).sum())
    fitted = (sure * power - float((weight * x * y).sum())) / (sure + shown)
    fitted = min(max(fitted, power / 2), 2 * power)
    now = math.exp(float(np.average(seen + fitted * far, weights=weight)))
    return Errors(float(progress[-1]), now, fitted, 1 / (math.sqrt(sure + shown) * fitted))
