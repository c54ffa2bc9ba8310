"""Who serves every group, where a method says only who is in it."""

import numpy as np

from coterie.core.arrays import Ints
from coterie.grouping.evidence import Evidence
from coterie.grouping.rough_delays import Rough
from coterie.grouping.values import Grouping


def with_servers(z: Ints, evidence: Evidence, cost_trace: tuple[float, ...] = ()) -> Grouping:
    """Give every group as its server the member by which a mean takes the fewest seconds.

    Where the network has places that serve, the best of them is the server instead. Where the
    network has no clock, hops count. Ties go to the switch that serves the fewest groups yet, then
    to the lowest number, so that several groups' servers do not crowd behind one switch.
    """
    if evidence.delays is not None:
        found = Rough(evidence).serve(z, limited=False)
        return Grouping(z, found.servers, cost_trace)
    return Grouping(z, _by_hops(z, evidence), cost_trace)


def _by_hops(z: Ints, evidence: Evidence) -> Ints:
    """Return the servers with the least sum of hops to their groups."""
    K, n = int(z.max()) + 1, len(z)
    site = np.concatenate([evidence.switch_of, evidence.places - n])  # the switch of each vertex
    serving = np.zeros(int(site.max()) + 1, dtype=np.int64)
    servers = np.empty(K, dtype=np.int64)
    for k in range(K):
        members = np.flatnonzero(z == k)
        if len(evidence.places):
            able = n + np.arange(len(evidence.places))
            far = evidence.topology.far(evidence.places, members)
        else:
            able = members
            far = evidence.topology.far(members, members)
        best = able[far == far.min()]
        chosen = best[np.argmin(serving[site[best]])]
        serving[site[chosen]] += 1
        servers[k] = chosen if chosen < n else evidence.places[chosen - n]
    return servers
