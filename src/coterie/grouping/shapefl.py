"""The rival that shapes the data at the edges: SHARE and ShapeFL."""

from itertools import cycle

import numpy as np

from coterie.core.arrays import Floats, Ints
from coterie.core.errors import GroupingError
from coterie.grouping import Evidence, Grouping, Planner, with_servers

MOST_SWAPS = 200
TOLERANCE = 1e-12  # below which a lower total is rounding
LEAST_SHARE = 1e-12  # of the data, for a node that has none: S_e of such nodes is not 0 / 0


def shapefl(
    alpha_iid: float = 1.0, alpha_comm: float = 1.0, most_swaps: int = MOST_SWAPS
) -> Planner:
    """Return groups of diverse data at near servers, as a planner.

    SHARE (Deng et al., "SHARE: shaping data distribution at edge for communication-efficient
    hierarchical federated learning", ICDCS 2021) and ShapeFL (Deng et al., "A
    communication-efficient hierarchical federated learning framework via shaping data distribution
    at edge", IEEE/ACM ToN 2024). With S_ij = 1 - cos of the nodes' last-layer updates, or of all
    that is known where those are not, the diversity of a server's data is
    S_e = sum_{i<j} S_ij D_i D_j / C(D_e, 2). With shares p for data sizes D, in the limit of many
    examples, that is S_e = q' S q / (sum q)^2, q being p on the group.

    Association: of all pairs, the node and server with the least rise of the total are joined, at
    most B_e = ceil(n/K) nodes a server. Selection: servers are swapped while the total falls, tried
    in random order and most_swaps in all. The total is

        alpha_comm mean_i c_i / mean hops - alpha_iid mean_e S_e / mean S,

    with c_i the hops from node i to its server and the divisors means over all pairs of nodes. The
    published kappa_c c - (gamma/E) S_e, kappa_c = 10 and gamma = 2800, would drown one of the two
    on other data. Published, servers are also opened and closed, which chooses K, fixed here; and
    come from a list of candidates, which is every node here.
    """

    def plan(evidence: Evidence, rng: np.random.Generator) -> Grouping:
        n, K = len(evidence.p), evidence.num_groups
        hops = evidence.hops.astype(np.float64)
        far = hops * (alpha_comm / n / _mean_of_pairs(hops))
        diverse = np.zeros((n, n))
        if alpha_iid:
            S = dissimilarity(evidence)
            diverse = S * (alpha_iid / K / _mean_of_pairs(S))
        servers = rng.choice(n, K, replace=False)
        z, total = associate(far, diverse, evidence.p, servers)
        trace = [total]
        tried = misses = 0
        for swap in cycle(rng.permutation(K * n)):
            if misses == K * n or tried == most_swaps:
                break
            k, i = divmod(int(swap), n)
            misses += 1
            if i in servers:
                continue
            tried += 1
            others = servers.copy()
            others[k] = i
            new_z, total = associate(far, diverse, evidence.p, others)
            if total < trace[-1] - TOLERANCE:
                servers, z, misses = others, new_z, 0
                trace.append(total)
        if len(evidence.places) or evidence.delays is not None:
            return with_servers(z, evidence, tuple(trace))
        return Grouping(z, servers, tuple(trace))

    return plan


def dissimilarity(evidence: Evidence) -> Floats:
    """S_ij = 1 - cos of what is known of nodes i and j [n, n]; 0 of a node to itself."""
    cosines = evidence.last_layer
    if cosines is None:
        if evidence.gram is None and evidence.vectors is None:
            raise GroupingError(
                "shapefl needs the nodes' gradients or label counts; alpha_iid = 0 does without"
            )
        norms = np.sqrt(np.maximum(np.diag(evidence.inner), 0.0))
        inverse = np.where(norms > 0, 1 / np.where(norms > 0, norms, 1.0), 0.0)
        cosines = evidence.inner * inverse * inverse[:, None]
    bad = (~np.isfinite(cosines)).sum(axis=1)  # one node's NaN is in every row
    if bad.any():
        raise GroupingError(f"the last-layer cosines of node {bad.argmax()} are not finite")
    S: Floats = 1.0 - np.clip(cosines, -1.0, 1.0)
    np.fill_diagonal(S, 0.0)
    return S


def associate(far: Floats, diverse: Floats, p: Floats, servers: Ints) -> tuple[Ints, float]:
    """Join nodes to servers greedily; return the groups and sum_i far[i, e] - sum_e S_e.

    With S = diverse [n, n], and sums kept so that node i raises q' S q by 2 p_i (S q)_i.
    """
    n, K = len(p), len(servers)
    p = np.maximum(p, LEAST_SHARE)
    room = np.full(K, -(-n // K) - 1)
    z = np.full(n, -1, dtype=np.int64)
    z[servers] = np.arange(K)
    near = far[servers]  # [K, n], inf for nodes that are taken
    near[:, servers] = np.inf
    mass = p[servers]  # [K]: sum q
    towards = mass[:, None] * diverse[servers]  # [K, n]: S q
    square = np.zeros(K)  # q' S q
    rise = near - 2 * p * towards / (mass[:, None] + p) ** 2  # of the total, if i joins k
    total = 0.0
    least = rise.argmin(axis=1)  # [K]: who raises the total least in each group
    by = rise[np.arange(K), least]
    for _ in range(n - K):
        k = int(by.argmin())
        i = int(least[k])
        total += float(by[k])
        z[i] = k
        near[:, i] = rise[:, i] = np.inf
        room[k] -= 1
        for other in np.flatnonzero(least == i):
            least[other] = rise[other].argmin()
            by[other] = rise[other, least[other]]
        if room[k] == 0:
            rise[k] = by[k] = np.inf
            continue
        square[k] += 2 * p[i] * towards[k, i]
        mass[k] += p[i]
        towards[k] += p[i] * diverse[i]
        S_k, grown = square[k] / mass[k] ** 2, square[k] + 2 * p * towards[k]
        rise[k] = near[k] + S_k - grown / (mass[k] + p) ** 2
        least[k] = rise[k].argmin()
        by[k] = rise[k, least[k]]
    return z, total


def _mean_of_pairs(values: Floats) -> float:
    """Mean over pairs of different nodes; 1 where that is 0, as the term then is."""
    n = len(values)
    return float(values.sum()) / max(n * (n - 1), 1) or 1.0
