"""Density estimates: the optimal bandwidth of a Gaussian, the noise of the paper, expectation–maximisation by hand."""

import numpy as np
import pytest
from scipy.special import eval_hermitenorm, gamma
from scipy.stats import gaussian_kde, norm

from pdno import UserError
from pdno.evaluation.density import Mixture, density, recovered
from pdno.noise import GaussianMixture

N = 10_000


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape)


def case(number: int) -> tuple[np.ndarray, Mixture]:
    """Draws of the noise at one point, and its distribution."""
    law = GaussianMixture.case(number)
    exact = Mixture(np.array(law.weights), law.scale * np.array(law.means), law.scale * np.array(law.stds))
    return law.sample((N, 1, 1), seed=3).ravel(), exact


# Kernel estimates


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("centre", "scale"), [(0, 1), (1e3, 1e-2)])
def test_bandwidth_of_a_gaussian_is_the_optimal_one(seed, centre, scale) -> None:
    """1.06·σ·n^(−1/5). Over 20 seeds the ratio was between 0.97 and 1.06."""
    estimate = density(centre + scale * normal(N, seed=seed))
    assert estimate.bandwidth == pytest.approx(1.06 * scale * N**-0.2, rel=0.15)


@pytest.mark.parametrize(
    "draws", [normal(400), np.concatenate([normal(300), 4 + 0.2 * normal(200, seed=1)])], ids=["one", "two"]
)
def test_bandwidth_by_sums_over_pairs(draws) -> None:
    """The equations of Botev, Grotowski and Kroese without cosines: ‖p^(s)‖² = (−1)^s n⁻² Σ_ij φ^(2s)(x_i − x_j), φ of variance
    2t, by Hermite polynomials.
    """
    n, differences = len(draws), draws[:, None] - draws

    def squared_norm(s: int, t: float) -> float:
        x = differences / np.sqrt(2 * t)
        return float((-1) ** s * (eval_hermitenorm(2 * s, x) * norm.pdf(x)).mean() / (2 * t) ** (s + 0.5))

    t = density(draws).bandwidth ** 2
    found = squared_norm(7, t)
    for s in (6, 5, 4, 3, 2):
        odd = 2**s * gamma(s + 0.5) / np.sqrt(np.pi)  # 1·3⋯(2s − 1)
        found = squared_norm(s, ((1 + 2 ** -(s + 0.5)) / 3 * np.sqrt(2 / np.pi) * odd / (n * found)) ** (2 / (3 + 2 * s)))
    assert t == pytest.approx((2 * n * np.sqrt(np.pi) * found) ** (-2 / 5), rel=0.002)


@pytest.mark.parametrize("number", [1, 2])
def test_narrow_modes_of_the_papers_noise_are_resolved(number) -> None:
    """Heights against the exact density that is smoothed with the same kernel: 25 % are four standard errors of the narrow
    modes and two of the widest, of relative variance 1/(2√π·n·h·p). With the bandwidth of scipy the narrowest modes are 6 and
    13 times too low; here they are at most 10 % too low.
    """
    draws, law = case(number)
    estimate = density(draws, points=2048)
    smoothed = Mixture(law.weights, law.means, np.hypot(law.stds, estimate.bandwidth))
    assert np.trapezoid(estimate.density, estimate.x) == pytest.approx(1, abs=1e-4)
    heights = np.interp(law.means, estimate.x, estimate.density)
    np.testing.assert_allclose(heights, smoothed.pdf(law.means), rtol=0.25)
    sharp = law.stds == law.stds.min()
    ours = np.abs(heights / law.pdf(law.means) - 1)[sharp]
    default = np.abs(gaussian_kde(draws)(law.means) / law.pdf(law.means) - 1)[sharp]
    assert ours.max() < 0.15
    assert (default > 5 * ours).all()


