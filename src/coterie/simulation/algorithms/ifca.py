"""IFCA: K models, of which every node takes the one that fits its data best, in every round.

Ghosh et al., An Efficient Framework for Clustered Federated Learning, NeurIPS 2020, the variant
that averages models. All K models go to every node, and one comes back.
"""

from coterie.simulation.algorithm import Algorithm
from coterie.simulation.policies.clustered import Clustered


def ifca() -> Algorithm:
    """IFCA: num_groups models; each node trains the one that fits its data best."""
    return Algorithm(
        "IFCA: num_groups models; each node trains the one that fits best",
        policy=Clustered,
        models=lambda K: K,
        passes=lambda K: K,
    )
