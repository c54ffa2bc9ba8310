"""SCAFFOLD: every node's steps are corrected by how its gradient differs from everybody's.

Karimireddy et al., ICML 2020, with their second way to renew a node's correction: the way that the
node went, divided by its summed rates, is its mean gradient.
"""

from dataclasses import dataclass

from torch import Tensor

from coterie.core.arrays import Floats
from coterie.engine.local_rule import Arrays


@dataclass(frozen=True)
class Scaffold:
    """Node i keeps c_i and all know c = sum_i p_i c_i; a step goes along g - c_i + c."""

    def begin(self, n: int, w: Tensor) -> tuple[Arrays, Arrays]:
        """No corrections yet: zeros c_i [n, d] and c [d]."""
        zeros = w.new_zeros(n + 1, len(w))
        return {"scaffold": zeros[:n]}, {"scaffold": zeros[n]}

    def offset(self, own: Arrays, common: Arrays) -> Tensor:
        """c - c_i [c, d]."""
        return common["scaffold"] - own["scaffold"]

    def renew(self, own: Arrays, offset: Tensor, way: Tensor, rates: float) -> Arrays:
        """c_i <- c_i - c + (w_given - w_i) / rates."""
        return {"scaffold": way / rates - offset}

    def gather(self, own: Arrays, common: Arrays, p: Floats) -> Arrays:
        """c <- sum_i p_i c_i."""
        c = own["scaffold"]
        return {"scaffold": c.new_tensor(p) @ c}

    def extra_numbers(self, d: int) -> int:
        """c travels with a model of d numbers in a global mean, both ways."""
        return d