def test_wide_and_narrow_at_once() -> None:
    """Integrated square error, five times below that of Silverman's bandwidth."""
    draws, law = case(2)
    errors = []
    for bandwidth in (None, 0.9 * draws.std() * N**-0.2):
        estimate = density(draws, points=4096, bandwidth=bandwidth)
        errors.append(np.trapezoid((estimate.density - law.pdf(estimate.x)) ** 2, estimate.x))
    assert errors[0] < errors[1] / 5


def test_kernels_by_hand() -> None:
    """Draws at two points, given bandwidth: two Gaussians, up to the width of a cell."""
    estimate = density([0.0, 1.0, 1.0], points=101, bandwidth=0.2)
    expected = norm.pdf(estimate.x, 0, 0.2) / 3 + 2 * norm.pdf(estimate.x, 1, 0.2) / 3
    np.testing.assert_allclose(estimate.density, expected, atol=1e-3)
    np.testing.assert_allclose(estimate.x[[0, -1]], [-1, 2])
    assert estimate.bandwidth == 0.2


def test_shift_and_scale() -> None:
    x = np.concatenate([normal(500), 5 + 0.1 * normal(500, seed=1)])
    plain, moved = density(x), density(-3 + 1e-4 * x)
    assert moved.bandwidth == pytest.approx(1e-4 * plain.bandwidth, rel=1e-3)
    np.testing.assert_allclose(1e-4 * moved.density, plain.density, atol=1e-3 * plain.density.max())


@pytest.mark.parametrize("draws", [[0, 1], [0, 0, 0, 1], np.arange(5), [0] * 50 + [1e6], normal(3), [1, 1 + 1e-9]])
def test_few_draws(draws) -> None:
    estimate = density(draws, points=4096)
    assert 0 < estimate.bandwidth <= np.ptp(draws)
    assert np.isfinite(estimate.density).all()
    assert (estimate.density >= 0).all()


def test_silverman_if_there_is_no_root(monkeypatch) -> None:
    monkeypatch.setattr("pdno.evaluation.density._norm", lambda *_: 1e-300)  # as if the optimal bandwidth were unbounded
    x = normal(1000)
    iqr = np.subtract(*np.quantile(x, [0.75, 0.25]))
    assert density(x).bandwidth == pytest.approx(0.9 * min(x.std(), iqr / 1.34) * 1000**-0.2)
    tied = np.concatenate([np.zeros(900), normal(100)])  # no distance between its quartiles
    assert density(tied).bandwidth == pytest.approx(0.9 * tied.std() * 1000**-0.2)


# Mixtures


@pytest.mark.parametrize("number", [1, 2])
def test_parameters_of_the_papers_noise(number) -> None:
    """Four standard errors: (w(1 − w)/n)^½, s/(nw)^½ and s/(2nw)^½, 2.5 times as much where components overlap (Case 2)."""
    draws, law = case(number)
    found = Mixture.fit(draws, len(law.weights))
    slack = 4 * (1 if number == 1 else 2.5)
    assert (np.abs(found.weights - law.weights) < slack * np.sqrt(law.weights * (1 - law.weights) / N)).all()
    assert (np.abs(found.means - law.means) < slack * law.stds / np.sqrt(N * law.weights)).all()
    assert (np.abs(found.stds - law.stds) < slack * law.stds / np.sqrt(2 * N * law.weights)).all()


@pytest.mark.slow
def test_number_of_components() -> None:
    assert len(Mixture.choose(normal(1000)).weights) == 1
    for number, components in ((1, 3), (2, 4)):
        assert len(Mixture.choose(case(number)[0][:3000]).weights) == components


@pytest.mark.parametrize("components", [1, 3, 6])
def test_likelihood_never_decreases(components) -> None:
    draws = np.concatenate([case(2)[0][:500], np.zeros(20)])  # ties, to which a component shrinks
    for mixture in Mixture._starts(draws, components, seed=1, starts=4):
        likelihoods = []
        for _ in range(100):
            mixture, before = mixture._step(draws)
            likelihoods.append(before)
        assert np.diff(likelihoods).min() > -1e-8 * abs(likelihoods[-1])
        assert mixture.log_likelihood(draws) >= likelihoods[-1] - 1e-8
        assert mixture.weights.sum() == pytest.approx(1)


