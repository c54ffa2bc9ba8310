import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.divergences.gram import divergence, group_divergences


@given(st.integers(2, 12), st.integers(1, 4), st.integers(0, 999))
def test_the_gram_form_equals_the_direct_norms(n: int, groups: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    groups = min(groups, n)
    grads = rng.normal(size=(n, 7))
    p = rng.uniform(0.1, 1, n)
    p /= p.sum()
    z = rng.permutation(np.arange(n) % groups)
    mean = p @ grads
    gram = (grads - mean) @ (grads - mean).T
    group_grads = np.array([p[z == k] @ grads[z == k] / p[z == k].sum() for k in range(groups)])
    Delta_k = np.linalg.norm(group_grads - mean, axis=1)
    delta_i = np.linalg.norm(grads - group_grads[z], axis=1)
    mass = np.array([p[z == k].sum() for k in range(groups)])
    found = divergence(gram, p, z)
    assert found.Delta == pytest.approx(mass @ Delta_k, abs=1e-6)
    assert found.delta == pytest.approx(p @ delta_i, abs=1e-6)
    assert group_divergences(gram, p, z) == pytest.approx(Delta_k, abs=1e-6)


def test_one_group_has_no_delta_to_the_whole_and_singletons_none_inside() -> None:
    rng = np.random.default_rng(0)
    grads = rng.normal(size=(6, 3))
    p = np.full(6, 1 / 6)
    centred = grads - p @ grads
    gram = centred @ centred.T
    assert divergence(gram, p, np.zeros(6, dtype=np.int64)).Delta == pytest.approx(0, abs=1e-7)
    assert divergence(gram, p, np.arange(6)).delta == pytest.approx(0, abs=1e-7)


def test_nodes_without_data_change_nothing() -> None:
    # The last two nodes have no data: apart from the others, or with them, they count for nothing.
    rng = np.random.default_rng(0)
    grads = rng.normal(size=(6, 3))
    p = np.array([0.25, 0.25, 0.25, 0.25, 0.0, 0.0])
    gram = (grads - p @ grads) @ (grads - p @ grads).T
    four = divergence(gram[:4, :4], p[:4], np.array([0, 1, 0, 1]))
    for z in ([0, 1, 0, 1, 2, 2], [0, 1, 0, 1, 0, 1], [0, 1, 0, 1, 2, 3]):
        found = divergence(gram, p, np.array(z))
        assert [found.delta, found.Delta] == pytest.approx([four.delta, four.Delta])
        assert group_divergences(gram, p, np.array(z))[2:] == pytest.approx(0.0)
