import math
import subprocess
import sys
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.integrate import quad
from scipy.special import erfinv, log_ndtr, ndtr
from scipy.stats import norm

from coterie.core.errors import ConfigError, GroupingError
from coterie.divergences.gram import divergence
from coterie.divergences.sketch import COLUMNS, SIZE, Privacy, Sketch, centred

Floats = NDArray[np.float64]
SPREADS = 5  # standard errors; chance fails one such check in two million


def products(x: Floats, y: Floats, size: int, seeds: int) -> Floats:
    """<Sx, Sy> under every seed."""
    both = np.stack([x, y])
    found = [Sketch(size, seed).apply(both) for seed in range(seeds)]
    return np.array([a @ b for a, b in found])


def pairs(d: int) -> dict[str, tuple[Floats, Floats]]:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(2, d))
    heavy = x / np.arange(1, d + 1)
    return {
        "the same": (x, x),
        "unrelated": (x, y - (x @ y) / (x @ x) * x),
        "opposed": (x, y - 3 * x),
        "few large entries": (heavy, heavy + 0.1 * y),
        "all of one sign": (np.abs(x), np.abs(y)),
    }


@pytest.mark.parametrize("kind", pairs(1))
def test_sketched_products_have_the_right_mean_and_spread(kind: str) -> None:
    r, seeds = 64, 2000
    x, y = pairs(1000)[kind]
    found = products(x, y, r, seeds)
    bound = 2 / r * (x @ x) * (y @ y)
    variance = ((x @ x) * (y @ y) + (x @ y) ** 2 - 2 * (x**2 @ y**2)) / r
    assert variance <= bound
    assert abs(found.mean() - x @ y) < SPREADS * math.sqrt(variance / seeds)
    squares = (found - x @ y) ** 2
    assert abs(squares.mean() - variance) < SPREADS * squares.std() / math.sqrt(seeds)


def test_one_entry_alone_keeps_its_length_under_every_seed() -> None:
    x = np.zeros(1000)
    x[7] = 3.0
    assert products(x, x, 16, 20).tolist() == [9.0] * 20


@given(st.integers(1, 40), st.integers(1, 60), st.integers(0, 999), st.floats(-5, 5))
def test_a_sketch_is_linear(size: int, d: int, seed: int, c: float) -> None:
    x, y = np.random.default_rng(seed).normal(size=(2, d))
    sketch = Sketch(size, seed)
    expected = sketch.apply(x) + c * sketch.apply(y)
    assert sketch.apply(x + c * y) == pytest.approx(expected, abs=1e-11)


def test_the_seed_alone_decides_the_projection() -> None:
    x = np.random.default_rng(0).normal(size=(3, 500))
    first = Sketch(32, 1).apply(x)
    assert Sketch(32, 1).apply(x).tolist() == first.tolist()
    assert [Sketch(32, 1).apply(row).tolist() for row in x] == first.tolist()
    assert not np.isclose(Sketch(32, 2).apply(x), first).all(axis=1).any()


def test_pieces_of_a_long_vector_make_one_sketch() -> None:
    d = 2 * COLUMNS + 100
    x = np.random.default_rng(0).normal(size=d)
    head = x.copy()
    head[COLUMNS + 5 :] = 0.0
    sketch = Sketch(64, 3)
    assert sketch.apply(head) == pytest.approx(sketch.apply(x[: COLUMNS + 5]), abs=1e-11)
    wide = Sketch(COLUMNS, 3)  # 2 r = 2 COLUMNS entries at once, still one draw after the other
    assert np.allclose(wide.apply(head), wide.apply(x[: COLUMNS + 5]), atol=1e-11)
    assert wide.apply(x).sum() == pytest.approx(
        wide.apply(head).sum() + wide.apply(x - head).sum(), abs=1e-9
    )


def test_pieces_are_hashed_apart() -> None:
    x = np.random.default_rng(0).normal(size=COLUMNS)
    x /= np.linalg.norm(x) * math.sqrt(2)
    found = Sketch(2000, 0).apply(np.concatenate([x, -x]))  # alike, they would cancel
    assert abs(found @ found - 1) < SPREADS * math.sqrt(2 / 2000)


def test_single_precision_is_summed_in_double() -> None:
    x = np.random.default_rng(0).normal(size=(2, 3000)).astype(np.float32)
    found = Sketch(16, 0).apply(x)
    assert found.dtype == np.float64
    assert found.tolist() == Sketch(16, 0).apply(x.astype(np.float64)).tolist()


@pytest.mark.parametrize("d", [1, 5, 8])
def test_vectors_no_longer_than_the_sketch_are_kept_exactly(d: int) -> None:
    x = np.random.default_rng(0).normal(size=(3, d))
    found = Sketch(8, 0).apply(x)
    assert found.shape == (3, 8)
    assert found[:, :d].tolist() == x.tolist()
    assert not found[:, d:].any()


