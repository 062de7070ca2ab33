"""The sampler that is exact for Gaussians, on closed forms: Gaussians, spreads by place and field, mixtures."""

import numpy as np
import pytest
import torch
from torch import Tensor

from benchmarks.mixture import MIXTURES, error_of, sample
from pdno import UserError
from pdno.diffusion import DenoisingError, Diffusion, Reverse, Schedule, noise_range, variance
from pdno.diffusion.error import measure
from pdno.diffusion.samplers import SAMPLERS, dpm, gaussian_exact, implied_error

GEOMETRIC, COSINE = Schedule.geometric(), Schedule.cosine(100)
SPREADS = [0.001, 0.01, 0.1, 1, 3]


def error(schedule: Schedule, s: np.ndarray | float) -> np.ndarray:
    """Return e_n = s²/(s² + σ_n²) of N(m, s²), for each s: (N + 1, *shape of s)."""
    gamma = schedule.gamma.reshape(-1, *(1,) * np.ndim(s))
    e = gamma * np.square(s) / (gamma * np.square(s) + 1 - gamma)
    e[0] = 0
    return np.asarray(e)


def denoiser(schedule: Schedule, m: float, s: np.ndarray | float):
    """Return (n, v, a) ↦ E[U_0 | U_n = v] for N(m, s²) at each place."""

    def denoise(n: int, v: Tensor, a: object) -> Tensor:
        gamma = schedule.gamma[n]
        slope = torch.as_tensor(np.sqrt(gamma) * np.square(s) / (gamma * np.square(s) + 1 - gamma))
        return m + slope * (v - float(np.sqrt(gamma)) * m)

    return denoise


def gain_of(schedule: Schedule, steps: int, m: float, s: np.ndarray | float, var: np.ndarray) -> tuple[Tensor, Tensor]:
    """Return mean and standard deviation at each of two places, for a V_N with mean √γ_N m and unit variance: it is affine."""
    start = torch.tensor([0.0, 1.0], dtype=torch.float64).reshape(2, 1, 1).expand(2, 1, 2)
    start = start + float(np.sqrt(schedule.gamma[-1])) * m
    end = gaussian_exact(denoiser(schedule, m, s), start, None, schedule.subchain(steps), var)[:, 0]
    return end[0], end[1] - end[0]


@pytest.mark.parametrize("schedule", [GEOMETRIC, COSINE], ids=["geometric", "cosine"])
@pytest.mark.parametrize("steps", [3, 5, 10])
@pytest.mark.parametrize("s", SPREADS)
def test_a_gaussian_is_recovered_in_a_few_steps(schedule, steps, s) -> None:
    mean, std = gain_of(schedule, steps, 2.0, s, variance("analytic", schedule.subchain(steps), error(schedule, s)))
    np.testing.assert_allclose(std, s, rtol=1e-3)
    np.testing.assert_allclose(mean, 2.0, atol=1e-2 * s)


@pytest.mark.parametrize("t_start", [1, 30])
def test_a_chain_that_ends_early_has_the_spread_of_the_forward_chain(t_start) -> None:
    chain, gamma, s = COSINE.subchain(4, t_start), COSINE.gamma[t_start], 0.3
    start = torch.tensor([0.0, 1.0], dtype=torch.float64).reshape(2, 1, 1)
    end = gaussian_exact(denoiser(COSINE, 0.0, s), start, None, chain, variance("analytic", chain, error(COSINE, s)))
    assert float(end[1] - end[0]) == pytest.approx(np.sqrt(gamma * s**2 + 1 - gamma), rel=1e-6)


@pytest.mark.parametrize("rule", ["noise-free", "gaussian", "mixed", "analytic"])
@pytest.mark.parametrize("steps", [1, 4, 100])
def test_the_error_of_a_rule_is_that_of_the_gaussian_for_which_it_is_exact(rule, steps) -> None:
    """0 for the noise-free rule, γ_n (s = 1) for the Gaussian rule, the measured one for the analytic rule."""
    chain = COSINE.subchain(steps)
    implied = implied_error(chain, variance(rule, chain, error(COSINE, 0.2), mix=0.0))
    expected = {"gaussian": COSINE.gamma, "analytic": error(COSINE, 0.2)}.get(rule, np.zeros(101))[chain.n]
    np.testing.assert_allclose(implied[1:], expected[1:], rtol=1e-7, atol=1e-12)


