"""Section 3.2 of the paper: the Ornstein–Uhlenbeck process with a trace-class base distribution, on closed forms and on meshes.

For U(0) ~ N(S†(a), λ𝒞) all modes have the same gain, whatever 𝒞: U(t) ~ N(e^(−t/2) S†(a), (λ e^(−t) + 1 − e^(−t)) 𝒞). The
equivalence of the objectives (`thm:DSM-objective-continuous-infinite` and its corollary) is in test_chain.py, for each base.
"""

import numpy as np
import pytest
import torch
from torch import Tensor

from pdno import Field, Grid
from pdno.diffusion.base import FieldBase, LowModes, White, as_base
from pdno.diffusion.chain import Diffusion
from pdno.diffusion.reverse import variance
from pdno.diffusion.samplers import SAMPLERS, ancestral
from pdno.diffusion.schedule import Schedule
from pdno.grid import interpolate

T, N = 10.0, 50
OU = Schedule.ornstein_uhlenbeck(N, T)
FIELDS = [Field(tau=3, r=2), Field(tau=5, r=1.5, condition="periodic")]
each_field = pytest.mark.parametrize("field", FIELDS, ids=["neumann", "periodic"])


def solution(grid: Grid) -> Tensor:
    """Return S†(a) at the nodes of a grid: (1, 1, *grid)."""
    return torch.as_tensor(np.cos(2 * np.pi * grid.mesh()[0]))[None, None]


def denoiser(schedule: Schedule, mean: Tensor, lam: float):
    """Return (n, v, a) ↦ E[U_0 | U_n = v] for N(mean, λ𝒞)."""

    def denoise(n: int, v: Tensor, a: None) -> Tensor:
        gamma = float(schedule.gamma[n])
        return mean + gamma**0.5 * lam / (gamma * lam + 1 - gamma) * (v - gamma**0.5 * mean)

    return denoise


def error(schedule: Schedule, lam: float) -> np.ndarray:
    """Return e_n of this denoiser."""
    return schedule.gamma * lam / np.maximum(schedule.gamma * lam + 1 - schedule.gamma, 1e-300)


def reversed_chain(base, points: int, lam: float, seed: int, t_start: int = 0, steps: int | None = None) -> np.ndarray:
    """Return 400 draws of the reverse chain on a grid, with the scale of the base distribution on 16 points."""
    chain, nested = OU.subchain(steps, t_start), as_base(base).nested((16,))
    mean = solution(nested.grid((points,)))

    def noise(n: int) -> Tensor:
        return torch.as_tensor(nested.sample((1, points), 400, seed, step=n))

    var = variance("analytic", chain, error(OU, lam))
    return ancestral(denoiser(OU, mean, lam), noise(0), None, chain, var, noise).numpy()


def test_the_process_has_the_decay_of_the_paper() -> None:
    """U(t) = e^(−t/2) U(0) + √(1 − e^(−t)) ε at t_n = n T/N."""
    t, diffusion = T * np.arange(N + 1) / N, Diffusion(OU)
    np.testing.assert_allclose(OU.gamma, np.exp(-t), rtol=1e-12)
    np.testing.assert_allclose(OU.gamma, Schedule.from_alpha(lambda t: 1.0, T, N).gamma, rtol=1e-9)
    u0, eps = torch.tensor([[[1.0]], [[0.0]]]).double(), torch.tensor([[[0.0]], [[1.0]]]).double()
    for n in (1, 17, N):
        np.testing.assert_allclose(diffusion.forward(n, u0, eps).ravel(), [np.exp(-t[n] / 2), np.sqrt(1 - np.exp(-t[n]))])


@pytest.mark.parametrize("lam", [0.0, 0.3, 1.0])
def test_one_step_is_the_reverse_equation_to_first_order(lam) -> None:
    """`eqn:reverse-SDE-infinite`: E[V(t + Δt) | V(t) = v] − v = (½ v + Ψ(T − t, v)) Δt + O(Δt²), with the variance Δt + O(Δt²).

    The errors fall by 4 when Δt is halved.
    """
    v, mean = torch.linspace(-2, 2, 5, dtype=torch.float64)[:, None, None], torch.full((1, 1, 1), 0.7).double()
    errors = []
    for steps in (200, 400, 800):
        schedule, n, dt = Schedule.ornstein_uhlenbeck(steps, 2.0), steps // 2, 2.0 / steps  # at t = 1
        diffusion, u0 = Diffusion(schedule), denoiser(schedule, mean, lam)(n, v, None)
        drift = 0.5 * v + diffusion.score(n, v, u0)
        step = diffusion.reverse_mean(n, v, u0) - v - dt * drift
        spread = variance("analytic", schedule, error(schedule, lam))[n] - dt
        errors.append([float(step.abs().max()), abs(spread)])
    ratios = np.divide(errors[:-1], errors[1:])
    np.testing.assert_allclose(ratios, 4, rtol=0.05)