def test_sketching_takes_no_second_copy_of_the_gradients() -> None:
    x = np.ones((8, 1_000_000), dtype=np.float32)
    tracemalloc.start()
    try:
        Sketch(SIZE, 0).apply(x)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < x[0].nbytes  # not even of one row


@given(st.integers(1, 8), st.integers(0, 999))
def test_the_sketch_of_the_centred_is_the_centred_sketch(n: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 100))
    p = rng.dirichlet(np.ones(n))
    sketch = Sketch(16, seed)
    rows = centred(sketch.apply(x), p)
    assert rows == pytest.approx(sketch.apply(x - p @ x), abs=1e-11)
    assert p @ rows == pytest.approx(0, abs=1e-11)


def test_a_sketch_tells_how_far_groups_are_from_the_whole() -> None:
    """The root mean square error of Delta is at most sqrt(2 / r) Delta.

    With |S g^k|^2 = (1 + e_k) |g^k|^2 and E e_k^2 <= 2 / r, | |S g^k| - |g^k| | <= |e_k| |g^k|;
    Delta sums these, each weighted, and root mean squares add up at worst.
    """
    rng = np.random.default_rng(0)
    n, d, K, seeds = 24, 4000, 4, 30
    grads = rng.normal(size=(n, 3)) @ rng.normal(size=(3, d)) + 0.5 * rng.normal(size=(n, d))
    p = rng.dirichlet(np.full(n, 5.0))
    z = rng.permutation(np.arange(n) % K)
    exact = divergence((grads - p @ grads) @ (grads - p @ grads).T, p, z).Delta
    errors = []
    for seed in range(seeds):
        rows = centred(Sketch(SIZE, seed).apply(grads), p)
        errors.append(divergence(rows @ rows.T, p, z).Delta / exact - 1)
    assert 0 < np.sqrt(np.mean(np.square(errors))) < math.sqrt(2 / SIZE)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("size", [4, 200])
def test_a_gradient_that_is_no_number_is_named(bad: float, size: int) -> None:
    x = np.ones((3, 100))
    x[1, :50] = bad
    with pytest.raises(GroupingError, match=r"^the gradient of node 1 is not finite$"):
        Sketch(size, 0).apply(x)
    with pytest.raises(GroupingError, match=r"^the gradient is not finite$"):
        Sketch(size, 0).apply(x[1])
    with pytest.raises(GroupingError, match=r"^the gradient of node 1 is not finite$"):
        Privacy(1.0, 1e-5, 1.0).noisy(x, np.random.default_rng(0))


def leak(epsilon: float, sigma: float, apart: float) -> float:
    """Least delta of Gaussian noise between two uploads so far apart (Balle and Wang, thm 8)."""
    half, slope = apart / (2 * sigma), epsilon * sigma / apart
    return float(ndtr(half - slope) - math.exp(epsilon + log_ndtr(-half - slope)))


@pytest.mark.parametrize("clip", [0.01, 1.0, 30.0])
@pytest.mark.parametrize("delta", [1e-9, 1e-5, 0.01, 0.3, 0.9])
@pytest.mark.parametrize("epsilon", [0.01, 0.1, 1.0, 5.0, 30.0, 1000.0])
def test_the_noise_is_just_enough(epsilon: float, delta: float, clip: float) -> None:
    sigma = Privacy(epsilon, delta, clip).sigma
    found = leak(epsilon, sigma, 2 * clip)
    assert found == pytest.approx(delta, abs=1e-9)
    assert found == pytest.approx(delta, rel=1e-6, abs=0)
    assert leak(epsilon, sigma * 0.999, 2 * clip) > delta


@pytest.mark.parametrize(("epsilon", "delta"), [(0.1, 0.01), (1.0, 1e-3), (4.0, 0.05)])
def test_two_farthest_uploads_differ_by_no_more_than_promised(epsilon: float, delta: float) -> None:
    """The definition, with no formula: the mass by which one density exceeds e^epsilon another."""
    sigma = Privacy(epsilon, delta, clip=1.0).sigma

    def beyond(x: float) -> float:
        a, b = norm.pdf(x, 1, sigma), norm.pdf(x, -1, sigma)
        return max(float(a - math.exp(epsilon) * b), 0.0)

    crossing = epsilon * sigma**2 / 2
    mass, _ = quad(beyond, crossing, crossing + 40 * sigma, epsabs=1e-13, limit=500)
    assert mass == pytest.approx(delta, abs=1e-9)


@given(st.floats(1e-3, 1.0), st.floats(1e-12, 0.5))
def test_the_noise_is_less_than_the_classic_bound(epsilon: float, delta: float) -> None:
    sigma = Privacy(epsilon, delta, clip=0.5).sigma
    assert 0 < sigma < math.sqrt(2 * math.log(1.25 / delta)) / epsilon


@given(st.floats(-9, 9), st.floats(0.01, 3), st.floats(1e-12, 0.9))
def test_more_epsilon_is_less_noise(exponent: float, step: float, delta: float) -> None:
    less, more = 10**exponent, 10 ** (exponent + step)
    assert Privacy(more, delta, 1.0).sigma <= Privacy(less, delta, 1.0).sigma * (1 + 1e-9)
    assert Privacy(more, delta, 1.0).sigma > 0


