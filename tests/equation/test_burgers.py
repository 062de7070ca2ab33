"""Test 3 against Cole–Hopf solutions, published data and refined solutions."""

from pathlib import Path

import numpy as np
import pytest

from pdno import UserError
from pdno.equation import Burgers
from pdno.equation.burgers import _etdrk4, cole_hopf

PUBLISHED = Path(__file__).parents[3] / "shared" / "data" / "burgers_neuralop" / "burgers.npz"


def exact(x: np.ndarray, t: float, viscosity: float, speed: float, depth: float = 0.9) -> np.ndarray:
    """Return the solution u = −(2ν/c) φ_x/φ for φ = 1 + depth·e^{−4π²νt} cos 2πx."""
    decay = depth * np.exp(-4 * np.pi**2 * viscosity * t)
    return 2 * viscosity / speed * 2 * np.pi * decay * np.sin(2 * np.pi * x) / (1 + decay * np.cos(2 * np.pi * x))


@pytest.mark.parametrize(("viscosity", "speed"), [(0.1 / (4 * np.pi**2), 1 / (2 * np.pi)), (0.01, 1.0), (0.1, 2.0)])
@pytest.mark.parametrize("points", [64, 100, 513])
def test_cole_hopf_solution(viscosity, speed, points) -> None:
    eq = Burgers(points=points, viscosity=viscosity, speed=speed)
    x = eq.grid.axes[0].nodes
    times = np.array([0.0, 0.3, 1.0])
    u = eq.solve(exact(x, 0, viscosity, speed)[None], times=times)[0]
    truth = np.stack([exact(x, t, viscosity, speed) for t in times])
    error = np.linalg.norm(u - truth, axis=1) / np.linalg.norm(truth, axis=1)
    assert (error < 1e-6).all(), error
    np.testing.assert_allclose(cole_hopf(u[:1], 1.0, viscosity, speed)[0], truth[2], atol=1e-9)


def test_mean_of_the_initial_condition_shifts_the_solution() -> None:
    """Galilean invariance: the solution from a + m is m + u(x − c·m·t); c·m·t = ¼ shifts by a quarter of the points."""
    eq = Burgers(points=128)
    a = eq.sample_input(3, seed=0)
    m = 0.25 / eq.speed
    moved = m + np.roll(eq.solve(a), 32, axis=-1)
    np.testing.assert_allclose(eq.solve(a + m), moved, atol=1e-6)
    np.testing.assert_allclose(eq.residual(moved, a + m), 0, atol=1e-6)


def test_benchmark_does_not_change_when_resolution_is_doubled_and_the_step_halved() -> None:
    eq = Burgers(points=2048)
    a = eq.sample_input(8, seed=1)
    u, finer = eq.solve(a), eq.solve(a, refine=1)
    change = np.linalg.norm(u - finer, axis=-1) / np.linalg.norm(finer, axis=-1)
    assert change.max() < 1e-5
    assert change.max() > 0  # the finer solve is another computation
    residual = np.linalg.norm(eq.residual(u, a), axis=-1) / np.linalg.norm(u, axis=-1)
    assert residual.max() < eq.rtol


@pytest.mark.skipif(not PUBLISHED.exists(), reason=f"the published data are not at {PUBLISHED}")
def test_published_data() -> None:
    """Every fourth of 1200 samples of another group's solver, viscosity 0.01, 16 points: the mean error at each of 17 times."""
    with np.load(PUBLISHED) as file:
        a, truth = (np.concatenate([file[f"{name}_train"], file[f"{name}_test"]])[::4] for name in ("u0", "u"))
    eq = Burgers(points=16, viscosity=0.01, speed=1.0, t_final=0.96)
    u = eq.solve(a, times=0.06 * np.arange(17))
    assert u.shape == truth.shape == (300, 17, 16)
    error = (np.linalg.norm(u - truth, axis=-1) / np.linalg.norm(truth, axis=-1)).mean(axis=0)
    assert error.max() < 5e-4, error


