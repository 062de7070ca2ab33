"""The Gaussian law: moments of its draws against S and t, its density, and the network that it stands for.

Statistical tests have fixed seeds and state their false-alarm rates.
"""

import numpy as np
import pytest

from pdno import PDNO, Diffusion, Pairs, Schedule, UserError
from pdno.diffusion.base import LowModes, White
from pdno.learning.budget import Terms
from pdno.mean import Linear
from pdno.residual import Gaussian, Inputs, Residuals, Rows
from pdno.residual.amplitude import Amplitude
from pdno.residual.scale import Scale
from pdno.residual.spread import Spread
from pdno.work.state import State
from tests.helpers import linear_pairs, normal
from tests.residual.scales import by_kind, dense, random_scale

POINTS = 16
LINEAR = Linear(degree=1, sparse=False)


def of_spread(scale: Scale, amplitude: Amplitude | None = None) -> Gaussian:
    """Return the law with these S and t."""
    return Gaussian.from_state(State({"scale": "auto"}, {}, {"spread": Spread(scale, amplitude).state()}))


def drawn(law: Gaussian, inputs: Inputs, members: int, seed: int = 0) -> np.ndarray:
    """Draw members of each input: (input, member, …)."""
    places, numbers = np.divmod(np.arange(len(inputs) * members), members)
    draws = law.draw(inputs, Rows(seed, places, numbers, places))
    return draws.reshape(len(inputs), members, *draws.shape[1:])


# Draws


@by_kind
def test_draws_have_the_covariance_of_s(kind) -> None:
    """All entries of mean and covariance within five standard errors; false-alarm rate below 136·6e-7 = 8e-5."""
    scale, members = random_scale((8,), (False,), kind), 20_000
    inputs = Inputs(normal(1, 1, 8), np.zeros((1, 2, 8)))
    flat = drawn(of_spread(scale), inputs, members)[0].reshape(members, 16)
    matrix = dense(scale, (2, 8))
    expected = matrix @ matrix.T
    variances = np.diag(expected)
    assert (np.abs(flat.mean(axis=0)) < 5 * np.sqrt(variances / members)).all()
    stderr = np.sqrt((np.outer(variances, variances) + expected**2) / members)
    assert (np.abs(flat.T @ flat / members - expected) < 5 * stderr).all()


@pytest.mark.slow
def test_draws_have_the_sizes_of_t() -> None:
    """E x xᵀ = t(a)² E[exp 2e] S Sᵀ, within five standard errors; false-alarm rate below 3·136·6e-7 = 3e-4."""
    scale, members, rest = random_scale((8,), (False,)), 20_000, np.array([-0.5, 0.0, 0.5])
    slope = np.array([0.8, *[0.0] * 8])  # of the first of nine features, the logarithm of the size of a
    a = np.array([0.1, 1.0, 5.0]).reshape(3, 1, 1) * np.sin(np.arange(8.0))
    inputs = Inputs(a, np.ones((3, 2, 8)))
    size = np.sqrt(np.mean(a**2, axis=(1, 2)))
    law = of_spread(scale, Amplitude(0.3, slope, np.zeros(9), np.ones(9), rest))
    matrix = dense(scale, (2, 8))
    second, fourth = (np.mean(np.exp(k * rest)) for k in (2, 4))
    for draws, t in zip(drawn(law, inputs, members), np.exp(0.3) * size**0.8, strict=True):
        flat = draws.reshape(members, 16) / t
        c = matrix @ matrix.T
        both = np.outer(np.diag(c), np.diag(c))
        stderr = np.sqrt((fourth * (both + 2 * c**2) - second**2 * c**2) / members)
        assert (np.abs(flat.T @ flat / members - second * c) < 5 * stderr).all()


def test_draws_are_functions_of_seed_input_and_member() -> None:
    law, inputs = of_spread(random_scale((8,), (False,))), Inputs(normal(4, 1, 8), np.zeros((4, 2, 8)))
    whole = drawn(law, inputs, 5, seed=3)
    one = law.draw(inputs, Rows(3, np.array([2]), np.array([4]), np.array([2])))
    np.testing.assert_array_equal(one[0], whole[2, 4])
    moved = law.draw(Inputs(inputs.a[2:], inputs.mean[2:]), Rows(3, np.array([2]), np.array([4]), np.array([0])))
    np.testing.assert_array_equal(moved[0], whole[2, 4])
    assert not np.array_equal(drawn(law, inputs, 5, seed=4), whole)


def test_settings_of_a_sampler_are_checked_but_have_no_effect() -> None:
    """A user who asks for steps=20 need not know which law was selected."""
    law, inputs = of_spread(random_scale((8,), (False,))), Inputs(normal(1, 1, 8), np.zeros((1, 2, 8)))
    rows = Rows(0, np.array([0]), np.array([0]), np.array([0]))
    np.testing.assert_array_equal(law.draw(inputs, rows, steps=20, sampler="heun"), law.draw(inputs, rows))
    assert law.evaluations(steps=20) == 0
    for request in (lambda: law.draw(inputs, rows, stpes=3), lambda: law.evaluations(stpes=3)):
        with pytest.raises(UserError, match=r"sampling has no setting 'stpes'; did you mean 'steps'\?"):
            request()


