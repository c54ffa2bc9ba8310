"""Your own grouping: a function from evidence to a grouping, named by its import path.

Run it:  cd examples && coterie run quickstart --set algorithm.grouping=own_grouping:plan
"""

import numpy as np

import coterie


def plan(evidence: coterie.Evidence, rng: np.random.Generator) -> coterie.Grouping:
    """Deal the nodes of every edge round-robin: each group gets a slice of every edge."""
    order = np.argsort(evidence.edge_of, kind="stable")
    z = np.empty(len(order), dtype=np.int64)
    z[order] = np.arange(len(order)) % evidence.num_groups
    return coterie.with_servers(z, evidence)