@each_field
@pytest.mark.parametrize("lam", [0.0, 0.3, 1.0, 4.0])
@pytest.mark.parametrize("steps", [5, N])
def test_the_reverse_chain_ends_in_the_distribution_of_the_data(field, lam, steps) -> None:
    """N(S†(a), λ𝒞) for the noise-free case λ = 0, and for λ > 0; χ² of whitened values and mean (false alarms: 1e-4 each).

    V_N ~ N(0, 𝒞) differs from U_N by e^(−T/2) = .007 in the mean, which the chain reduces to less than .01 standard deviations.
    """
    base = FieldBase(field)
    u = reversed_chain(field, 16, lam, seed=1, steps=steps) - solution(base.grid((16,))).numpy()
    if lam == 0:
        np.testing.assert_allclose(u, 0, atol=1e-12)
        return
    white = base.inverse_sqrt(u, 1) / np.sqrt(lam)
    assert abs((white**2).mean() - 1) < 3.9 * np.sqrt(2 / white.size) + 1e-3
    assert np.abs(white.mean(axis=0)).max() < 4.5 / np.sqrt(len(white)) + 0.02


@each_field
@pytest.mark.parametrize("t_start", [1, 10])
def test_the_noise_free_chain_ends_at_t_start_in_a_narrow_gaussian(field, t_start) -> None:
    """`remark:noise-free-OL`: U(t_start) ~ N(e^(−t/2) S†(a), (1 − e^(−t)) 𝒞)."""
    base, gamma = FieldBase(field), OU.gamma[t_start]
    u = reversed_chain(field, 16, 0.0, seed=2, t_start=t_start) - np.sqrt(gamma) * solution(base.grid((16,))).numpy()
    white = base.inverse_sqrt(u, 1) / np.sqrt(1 - gamma)
    assert abs((white**2).mean() - 1) < 3.9 * np.sqrt(2 / white.size) + 1e-3


def test_the_noise_free_score_has_no_limit_at_time_zero() -> None:
    """`eqn:noise-free-estimates`: (1 − e^(−t)) E‖Ψ‖² = Tr 𝒞 at every t, so that E‖Ψ‖² is not bounded as t → 0."""
    diffusion, mean = Diffusion(OU, FIELDS[0]), torch.zeros(1, 1, 16).double()
    root = as_base(FIELDS[0]).sqrt(4 * np.eye(16), 1)
    eps = torch.as_tensor(np.concatenate([root, -root])[:, None])  # with exactly the covariance 𝒞
    squares = [(diffusion.score(n, diffusion.forward(n, mean, eps), mean) ** 2).sum(-1).mean() for n in (1, 10, N)]
    np.testing.assert_allclose(squares, 16 / (1 - OU.gamma[[1, 10, N]]), rtol=1e-9)
    assert float(squares[0]) > 5 * float(squares[-1])


@pytest.mark.parametrize("dim", [1, 2])
def test_the_trace_of_a_field_has_a_limit_and_that_of_white_noise_has_none(dim) -> None:
    """Σ_j λ_j, with the variances of 8 points on each grid: E‖Ψ‖² is finite in function space for a trace-class 𝒞 only."""
    traces = {}
    for base in (FieldBase(Field(tau=3, r=2)), White()):
        nested, grids = base.nested((8,) * dim), [(8 * 2**k,) * dim for k in range(4)]
        traces[base] = [float(nested.eigenvalues(nested.grid(points)).sum()) for points in grids]
    field, white = traces.values()
    np.testing.assert_allclose(white, [2.0 ** (dim * k) for k in range(4)])
    changes = np.abs(np.diff(field))
    assert field[-1] < 1.05
    assert (changes[1:] < changes[:-1] / 1.8).all()


@pytest.mark.parametrize("base", [*FIELDS, FIELDS[0] + LowModes(2)], ids=["neumann", "periodic", "sum"])
def test_a_member_is_one_function_on_every_mesh(base) -> None:
    """All steps of a chain with the exact denoiser: low modes on 16 points are those on 48, in each member."""
    coarse, fine = (reversed_chain(base, points, 0.3, seed=3, steps=8) for points in (16, 48))
    kind = "periodic" if as_base(base).condition == "periodic" else "cell"
    source, target = (Grid.uniform(points, kind=kind) for points in (48, 16))
    there = interpolate(fine, source, target.with_points(15), "spectral")
    here = interpolate(coarse, target, target.with_points(15), "spectral")
    np.testing.assert_allclose(here, there, atol=1e-9)


def test_without_the_scale_of_one_grid_it_is_not() -> None:
    """The test above can fail: the mean pointwise variance of each grid is 1, so that draws are scaled differently."""
    base, low = FieldBase(Field(tau=3, r=1)), []
    for points in (16, 48):
        c = base.field.coefficients(base.sample((1, points), 5, seed=0)[:, 0], base.grid((points,)))
        low.append(c[:, :15])
    assert np.abs(low[0] / low[1] - 1).min() > 1e-3


@pytest.mark.parametrize("name", list(SAMPLERS))
def test_nested_draws_of_the_training_grid_are_unchanged(name) -> None:
    """Bit for bit, in every sampler: models that were trained before have the same members."""
    chain, base = OU.subchain(5), FieldBase(FIELDS[0])
    var = variance("analytic", chain, error(OU, 0.3))
    ends = []
    for law in (base, base.nested((16,))):

        def noise(n: int, law=law) -> Tensor:
            return torch.as_tensor(law.sample((1, 16), 3, 0, step=n))

        ends.append(SAMPLERS[name](denoiser(OU, solution(base.grid((16,))), 0.3), noise(0), None, chain, var=var, noise=noise))
    assert torch.equal(*ends)