@pytest.mark.parametrize("sigma", [0.01, *(pytest.param(s, marks=pytest.mark.slow) for s in (0.2, 5.0))])
def test_white_noise_is_recovered_and_covered(sigma) -> None:
    a, u, _ = linear_pairs(3000, sigma)
    model = PDNO(law="gaussian", mean=LINEAR).fit(a, u)
    new, noisy, clean = linear_pairs(1000, sigma, seed=1)
    p = model.predict(new, members=200, quantiles=(0.25, 0.75, 0.05, 0.95, 0.025, 0.975), progress=False)
    assert np.sqrt(np.mean(p.std**2)) == pytest.approx(sigma, rel=0.02)
    for low, high, level in ((0.25, 0.75, 0.5), (0.05, 0.95, 0.9), (0.025, 0.975, 0.95)):
        inside = (noisy > p.quantile(low)) & (noisy < p.quantile(high))
        assert inside.mean() == pytest.approx(level, abs=0.015)
    assert model.evaluations() == 0
    np.testing.assert_array_equal(p.mean, model.mean(new))  # exact, not that of 200 members
    assert np.abs(model.mean(new) - clean).mean() < 0.2 * sigma


def test_no_network_is_the_same_as_a_gaussian_law() -> None:
    a, u, _ = linear_pairs(60)
    zero, gaussian = PDNO("zero", mean="linear").fit(a, u), PDNO(law="gaussian", mean="linear").fit(a, u)
    assert zero.law.residual.name == gaussian.law.residual.name == "gaussian"
    np.testing.assert_array_equal(zero.sample(a[:3], 4), gaussian.sample(a[:3], 4))


def test_the_base_law_of_the_diffusion_does_not_change_gaussian_residuals() -> None:
    a, u, _ = linear_pairs(300)
    base = White() + LowModes(1, 3.0)
    model = PDNO("zero", Diffusion(Schedule.cosine(20), base, "v"), mean=LINEAR).fit(a, u)
    assert model.sample(a[:50], 50).std(axis=0).mean() == pytest.approx(0.2, rel=0.05)


# The scale


@by_kind
def test_the_kind_of_scale_is_a_setting(kind) -> None:
    a, u, _ = linear_pairs(60)
    assert PDNO(law="gaussian", mean="linear", residual_scale=kind).fit(a, u).law.residual.spread.scale.kind == kind
    residuals = Residuals(Pairs.of(a, u), u)
    assert Gaussian(kind).learn(residuals, None, Terms()).spread.scale.kind == kind


def test_std_is_that_of_s_for_homoscedastic_residuals_only() -> None:
    rng = np.random.default_rng(0)
    a, xi = rng.standard_normal((2, 200, 1, POINTS))
    size = np.exp(rng.standard_normal((200, 1, 1)))
    equal, different = (Gaussian().learn(Residuals(Pairs.of(a, v), v), None, Terms()) for v in (xi, size * xi))
    np.testing.assert_array_equal(equal.std, equal.spread.scale.std)
    assert different.std is None
    assert not different.spread.is_homoscedastic


def test_symmetries_make_the_scale_symmetric() -> None:
    rng = np.random.default_rng(0)
    a = rng.standard_normal((200, 1, POINTS))
    u = a + np.linspace(0.1, 1, POINTS) * rng.standard_normal(a.shape)  # noise that is not symmetric
    how = {"law": "gaussian", "mean": "linear", "residual_scale": "point"}
    plain = PDNO(**how).fit(a, u).law.residual.spread.scale.point
    point = PDNO(**how, symmetries="reflection").fit(a, u).law.residual.spread.scale.point
    np.testing.assert_allclose(point, point[:, ::-1])
    assert plain[0, -1] > 3 * plain[0, 0]


def test_nodes_that_are_always_missing_are_ignored() -> None:
    a, u, clean = linear_pairs(300)
    mask = np.ones(u.shape, dtype=bool)
    mask[..., :4] = False
    model = PDNO(law="gaussian", mean="linear").fit(a, np.where(mask, u, np.nan), mask="nan")
    error = (model.mean(a) - clean)[mask]
    assert np.sqrt(np.mean(error**2)) < 0.1
    assert model.law.residual.spread.scale.std.max() == pytest.approx(0.2, rel=0.1)


def test_an_untrained_law_says_so() -> None:
    with pytest.raises(UserError, match="this Gaussian law has not been trained"):
        _ = Gaussian().spread
    with pytest.raises(UserError, match="residual_scale 'pixel' is unknown"):
        Gaussian("pixel")


# The density


def of_many_sizes(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return white noise whose size differs from pair to pair, independently of the input."""
    rng = np.random.default_rng(seed)
    a, noise = rng.standard_normal((2, count, 1, POINTS))
    return a, a + np.exp(0.7 * rng.standard_normal((count, 1, 1))) * noise


def test_the_variational_bound_of_a_gaussian_is_its_likelihood() -> None:
    a, u, _ = linear_pairs(500)
    model = PDNO(law="gaussian", mean=LINEAR, residual_scale="scalar").fit(a, u)
    new, noisy, _ = linear_pairs(50, seed=1)
    s = float(model.law.residual.spread.scale.std.mean())
    residual = noisy - model.mean(new)
    exact = 0.5 * np.mean((residual**2).sum(axis=(1, 2))) / s**2 + POINTS * np.log(s * np.sqrt(2 * np.pi))
    assert model.nvlb(new, noisy) == pytest.approx(exact, rel=1e-9)


def test_the_likelihood_of_random_sizes_is_that_of_the_mixture() -> None:
    model = PDNO(law="gaussian", mean=LINEAR, residual_scale="scalar").fit(*of_many_sizes(800, 0))
    a, u = of_many_sizes(50, 1)
    spread = model.law.residual.spread
    t, unit, s = spread.amplitude(a, model.mean(a)), float(spread.scale.std.mean()), spread.amplitude.sizes
    square = ((u - model.mean(a)) ** 2).sum(axis=(1, 2))
    std = unit * t[:, None] * s
    density = np.mean(np.exp(-0.5 * square[:, None] / std**2) / (std * np.sqrt(2 * np.pi)) ** POINTS, axis=1)
    assert model.nvlb(a, u) == pytest.approx(-np.log(density).mean(), rel=1e-9)