def test_with_the_noise_free_rule_it_is_dpm() -> None:
    """But for the scale √(1 − γ_N) of V_N."""
    chain, mixture = GEOMETRIC.subchain(12), MIXTURES["two-points"]
    start = torch.randn(50, 1, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    settings = {"var": variance("noise-free", chain), "noise": None}
    ours, theirs = (
        sampler(lambda n, v, a: mixture.denoise(GEOMETRIC, n, v), scale * start, None, chain, **settings)
        for sampler, scale in ((gaussian_exact, 1.0), (dpm, float(np.sqrt(1 - chain.gamma[-1]))))
    )
    np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("steps", [3, 10])
def test_spreads_by_place_are_recovered(steps) -> None:
    """With e_n by place; one e_n for all places widens the narrow one."""
    s = np.array([[0.02, 1.0]])
    chain = GEOMETRIC.subchain(steps)
    place = error(GEOMETRIC, s)
    _, std = gain_of(GEOMETRIC, steps, 2.0, s, variance("analytic", chain, place))
    np.testing.assert_allclose(std, s[0], rtol=1e-3)
    _, std = gain_of(GEOMETRIC, steps, 2.0, s, variance("analytic", chain, place.mean(axis=(1, 2))))
    assert std[0] > 0.03


def draws(s: Tensor, count: int = 200, nodes: int = 64) -> tuple[Tensor, Tensor, torch.Generator]:
    """Return fields s ξ, where s is (count, 1, 1) or (1, nodes), with s of each and the generator."""
    rng = torch.Generator().manual_seed(0)
    return s * torch.randn(count, 1, nodes, generator=rng), s, rng


def measured(s: Tensor, schedule: Schedule) -> DenoisingError:
    """Return the error that is measured with a denoiser that knows s of each field and place."""
    u0, s, rng = draws(s)

    def denoise(n: int, v: Tensor, a: object) -> Tensor:
        gamma = float(schedule.gamma[n])
        return gamma**0.5 * s**2 / (gamma * s**2 + 1 - gamma) * v

    return measure(denoise, Diffusion(schedule), u0, None, lambda n: torch.randn(u0.shape, generator=rng))


def test_places_and_fields_that_are_alike_have_one_error() -> None:
    """In at most two of 40 steps; the rate of false alarms is below 1 % each."""
    alike = measured(torch.tensor(0.3), Schedule.geometric(40))
    assert alike.place is None
    assert (0 if alike.own is None else np.count_nonzero(alike.own.slope)) <= 2


def test_the_error_by_place_is_that_of_the_spread_at_the_place() -> None:
    """Each e_n(x) within five standard errors of 200 fields; the mean of all places is e_n."""
    s, schedule = torch.linspace(0.1, 1.0, 64)[None], Schedule.geometric(20, 0.05, 5.0)
    unlike = measured(s, schedule)
    assert unlike.place is not None
    expected = error(schedule, s.numpy())
    np.testing.assert_allclose(unlike.place[1:], expected[1:], rtol=5 * np.sqrt(2 / 200))
    np.testing.assert_allclose(unlike.place.mean(axis=(1, 2)), unlike.mean, rtol=1e-9)


@pytest.mark.parametrize("ratio", [1.0, 10.0])
def test_the_factor_of_a_field_is_that_of_its_own_spread(ratio) -> None:
    """Half the fields have s = .1, the others 1; at σ = .3 the estimated s² of new fields is within 40 % of their own."""
    s, schedule = torch.tensor([0.1, 0.1 * ratio]).repeat(100).reshape(-1, 1, 1), Schedule.geometric(1, 0.1, 0.3)
    both = measured(s, schedule)
    if ratio == 1:
        assert both.own is None
        return
    assert both.own is not None
    noise = torch.randn(200, 1, 64, generator=torch.Generator().manual_seed(7))
    eps = noise * 0.3 / (s**2 + 0.09).sqrt()  # ε_θ = σ x/(s² + σ²), x ~ N(0, s² + σ²)
    common = 0.09 * both.mean[1] / (1 - both.mean[1])
    own = (both.own.factor(1, eps) * common).flatten().sqrt()
    assert own[::2].mean() == pytest.approx(0.1, abs=0.08)
    assert own[1::2].mean() == pytest.approx(1.0, rel=0.2)
    assert float(own.max()) < 2


@pytest.mark.parametrize("name", list(MIXTURES))
def test_weights_and_widths_of_shared_mixtures_in_ten_steps(name) -> None:
    """64 nodes, 4000 members: weights within .02 and three standard errors of .007; widths within 8 %."""
    mixture, schedule = MIXTURES[name], Schedule.geometric(100, *noise_range(64))
    measured_error = error_of(mixture, schedule, 64, 128)
    weights, stds = sample(mixture, schedule, Reverse(sampler="gaussian-exact", steps=10), measured_error, 64, 4000, 4000)
    np.testing.assert_allclose(weights, mixture.components[2], atol=0.02 + 3 * 0.007)
    np.testing.assert_allclose(stds, 1, atol=0.08)


def test_the_ancestral_sampler_takes_a_variance_by_place() -> None:
    chain, s = GEOMETRIC.subchain(5), np.array([[0.02, 1.0]])
    var = variance("analytic", chain, error(GEOMETRIC, s))
    rng = torch.Generator().manual_seed(0)
    noises = torch.randn(6, 20_000, 1, 2, generator=rng, dtype=torch.float64)
    end = SAMPLERS["ancestral"](
        denoiser(GEOMETRIC, 0.0, s),
        noises[5],
        None,
        chain,
        var=var,
        noise=lambda n: noises[int(np.searchsorted(chain.n, n)) - 1],
    )
    np.testing.assert_allclose(end.std(dim=0)[0], s[0], rtol=5 / np.sqrt(2 * 20_000))


# Placement of steps


def test_steps_by_error_avoid_noise_levels_below_that_of_the_data() -> None:
    """For N(0, 1) the levels below 1 contract nothing: fewer steps there; all steps differ, and the ends stay."""
    chain = GEOMETRIC.subchain(10, spacing="error", error=error(GEOMETRIC, 1.0))
    level = np.sqrt(1 / chain.gamma - 1)
    even = np.sqrt(1 / GEOMETRIC.subchain(10).gamma - 1)
    assert (chain.n[0], chain.n[-1], chain.n_steps) == (0, 100, 10)
    assert np.count_nonzero(level < 1) < np.count_nonzero(even < 1)
    for steps in (1, 2, 99, 100):
        assert GEOMETRIC.subchain(steps, spacing="error", error=error(GEOMETRIC, 1.0)).n_steps == steps
    assert GEOMETRIC.subchain(5, 20, spacing="error", error=error(GEOMETRIC, 1.0)).n[0] == 20


def test_steps_by_error_ignore_errors_that_are_inaccurate() -> None:
    """Measured errors scatter about 1 where the noise is far below the data; steps do not crowd there."""
    e = error(GEOMETRIC, 1.0)
    e[1:10:2] = 1.0
    exact, rough = (GEOMETRIC.subchain(10, spacing="error", error=x).n for x in (error(GEOMETRIC, 1.0), e))
    assert np.abs(exact - rough).max() <= 3


def test_steps_by_error_need_the_error() -> None:
    with pytest.raises(UserError, match='spacing "error" needs the denoising error'):
        GEOMETRIC.subchain(5, spacing="error")
    assert Reverse(spacing="error", steps=7).n_steps(GEOMETRIC) == 7
