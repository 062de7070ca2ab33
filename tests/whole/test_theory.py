"""The theorem on σ_n for joint distributions of paths, and mixtures: exact score, but reverse transitions not Gaussian."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

from pdno.diffusion.base import Base, LowModes, White
from pdno.diffusion.chain import Diffusion
from pdno.diffusion.reverse import SAMPLERS, ancestral, denoising_error, variance
from pdno.diffusion.schedule import Schedule
from pdno.noise import GaussianMixture

SHORT = Schedule.cosine(12)


def gain_of(gamma: float, s: float) -> float:
    """Return the factor of E[U_0 | U_n = v] = factor·v for N(0, s²)."""
    return float(np.sqrt(gamma) * s**2 / (gamma * s**2 + 1 - gamma))


def forward_path(s: float) -> np.ndarray:
    """Return the covariance of (U_0, …, U_N) for U_0 ~ N(0, s²), which is linear in U_0 and the ε_n, applied one at a time."""
    diffusion, u = Diffusion(SHORT), torch.zeros(13, 1, 1, dtype=torch.float64)
    u[0] = s
    path = [u.flatten()]
    for n in range(1, 13):
        eps = torch.zeros_like(u)
        eps[n] = 1
        u = diffusion.step(n, u, eps)
        path.append(u.flatten())
    rows = torch.stack(path).numpy()
    return rows @ rows.T


def reverse_path(s: float, rule: str) -> np.ndarray:
    """Return the covariance of (V_0, …, V_N) with the exact denoiser and V_N distributed as U_N, in the same way."""
    gamma = SHORT.gamma
    error = gamma * s**2 / np.maximum(gamma * s**2 + 1 - gamma, 1e-300)
    v = torch.zeros(13, 1, 1, dtype=torch.float64)
    v[0] = np.sqrt(gamma[-1] * s**2 + 1 - gamma[-1])
    path = {12: v.flatten()}

    def noise(n: int) -> Tensor:
        eps = torch.zeros_like(v)
        eps[n] = 1
        return eps

    def keep(n: int, v: Tensor) -> None:
        path[n] = v.flatten()

    ancestral(lambda n, v, a: gain_of(gamma[n], s) * v, v, None, SHORT, variance(rule, SHORT, error), noise, callback=keep)
    rows = torch.stack([path[n] for n in range(13)]).numpy()
    return rows @ rows.T


def entropy(covariance: np.ndarray) -> float:
    return 0.5 * float(np.linalg.slogdet(2 * np.pi * np.e * covariance)[1])


@pytest.mark.parametrize(
    ("s", "rule"), [(0, "noise-free"), (1, "gaussian"), (0, "analytic"), (0.5, "analytic"), (3, "analytic")]
)
def test_the_reverse_chain_is_the_forward_chain_where_the_variance_is_exact(s, rule) -> None:
    """`thm:optimal-sigma` (s = 0 and s = 1) for the joint distribution of the path; "analytic" is exact for every s.

    For a Dirac distribution U_0 and V_0 are constants with entropy −∞, so the entropies of steps 1 … N are compared.
    """
    forward, reverse, first = forward_path(s), reverse_path(s, rule), 1 if s == 0 else 0
    np.testing.assert_allclose(reverse, forward, atol=1e-12)
    assert entropy(reverse[first:, first:]) == pytest.approx(entropy(forward[first:, first:]), abs=1e-9)
    if s == 0:
        assert forward[0, 0] == reverse[0, 0] == 0


@pytest.mark.parametrize("s", [0.5, 3])
@pytest.mark.parametrize("rule", ["noise-free", "gaussian", "mixed"])
def test_the_paths_differ_where_the_variance_is_not_exact(s, rule) -> None:
    """In nats, for 12 steps. With the noise-free rule V_0 given V_1 has no spread, so steps 1 … N are compared."""
    forward, reverse = forward_path(s)[1:, 1:], reverse_path(s, rule)[1:, 1:]
    assert abs(entropy(reverse) - entropy(forward)) > 0.1


def test_entropies_of_single_steps() -> None:
    """The entropy of U_{n−1} given U_n: Propositions `prop:Dirac` and `prop:Gaussian`, and between them for 0 < s < 1."""

    def given(path: np.ndarray, i: int, j: int) -> float:
        return 0.5 * np.log(2 * np.pi * np.e * (path[i, i] - path[i, j] ** 2 / path[j, j]))

    dirac, half, unit = forward_path(0), forward_path(0.5), forward_path(1)
    for n in range(2, 13):
        forward = 0.5 * np.log(2 * np.pi * np.e * SHORT.beta[n])  # H(U_n | U_{n−1}), for every distribution of U_0
        lower = forward + 0.5 * np.log((1 - SHORT.gamma[n - 1]) / (1 - SHORT.gamma[n]))
        assert given(unit, n, n - 1) == pytest.approx(forward, abs=1e-9)
        assert given(unit, n - 1, n) == pytest.approx(forward, abs=1e-9)
        assert given(dirac, n - 1, n) == pytest.approx(lower, abs=1e-9)
        assert lower < given(half, n - 1, n) < forward
        for rule, value in (("noise-free", lower), ("gaussian", forward)):
            assert 0.5 * np.log(2 * np.pi * np.e * variance(rule, SHORT)[n]) == pytest.approx(value, abs=1e-12)


def test_the_exact_noise_minimises_the_objective_for_two_atoms() -> None:
    """u₀ = ±1: E[U_0 | v] = tanh(√γ v/(1−γ)). ε has 2000 midpoint quantiles; δ raises the loss by E δ², to 1e-3 of |δ|."""
    diffusion = Diffusion(Schedule.cosine(10), target="eps")
    half = torch.special.ndtri((torch.arange(2000, dtype=torch.float64) + 0.5) / 2000)
    eps, u0 = torch.cat([half, half])[:, None, None], torch.ones(4000, 1, 1, dtype=torch.float64)
    u0[2000:] = -1
    for n in (2, 5, 8):
        gamma, numbers = diffusion.schedule.gamma[n], torch.full((4000,), n)
        v = diffusion.forward(numbers, u0, eps)
        best = diffusion.eps_of(n, v, torch.tanh(gamma**0.5 * v / (1 - gamma)))
        least = diffusion.loss(lambda *_: best, numbers, u0, eps, None)  # noqa: B023
        for seed in range(20):
            wave, phase, size = torch.randn(3, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
            delta = 0.3 * size * torch.cos(2 * wave * v + phase)
            rise = diffusion.loss(lambda *_: best + delta, numbers, u0, eps, None) - least  # noqa: B023
            assert float(rise) == pytest.approx(float((delta**2).mean()), abs=1e-3 * 0.3 * abs(float(size)))


WEIGHTS = torch.tensor([0.3, 0.7], dtype=torch.float64)
MEANS = torch.tensor([-1.2, 0.7], dtype=torch.float64)
STDS = torch.tensor([0.2, 0.4], dtype=torch.float64)


def two_modes(schedule: Schedule):
    """Return (n, v, a) ↦ E[U_0 | U_n = v] for a mixture of two Gaussians in one dimension."""

    def denoise(n: int, v: Tensor, a: None) -> Tensor:
        gamma = schedule.gamma[n]
        var = gamma * STDS**2 + 1 - gamma
        away = v - gamma**0.5 * MEANS  # the last axis has one node; broadcasting gives it one entry per component
        share = torch.softmax(WEIGHTS.log() - 0.5 * (away**2 / var + var.log()), dim=-1)
        return (share * (MEANS + gamma**0.5 * STDS**2 / var * away)).sum(-1, keepdim=True)

    return denoise


@pytest.mark.parametrize(
    ("steps", "rule", "accepted"),
    [
        (1000, "analytic", True),
        pytest.param(1000, "gaussian", True, marks=pytest.mark.slow),
        (10, "analytic", False),
        (10, "noise-free", False),
    ],
)
def test_many_small_steps_sample_a_mixture(steps, rule, accepted) -> None:
    """Kolmogorov–Smirnov test with 10⁴ samples at the 1 % level. It rejects ten steps, whose transitions are not Gaussian.

    As β → 0 every rule with σ_n/β_n → 1 is correct. For "analytic", e_n is estimated on separate draws.
    """
    schedule, draw = Schedule.cosine(1000), torch.Generator().manual_seed(1)
    chain = schedule.subchain(steps)

    def white(n: int = 0) -> Tensor:
        return torch.randn(10_000, 1, 1, generator=draw, dtype=torch.float64)

    error = None
    if rule == "analytic":
        which = torch.multinomial(WEIGHTS, 10_000, replacement=True, generator=draw)[:, None, None]
        u0, eps = MEANS[which] + STDS[which] * white(), white()
        error = denoising_error(two_modes(schedule), Diffusion(schedule), u0, None, lambda n: eps)
    end = ancestral(two_modes(schedule), white(), None, chain, variance(rule, chain, error), white).flatten().numpy()

    def cdf(x: np.ndarray) -> np.ndarray:
        return stats.norm.cdf(x[:, None], MEANS.numpy(), STDS.numpy()) @ WEIGHTS.numpy()

    assert (stats.kstest(end, cdf).pvalue > 0.01) == accepted


class SharedMixture:
    """The exact denoiser of a `GaussianMixture` with a shared component, on d nodes, under White() or White() + LowModes().

    It depends on v only through its mean over the nodes and the squared norm of the deviation from this mean. The joint
    distribution of these two stays the same if a field is reduced to few coordinates: its mean, and the components of the
    deviation along the directions drawn so far. Each new noise is N(0, 1) along the earlier directions, and has a
    χ-distributed length along one new direction. Samplers run on these coordinates without approximation.
    """

    def __init__(self, mixture: GaussianMixture, unit: float, d: int, base: Base, schedule: Schedule) -> None:
        self.means, self.stds = (torch.tensor(x).double() * mixture.scale / unit for x in (mixture.means, mixture.stds))
        self.log_weights, self.d, self.schedule = torch.tensor(mixture.weights).double().log(), d, schedule
        self.mean_var = float(base.eigenvalues(base.grid((d // 2, 2))).flat[0])  # variance of the constant mode

    def __call__(self, n: int, v: Tensor, a: None) -> Tensor:
        """Return û₀ in coordinates (batch, 1, 1 + directions)."""
        mean, gain = self.parts(n, v[:, 0, :1], (v[:, 0, 1:] ** 2).sum(1, keepdim=True))
        return torch.cat([mean, gain * v[:, 0, 1:]], dim=1)[:, None]

    def on_fields(self, n: int, v: Tensor, a: None) -> Tensor:
        """Return û₀ on fields (batch, 1, d)."""
        x = v.mean(dim=2)
        mean, gain = self.parts(n, x, (v**2).sum(dim=2) - self.d * x**2)
        return (mean - gain * x)[..., None] + gain[..., None] * v

    def parts(self, n: int, x: Tensor, square: Tensor) -> tuple[Tensor, Tensor]:
        """Return the mean of û₀ over the nodes, and the factor from the deviation of v to that of û₀: (batch, 1) each."""
        gamma = self.schedule.gamma[n]
        of_mean = gamma * self.stds**2 / self.d + (1 - gamma) * self.mean_var
        of_rest = gamma * self.stds**2 + 1 - gamma
        away = x - gamma**0.5 * self.means
        log = away**2 / of_mean + of_mean.log() + square / of_rest + (self.d - 1) * of_rest.log()
        share = torch.softmax(self.log_weights - 0.5 * log, dim=1)
        mean = self.means + gamma**0.5 * self.stds**2 / self.d / of_mean * away
        return (share * mean).sum(1, keepdim=True), (share * gamma**0.5 * self.stds**2 / of_rest).sum(1, keepdim=True)

    def sources(self, chain: Schedule, count: int, seed: int) -> Callable[[int], Tensor]:
        """Return n ↦ the noise of the step from n, and V_N for any number that is not in the chain."""
        rng, order = np.random.default_rng(seed), {int(n): k for k, n in enumerate(chain.n[::-1], start=1)}

        def draw(n: int) -> Tensor:
            earlier, eps = order.get(n, 0), np.zeros((count, 1, chain.n_steps + 2))
            eps[:, 0, 0] = np.sqrt(self.mean_var) * rng.standard_normal(count)
            eps[:, 0, 1 : earlier + 1] = rng.standard_normal((count, earlier))
            eps[:, 0, earlier + 1] = np.sqrt(rng.chisquare(self.d - 1 - earlier, count))
            return torch.as_tensor(eps)

        return draw

    def component(self, x: Tensor) -> np.ndarray:
        """Return for each component the number of samples whose mean is nearest to its mean."""
        return np.bincount((x.reshape(-1, 1) - self.means).abs().argmin(dim=1).numpy(), minlength=len(self.means))


def case_2(base: Base, d: int = 128**2, unit: float = 2.2e-3) -> SharedMixture:
    """Return case 2 in units of 2.2e-3: the narrowest mode has the standard deviation .009, the lowest noise level is .025."""
    return SharedMixture(GaussianMixture.case(2), unit, d, base, Schedule.cosine(100))


def sampled(exact: SharedMixture, name: str, steps: int, count: int) -> Tensor:
    chain = exact.schedule.subchain(steps)
    draw = exact.sources(chain, count, seed=2)
    return SAMPLERS[name](exact, draw(-1), None, chain, var=variance("gaussian", chain), noise=draw)


def test_few_coordinates_have_the_distribution_of_fields() -> None:
    """Mean and norm of the deviation, 64 nodes, 2000 samples of each: two Kolmogorov–Smirnov tests at the 0.5 % level."""
    exact, rng = case_2(White(), d=64), np.random.default_rng(3)
    chain = exact.schedule.subchain(30)

    def white(n: int = 0) -> Tensor:
        return torch.as_tensor(rng.standard_normal((2000, 1, 64)))

    fields = ancestral(exact.on_fields, white(), None, chain, variance("gaussian", chain), white)[:, 0]
    short = sampled(exact, "ancestral", 30, 2000)[:, 0]
    deviation = (fields - fields.mean(dim=1, keepdim=True)).norm(dim=1)
    assert stats.ks_2samp(fields.mean(dim=1), short[:, 0]).pvalue > 0.005
    assert stats.ks_2samp(deviation, short[:, 1:].norm(dim=1)).pvalue > 0.005


def test_white_noise_gives_wrong_weights_to_a_shared_shift() -> None:
    """Case 2, exact score on 128² nodes, the paper's sampler: .11/.38/.39/.11 instead of .25 each (4 standard errors).

    The noise of the mean over the nodes is 128 times smaller, so the first few steps of the cosine chain already determine
    the shift. In units of the standard deviation of the mixture the weights are .06/.44/.44/.06.
    """
    for unit, expected in ((2.2e-3, [0.113, 0.386, 0.389, 0.112]), (1.598e-3, [0.062, 0.438, 0.439, 0.061])):
        exact = case_2(White(), unit=unit)
        counts = exact.component(sampled(exact, "ancestral", 100, 4000)[:, 0, 0])
        np.testing.assert_allclose(counts / 4000, expected, atol=4 * np.sqrt(0.24 / 4000))
        assert stats.chisquare(counts).pvalue < 1e-12


def test_a_base_distribution_with_a_shift_gives_the_right_weights() -> None:
    """White() + LowModes(1), DPM-Solver++ with 40 steps: .25 each (χ² test at the 1 % level); all means are close to a mode."""
    exact = case_2(White() + LowModes(1))
    x = sampled(exact, "dpm", 40, 10_000)[:, 0, 0]
    assert stats.chisquare(exact.component(x)).pvalue > 0.01
    assert (x[:, None] - exact.means).abs().min(dim=1).values.max() < 0.05