def test_one_component_is_mean_and_deviation() -> None:
    x = np.array([1.0, 2.0, 6.0])
    found = Mixture.fit(x, 1)
    np.testing.assert_allclose([found.weights[0], found.means[0], found.stds[0]], [1, 3, x.std()])
    assert found.log_likelihood(x) == pytest.approx(norm.logpdf(x, 3, x.std()).sum())
    np.testing.assert_allclose(found.pdf([[0.0], [3.0]]), norm.pdf([[0.0], [3.0]], 3, x.std()))


def test_two_points_end_at_the_bound() -> None:
    found = Mixture.fit([0.0, 0.0, 0.0, 8.0], 2)
    np.testing.assert_allclose(found.weights, [0.75, 0.25])
    np.testing.assert_allclose(found.means, [0, 8])
    np.testing.assert_allclose(found.stds, 1e-3 * np.std([0, 0, 0, 8]))


def test_fit_is_a_function_of_the_seed() -> None:
    draws = case(2)[0][:300]
    for name in ("weights", "means", "stds"):
        np.testing.assert_array_equal(
            getattr(Mixture.fit(draws, 3, seed=5), name), getattr(Mixture.fit(draws, 3, seed=5), name)
        )


def test_far_from_all_components() -> None:
    mixture = Mixture(np.array([0.5, 0.5]), np.array([0.0, 1.0]), np.array([0.1, 0.1]))
    assert mixture.pdf(100.0) == 0
    assert mixture.log_likelihood([100.0]) == pytest.approx(np.log(0.5) + norm.logpdf(100, 1, 0.1))


# Ratio of predicted std and noise


def test_recovered_by_hand() -> None:
    """Mean squares 1 and 9 of noise 4: (5/4)^½, error (8/√2 / √2) / 4 / (2·(5/4)^½)."""
    std = np.array([1.0, 3.0]).reshape(2, 1, 1) * np.ones((2, 1, 5))
    score = recovered(std, 2.0)
    assert score.value == pytest.approx(np.sqrt(5 / 4))
    assert score.error == pytest.approx(4 / 4 / (2 * np.sqrt(5 / 4)))
    np.testing.assert_allclose(score.each, [0.5, 1.5])
    exact = recovered(std, std)
    assert (exact.value, exact.error) == (1, 0)
    assert recovered(0 * std, 1.0).value == 0


def test_error_of_recovered_is_the_spread_of_repetitions() -> None:
    """400 repetitions: the standard error of their spread is 3.5 %; five of those are allowed."""
    rng = np.random.default_rng(0)
    scores = [recovered(np.exp(0.3 * rng.normal(size=(50, 1, 4))), 1.0) for _ in range(400)]
    spread = np.std([score.value for score in scores])
    assert np.mean([score.error for score in scores]) == pytest.approx(spread, rel=0.18)


def test_invalid_arguments() -> None:
    for draws in ([1.0, 1.0, 1.0], [3.0], [], [np.nan, 1.0, 2.0]):
        with pytest.raises(UserError, match="at least two that differ"):
            density(draws)
        with pytest.raises(UserError, match="at least two that differ"):
            Mixture.fit(draws, 1)
    with pytest.raises(UserError, match=r"bandwidth = -1.* above 0"):
        density([1, 2], bandwidth=-1)
    with pytest.raises(UserError, match="at least 2 points"):
        density([1, 2], points=1)
    with pytest.raises(UserError, match=r"components = 3.*for 2 draws"):
        Mixture.fit([1, 2], 3)
    with pytest.raises(UserError, match="most = 0"):
        Mixture.choose([1, 2], most=0)
    with pytest.raises(UserError, match=r"\(2, 1, 4\), noise_std \(3,\)"):
        recovered(np.ones((2, 1, 4)), np.ones(3))
    with pytest.raises(UserError, match="noise in every sample"):
        recovered(np.ones((2, 1, 4)), 0.0)