@pytest.mark.parametrize("delta", [1e-300, 1e-20, 1e-5, 0.5, 1 - 1e-16])
def test_the_noise_has_its_limits_at_no_and_at_any_epsilon(delta: float) -> None:
    """At 0, where 2 Phi(1/(2s)) - 1 = delta; at infinity, where epsilon s = 1/(2s)."""
    for epsilon in (5e-324, delta * 1e-20):
        s = 1 / (2 * math.sqrt(2) * float(erfinv(delta)))
        assert Privacy(epsilon, delta, 0.5).sigma == pytest.approx(s, rel=1e-9)
    for epsilon in (1e20, 1.7e308):
        s = 1 / (math.sqrt(2) * math.sqrt(epsilon))
        assert Privacy(epsilon, delta, 0.5).sigma == pytest.approx(s, rel=1e-8, abs=0)


@given(st.integers(1, 6), st.floats(1e-3, 1e3), st.integers(0, 999))
def test_clipping_shortens_what_is_too_long_and_nothing_else(
    n: int, clip: float, seed: int
) -> None:
    rows = np.random.default_rng(seed).normal(size=(n, 5)) * 10.0 ** np.arange(-3, n - 3)[:, None]
    found = Privacy(1.0, 1e-5, clip).clipped(rows)
    before, after = np.linalg.norm(rows, axis=1), np.linalg.norm(found, axis=1)
    assert after == pytest.approx(np.minimum(before, clip), rel=1e-12, abs=0)
    assert found[before < clip].tolist() == rows[before < clip].tolist()
    assert found / after[:, None] == pytest.approx(rows / before[:, None], abs=1e-12)


def test_a_zero_sketch_is_not_too_long() -> None:
    assert not Privacy(1.0, 1e-5, 1.0).clipped(np.zeros((2, 4))).any()


def test_an_upload_is_the_clipped_sketch_with_noise_of_sigma() -> None:
    n, r = 100, 400
    privacy = Privacy(epsilon=2.0, delta=1e-4, clip=3.0)
    rows = np.random.default_rng(0).normal(size=(n, r))
    noise = privacy.noisy(rows, np.random.default_rng(1)) - privacy.clipped(rows)
    assert np.linalg.norm(rows, axis=1).min() > privacy.clip  # so that clipping matters
    assert abs(noise.mean()) < SPREADS * privacy.sigma / math.sqrt(n * r)
    assert abs(noise.std() - privacy.sigma) < SPREADS * privacy.sigma / math.sqrt(2 * n * r)
    between = np.asarray(np.corrcoef(noise))[np.triu_indices(n, 1)]  # nodes draw their own
    assert abs(between.mean()) < SPREADS / math.sqrt(r * len(between))


def test_noise_lengthens_a_sketch_as_said_and_leaves_products() -> None:
    r, n = 64, 4000
    privacy = Privacy(epsilon=8.0, delta=1e-3, clip=1.0)
    x = np.zeros((n, r))
    x[:, 0] = 1.0
    found = privacy.noisy(x, np.random.default_rng(0))
    lengths = (found**2).sum(axis=1) - r * privacy.sigma**2
    across = (found[::2] * found[1::2]).sum(axis=1)
    for values in (lengths, across):
        assert abs(values.mean() - 1) < SPREADS * values.std() / math.sqrt(len(values))


@pytest.mark.parametrize("size", [0, -4])
def test_a_sketch_of_nothing_is_refused(size: int) -> None:
    with pytest.raises(ConfigError, match=f"^sketch size must be >= 1, got {size}; 256 is usual$"):
        Sketch(size, 0)


def test_a_seed_below_zero_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"^sketch seed must be >= 0, got -1$"):
        Sketch(4, -1)


def test_only_rows_can_be_sketched() -> None:
    with pytest.raises(GroupingError, match=r"rows \[n, d\] or one \[d\], got \(2, 3, 4\)$"):
        Sketch(4, 0).apply(np.ones((2, 3, 4)))


@pytest.mark.parametrize("value", [0.0, -1.0, math.inf, math.nan])
@pytest.mark.parametrize("name", ["epsilon", "clip"])
def test_privacy_that_promises_nothing_is_refused(name: str, value: float) -> None:
    good = {"epsilon": 1.0, "delta": 1e-5, "clip": 1.0}
    with pytest.raises(ConfigError, match=f"^privacy {name} must be > 0 and finite, got {value:g}"):
        Privacy(**{**good, name: value})


@pytest.mark.parametrize("delta", [0.0, 1.0, -0.1, math.nan])
def test_a_delta_that_is_no_chance_is_refused(delta: float) -> None:
    with pytest.raises(ConfigError, match=r"^privacy delta must be between 0 and 1, got"):
        Privacy(1.0, delta, 1.0)


def test_sketching_does_not_import_torch() -> None:
    code = "import sys, coterie.sketch; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
