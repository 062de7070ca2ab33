"""Noise distributions against their densities and moments."""

import numpy as np
import pytest
from scipy import stats

from pdno import Field, Grid, UserError, noise
from pdno.noise import FieldNoise, Gaussian, GaussianMixture, Heteroscedastic, parse

DISTRIBUTIONS = [
    Gaussian(0.05),
    GaussianMixture.case(1),
    GaussianMixture.case(2),
    FieldNoise(0.1),
    Heteroscedastic(lambda u: 0.1 * abs(u)),
]


@pytest.mark.parametrize(("case", "printed"), [(1, 8.167e-4), (2, 1.598e-3)])
def test_cases_of_the_paper(case, printed) -> None:
    """The standard deviations printed in the paper, from the formula and from 40,000 fields (5 standard errors)."""
    law, count = GaussianMixture.case(case), 40_000
    assert law.mean == pytest.approx(0, abs=1e-18)
    assert law.std == pytest.approx(printed, rel=5e-4)
    eta = law.sample((count, 1, 2, 2), seed=0)[:, 0, 0, 0]
    kurtosis = (eta**4).mean() / law.std**4
    assert abs(eta.std() / law.std - 1) < 5 * np.sqrt((kurtosis - 1) / 4 / count)


def test_shared_component_shifts_the_whole_field() -> None:
    """Case 1 has the shifts −1e-3, 0, 1e-3, each for a third of the fields (χ², p > 1e-4), and pointwise noise 2e-5."""
    eta = GaussianMixture.case(1).sample((3000, 1, 16, 16), seed=1)
    shift = np.round(eta.mean(axis=(1, 2, 3)) / 1e-3)
    assert set(shift) == {-1, 0, 1}
    np.testing.assert_allclose(eta.std(axis=(1, 2, 3)), 2e-5, rtol=0.25)
    assert stats.chisquare([(shift == s).sum() for s in (-1, 0, 1)]).pvalue > 1e-4


def test_component_of_every_point() -> None:
    case = GaussianMixture.case(1)
    law = GaussianMixture(case.weights, case.means, case.stds, case.scale, shared=False)
    eta = law.sample((50, 1, 16, 16), seed=2)
    assert {-1, 0, 1} == set(np.round(eta[0].ravel() / 1e-3))
    assert abs(eta.mean(axis=(1, 2, 3))).max() < 5 * law.std / 16


def test_gaussian_by_kolmogorov_smirnov() -> None:
    eta = Gaussian(0.3).sample((200, 1, 64), seed=3)
    assert stats.kstest(eta.ravel(), "norm", args=(0, 0.3)).pvalue > 1e-4


def test_heteroscedastic_std_follows_u() -> None:
    u = np.broadcast_to(np.linspace(-1, 1, 5), (20_000, 1, 5))
    eta = Heteroscedastic(lambda u: 0.1 + u**2).sample(u, seed=4)
    np.testing.assert_allclose(eta.std(axis=0)[0], 0.1 + u[0, 0] ** 2, rtol=5 / np.sqrt(2 * 20_000))


@pytest.mark.slow
def test_field_noise_has_the_variance_of_its_field() -> None:
    """The mean variance is std²; draws have the variance of the field in every mode (at most 5.2 standard errors)."""
    law, grid, count = FieldNoise(0.2, tau=3, r=2), Grid.uniform((8, 6), kind="cell"), 4000
    field = law.field(dim=2)
    assert field.variance(Grid.uniform(60, dim=2, kind="cell")).mean() == pytest.approx(0.2**2, rel=1e-3)
    white = field.coefficients(law.sample((count, 2, 8, 6), seed=5), grid) / np.sqrt(field.grid_eigenvalues(grid))
    z = ((white**2).mean(axis=0) - 1) / np.sqrt(2 / count)
    assert np.abs(z).max() < 5.2
    assert abs((white[:, 0] * white[:, 1]).mean()) < 4.5 / np.sqrt(white[:, 0].size)


def test_field_noise_is_the_same_function_on_every_grid() -> None:
    law = FieldNoise(1.0, tau=10, r=1.5)
    coarse, fine = law.sample((2, 1, 16, 16), seed=6), law.sample((2, 1, 48, 48), seed=6)
    np.testing.assert_allclose(fine[..., 1::3, 1::3], coarse, atol=1e-12)


def test_log_prob_of_gaussian_and_heteroscedastic() -> None:
    u, eta = np.random.default_rng(6).standard_normal((2, 3, 1, 10))
    expected = stats.norm(0, 0.3).logpdf(eta).sum(axis=(1, 2))
    np.testing.assert_allclose(Gaussian(0.3).log_prob(eta), expected)
    expected = stats.norm(0, 0.1 + u**2).logpdf(eta).sum(axis=(1, 2))
    np.testing.assert_allclose(Heteroscedastic(lambda u: 0.1 + u**2).log_prob(eta, u), expected)


