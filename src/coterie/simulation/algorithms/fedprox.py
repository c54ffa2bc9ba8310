"""FedProx: local steps are pulled to the model that the node was given.

Li et al., Federated Optimization in Heterogeneous Networks, MLSys 2020.
"""

from coterie.engine.update import Pull, Update
from coterie.simulation.algorithm import Algorithm
from coterie.simulation.algorithms.options import at_least


def pulled(mu: float) -> Update:
    """g + mu (w - w_given)."""
    return Update(pull=lambda at: Pull(towards=at.given, strength=mu), still=True)


def fedprox(mu: float = 0.01) -> Algorithm:
    """FedProx: local steps are pulled to the model that the node was given, by mu."""
    at_least("mu", mu, 0)
    about = "FedProx: local steps are pulled to the model that the node was given"
    return Algorithm(about, pulled(mu))