@pytest.mark.parametrize(
    ("wave", "t_final"),
    [(lambda x: np.sin(2 * np.pi * x) + 0.3 * np.sin(120 * np.pi * x), 0.005), (lambda x: 1 + np.sin(100 * np.pi * x), 0.01)],
)
def test_modes_that_coarse_levels_do_not_resolve_are_kept(wave, t_final) -> None:
    """Inputs with a gap in their spectrum: the solutions on 64 and on 128 points agree and are both wrong."""
    eq = Burgers(points=1024, t_final=t_final)
    a = wave(eq.grid.axes[0].nodes)[None]
    u = eq.solve(a)
    assert np.linalg.norm(eq.residual(u, a)) < 1e-6 * np.linalg.norm(u)


def test_integrator_has_order_four() -> None:
    """ETDRK4 at a fixed resolution against a reference with 512 steps."""
    x = np.arange(64) / 64
    v = np.fft.rfft(exact(x, 0, 0.02, 1.0)[None], norm="forward")[:, :22]
    k = 2 * np.pi * np.arange(22.0)

    def integrate(steps: int) -> np.ndarray:
        return _etdrk4(v, k, 1.0 / steps, steps, 0.02, 1.0, 64)

    reference = integrate(512)
    errors = [np.linalg.norm(integrate(steps) - reference) for steps in (8, 16, 32)]
    orders = np.log2(np.divide(errors[:-1], errors[1:]))
    assert (orders > 3.7).all(), orders


def test_times() -> None:
    eq = Burgers(points=512)
    a = eq.sample_input(2, seed=2)
    u = eq.solve(a, times=[0.0, 0.5, 0.5, 1.0])
    assert u.shape == (2, 4, 512)
    np.testing.assert_array_equal(u[:, :1], a)
    np.testing.assert_array_equal(eq.solve(a, times=[0.0]), a)
    np.testing.assert_array_equal(u[:, 1], u[:, 2])
    np.testing.assert_allclose(u[:, 3:], eq.solve(a), rtol=0, atol=1e-7)
    np.testing.assert_allclose(u.mean(axis=-1), a.mean(axis=-1).repeat(4, axis=1), atol=1e-12)  # the mean is conserved


def test_solve_that_does_not_converge_is_rejected(monkeypatch) -> None:
    monkeypatch.setattr("pdno.equation.burgers.MAX_POINTS", 256)
    eq = Burgers(points=8, viscosity=1e-5, speed=1.0)
    with pytest.raises(UserError, match=r"did not converge .* within 256 points .* viscosity = 1e-05 is too small"):
        eq.solve(np.sin(2 * np.pi * eq.grid.axes[0].nodes)[None])


def test_residual_that_cannot_be_computed_is_rejected() -> None:
    eq = Burgers(points=64, viscosity=1e-3, speed=1.0)
    a = eq.sample_input(4, seed=4)
    with pytest.raises(UserError, match="orders of magnitude"):
        eq.residual(a, a)


@pytest.mark.parametrize("factor", [1e5, 1e200])
def test_excessive_amplitude_is_rejected_at_once(factor) -> None:
    eq = Burgers(points=32)
    with pytest.raises(UserError, match="is too small for an amplitude"):
        eq.solve(factor * eq.sample_input(1))


def test_zero_stays_zero() -> None:
    assert (Burgers(points=16).solve(np.zeros((1, 1, 16))) == 0).all()


def test_initial_conditions_have_the_spectrum_of_the_benchmark() -> None:
    """Cosine and sine amplitudes of wavenumber k have std √2·25/((2πk)² + 25); the mean is zero (5 standard errors)."""
    count = 1000
    f = np.fft.rfft(Burgers(points=8192).sample_input(count, seed=3)[:, 0], norm="forward")
    np.testing.assert_allclose(f[:, 0], 0, atol=1e-12)
    for k in (1, 2, 5, 17):
        std = np.sqrt(2) * 25 / ((2 * np.pi * k) ** 2 + 25)
        for amplitude in (2 * f[:, k].real, -2 * f[:, k].imag):
            assert abs(amplitude.std() / std - 1) < 5 / np.sqrt(2 * count)