@pytest.mark.parametrize("shared", [True, False])
def test_log_prob_of_mixtures(shared) -> None:
    law = GaussianMixture((0.2, 0.8), (-1.0, 0.25), (0.3, 0.6), scale=2.0, shared=shared)
    eta = law.sample((5, 1, 4), seed=7)
    parts = np.stack(
        [w * stats.norm(2 * m, 2 * s).pdf(eta[:, 0]) for w, m, s in zip(law.weights, law.means, law.stds, strict=True)]
    )
    if shared:
        pdfs = [stats.norm(2 * m, 2 * s).pdf(eta[:, 0]).prod(axis=1) for m, s in zip(law.means, law.stds, strict=True)]
        expected = np.log(0.2 * pdfs[0] + 0.8 * pdfs[1])
    else:
        expected = np.log(parts.sum(axis=0)).sum(axis=1)
    np.testing.assert_allclose(law.log_prob(eta), expected)


def test_log_prob_of_field_noise() -> None:
    """Against the multivariate normal with the covariance of the values, a sum over all modes."""
    law, grid = FieldNoise(0.2, tau=3, r=1.5), Grid.uniform((4, 5), kind="cell")
    field = law.field(dim=2)
    lam = field.eigenvalues(grid)
    waves = [Field(3, 1.5).values(np.eye(128), Grid.uniform(n, kind="cell")) for n in (4, 5)]
    cov = np.einsum("jk,jx,ky,jp,kq->xypq", lam, waves[0], waves[1], waves[0], waves[1], optimize=True).reshape(20, 20)
    eta = law.sample((3, 2, 4, 5), seed=8)
    expected = stats.multivariate_normal(np.zeros(20), cov).logpdf(eta.reshape(3, 2, 20)).sum(axis=1)
    np.testing.assert_allclose(law.log_prob(eta), expected)


def test_heteroscedastic_std_does_not_depend_on_the_batch() -> None:
    law, u = Heteroscedastic(lambda u: u.std()), np.random.default_rng(10).standard_normal((5, 1, 30))
    np.testing.assert_array_equal(law.sample(u, seed=1)[:1], law.sample(u[:1], seed=1))


@pytest.mark.parametrize("law", DISTRIBUTIONS, ids=lambda law: type(law).__name__)
def test_draws_depend_on_seed_and_index_only(law) -> None:
    u = np.random.default_rng(9).standard_normal((12, 1, 8, 8))
    eta = law.sample(u, seed=1)
    assert eta.shape == u.shape
    np.testing.assert_array_equal(law.sample(u[5:8], seed=1, first=5), eta[5:8])
    assert not np.allclose(law.sample(u, seed=2), eta)


@pytest.mark.parametrize("spec", ["gaussian:0.05", "mixture:1", "mixture:2", "field:0.1,3,2", "field:0.1,10,1.5"])
def test_specifications_round_trip(spec) -> None:
    law = parse(spec)
    assert law is not None
    assert law.spec == spec
    assert parse("none") is None


def test_specifications_keep_all_digits() -> None:
    std = 0.1 + 1e-15
    assert parse(Gaussian(std).spec) == Gaussian(std)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Gaussian(-0.1), "not negative"),
        (lambda: Gaussian(float("nan")), "finite"),
        (lambda: FieldNoise(-1), "not negative"),
        (lambda: Gaussian("a"), "must be a number"),
        (lambda: Heteroscedastic(0.1), "not a function"),
        (lambda: GaussianMixture((0.5, 0.6), (0, 1), (1, 1)), "sum to one"),
        (lambda: GaussianMixture((0.5, 0.5), (0, 1), (1,)), "equally many"),
        (lambda: GaussianMixture((float("nan"), 0.5), (0, 1), (1, 1)), "sum to"),
        (lambda: GaussianMixture((0.5, 0.5), (0, float("inf")), (1, 1)), "finite"),
        (lambda: FieldNoise(1, tau=float("nan")), "a field needs"),
        (lambda: FieldNoise(1, r=400), "underflows to zero"),
        (lambda: FieldNoise(0).log_prob(np.ones((1, 1, 8))), "no density"),
        (lambda: GaussianMixture.case(3), "cases 1 and 2"),
        (lambda: parse("gausian:1"), "did you mean 'gaussian'"),
        (lambda: parse("gaussian"), "gaussian:STD"),
        (lambda: parse("gaussian:x"), "not a number"),
        (lambda: parse("field:1,2"), "field:STD,TAU,R"),
        (lambda: parse("mixture:3"), "mixture:1 or mixture:2"),
        (lambda: Heteroscedastic(lambda u: -u).sample(np.ones((1, 1, 4))), "must be finite"),
        (lambda: Heteroscedastic(lambda u: u).sample((1, 1, 4)), "not a shape"),
        (lambda: FieldNoise(1).sample((4, 8)), "channel"),
        (lambda: Gaussian(0).log_prob(np.ones((1, 2))), "no density"),
    ],
)
def test_invalid_arguments_are_rejected(call, message) -> None:
    with pytest.raises(UserError, match=message):
        call()


def test_every_distribution_implements_the_protocol() -> None:
    assert all(isinstance(law, noise.Noise) for law in DISTRIBUTIONS)
