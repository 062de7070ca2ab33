"""Test 3, Burgers' equation on the periodic interval (`eqn:burgers`)

    u_t + speed·u u_x = viscosity·u_xx on [0, 1),   u(·, 0) = a,        a ~ N(0, 625(−Δ + 25)^(−2)), mean-free.

The data of the benchmark agree with u_t + u u_θ = 0.1 u_θθ on θ ∈ [0, 2π); with x = θ/2π this is speed = 1/2π and
viscosity = 0.1/4π². Periodic nodes x_i = i/points.

**Scheme.** Fourier in space, products dealiased by the 2/3 rule, ETDRK4 in time (Cox and Matthews, with the contour
integrals of Kassam and Trefethen).

**Error control.** Refinement level j has M = 64·2^j points and half the time step of the level before. A sample is refined
until two conditions hold: two consecutive levels agree to `rtol` at every requested time, and the modes of a that the finer
level truncates have at most the energy of those that it added to the coarser level, or a negligible energy. Without the second
condition two levels could agree although neither resolves a. The levels of a sample depend on that sample alone, so that its
solution does not depend on the batch.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import numpy as np
import scipy.fft as fft
from numpy.typing import ArrayLike, NDArray

from .._typing import Floats, Mask
from ..basis import fourier_values
from ..errors import UserError
from ..field import Field
from ..grid import Grid
from .base import Equation

__all__ = ["Burgers"]

Complex = NDArray[np.complex128]

MODES = 8191  # modes of the initial field on every grid: as many as 8192 points resolve
COURANT = 1.0  # time step · |speed·u| · k_max on every level; ETDRK4 is stable up to about 2.8
MIN_STEP_RATE = 8.0  # time steps per unit of time, at least
MIN_POINTS = 64  # points of the coarsest level
MAX_POINTS = 2**13  # points of the finest level
MAX_STEPS = 50_000  # time steps of a level: bounds the time of a solve that does not converge
MAX_REFINE = 4  # levels that `refine` may add
BLOCK = 64  # samples that are solved together, so that their coefficients fit the processor cache


@dataclass(frozen=True)
class Burgers(Equation):
    """Burgers' equation: initial condition a to solution u(·, t_final).

    Good values: points=512 to 2048 and the defaults (the benchmark of the paper); viscosity=0.01, speed=1 for steep fronts.
    """

    points: int = 1024
    viscosity: float = 0.1 / (4 * np.pi**2)
    speed: float = 1 / (2 * np.pi)
    t_final: float = 1.0
    rtol: float = 1e-7

    name: ClassVar[str] = "burgers"
    symmetries: ClassVar[tuple[str, ...]] = ("translation", "odd-reflection")

    def __post_init__(self) -> None:
        self._check_points(self.points, at_least=4)
        self._check_positive(viscosity=self.viscosity, speed=self.speed, t_final=self.t_final, rtol=self.rtol)
        if not 1e-12 <= self.rtol <= 1e-2:
            raise UserError(f"rtol = {self.rtol:g}: expected a tolerance from 1e-12 to 1e-2")

    @property
    def grid(self) -> Grid:
        return Grid.uniform(self.points, kind="periodic")

    def sample_input(self, count: int, seed: int = 0, first: int = 0) -> Floats:
        field = Field(tau=5.0, r=2.0, scale=625.0, condition="periodic", modes=MODES, mean_free=True)
        return field.sample(self.grid, count, seed, first)[:, None]

    def solve(self, a: ArrayLike, times: ArrayLike | None = None, refine: int = 0) -> Floats:
        """Return u(·, t_final), or u at other times.

        Args:
            a: initial conditions, (batch, 1, points) or (batch, points). If the number of points is even, the highest mode,
                whose phase the values do not determine, is dropped.
            times: times ≥ 0 in non-decreasing order; default: t_final.
            refine: refinement levels beyond those of the error control; each doubles the resolution and halves the time step.

        Returns:
            The layout of a, or (batch, len(times), points) if `times` is given.

        Raises:
            UserError: the error control needs too many points or time steps.
        """
        if refine not in range(MAX_REFINE + 1):
            raise UserError(f"refine = {refine!r}: expected 0 to {MAX_REFINE} further refinement levels")
        initial = self._as_fields(a, "a")[:, 0]
        instants = np.atleast_1d(np.asarray(self.t_final if times is None else times, dtype=np.float64))
        if instants.ndim != 1 or not instants.size or not (np.diff(instants, prepend=0.0) >= 0).all():
            raise UserError(f"times = {times!r}: expected one or more times ≥ 0 in non-decreasing order")
        u = np.empty((len(initial), len(instants), self.points))
        u[:, instants == 0] = initial[:, None]
        for block in _blocks(initial) if instants[-1] > 0 else ():
            u[block, instants > 0] = self._solve_adaptively(initial[block], instants[instants > 0], refine)
        return u.reshape(np.shape(a)) if times is None else u

    def residual(self, u: ArrayLike, a: ArrayLike) -> Floats:
        """Return u − S†(a) with S†(a) by the Cole–Hopf transform, u = −(2ν/c) φ_x/φ, φ_t = ν φ_xx: the error of the scheme.

        The transform needs no time steps, but loses digits if φ varies by many orders of magnitude.

        Raises:
            UserError: φ varies by too many orders of magnitude.
        """
        v, initial = self._as_pair(u, a)
        r = v.copy()
        for block in _blocks(initial):
            r[block, 0] -= cole_hopf(initial[block, 0], self.t_final, self.viscosity, self.speed)
        return r.reshape(np.shape(u))

    def _solve_adaptively(self, a: Floats, instants: Floats, refine: int) -> Floats:
        """Return solutions (batch, times, points), each from the first level that satisfies both conditions."""
        u = np.empty((len(a), len(instants), self.points))
        amplitude = np.abs(a).max(axis=-1)
        rounded = np.where(amplitude > 0, 2.0 ** np.ceil(np.log2(np.maximum(amplitude, 1e-300))), 0.0)  # to a power of two
        for bound in np.unique(rounded):
            active = np.flatnonzero(rounded == bound)
            points = MIN_POINTS
            self._check_effort(points, bound, instants[-1])
            coarse = self._integrate(a[active], instants, points, bound)
            while active.size:
                points *= 2
                self._check_effort(points, bound, instants[-1])
                fine = self._integrate(a[active], instants, points, bound)
                done = (_difference(fine, coarse) <= self.rtol) & _is_resolved(a[active], points // 3, self.rtol)
                best = self._integrate(a[active[done]], instants, points << refine, bound) if refine else fine[done]
                u[active[done]] = _values(best, self.points)
                active, coarse = active[~done], fine[~done]
        return u

    def _check_effort(self, points: int, amplitude: float, time: float) -> None:
        """Raise UserError if a level needs too many points or too many time steps."""
        if points > MAX_POINTS or not self._steps(points, amplitude, time) <= MAX_STEPS:
            raise UserError(
                f"Burgers did not converge to rtol = {self.rtol:g} within {MAX_POINTS} points and {MAX_STEPS} time steps: "
                f"viscosity = {self.viscosity:g} is too small for an amplitude of {amplitude:g} at speed = {self.speed:g}"
            )

    def _steps(self, points: int, amplitude: float, time: float) -> float:
        """Return the number of time steps of a level for a time span, from the Courant number and the minimal rate."""
        return float(np.ceil(time * max(self.speed * amplitude * 2 * np.pi * (points // 3) / COURANT, MIN_STEP_RATE)))

    def _integrate(self, a: Floats, instants: Floats, points: int, amplitude: float) -> Complex:
        """Return the Fourier coefficients at the instants, stable for |u| ≤ amplitude: (batch, times, points//3 + 1)."""
        top = points // 3  # the 2/3 rule
        k = 2 * np.pi * np.arange(top + 1, dtype=np.float64)
        v = np.zeros((len(a), top + 1), dtype=np.complex128)
        highest = min(top, (a.shape[-1] - 1) // 2)  # mode that the values of a determine
        v[:, : highest + 1] = fft.rfft(a, norm="forward")[:, : highest + 1]
        out = np.empty((len(a), len(instants), top + 1), dtype=np.complex128)
        now = 0.0
        for i, t in enumerate(instants):
            steps = int(self._steps(points, amplitude, t - now))
            if steps:
                v = _etdrk4(v, k, (t - now) / steps, steps, self.viscosity, self.speed, points)
            out[:, i], now = v, t
        return out


def _blocks(samples: Floats) -> Iterator[slice]:
    """Yield slices of at most BLOCK samples."""
    for first in range(0, len(samples), BLOCK):
        yield slice(first, first + BLOCK)


def cole_hopf(a: Floats, t: float, viscosity: float, speed: float, oversample: int = 8) -> Floats:
    """Return the solution at time t by the Cole–Hopf transform in Fourier space.

    A mean m of the initial values moves the solution at velocity speed·m (Galilean invariance).

    Args:
        a: initial values, (batch, points).
        oversample: points of the transform per max(points, 512).

    Returns:
        (batch, points).

    Raises:
        UserError: the transform spans too many orders of magnitude.
    """
    points = a.shape[-1]
    fine = oversample * max(points, 512)
    f = np.zeros((len(a), fine // 2 + 1), dtype=np.complex128)
    f[:, : (points + 1) // 2] = fft.rfft(a, norm="forward")[:, : (points + 1) // 2]
    mean = f[:, :1].real.copy()
    k = 2 * np.pi * np.arange(f.shape[-1])
    f[:, 0] = 0
    f[:, 1:] /= 1j * k[1:]  # the integral of a
    exponent = -speed / (2 * viscosity) * fft.irfft(f, fine, norm="forward")
    exponent -= exponent.max(axis=-1, keepdims=True)
    phi = fft.rfft(np.exp(exponent), norm="forward") * np.exp(-viscosity * k**2 * t)
    phi = phi * np.exp(-1j * k * speed * mean * t)
    values, slope = fft.irfft(phi, fine, norm="forward"), fft.irfft(1j * k * phi, fine, norm="forward")
    if not (values > 1e-13 * values.max(axis=-1, keepdims=True)).all():
        raise UserError(
            f"the Cole–Hopf transform spans too many orders of magnitude at viscosity = {viscosity:g}; "
            "use a larger viscosity or a later time"
        )
    u = mean - 2 * viscosity / speed * slope / values
    return _values(fft.rfft(u, norm="forward"), points)


def _values(v: Complex, points: int) -> Floats:
    """Return the values of real functions with Fourier coefficients v_k, k ≥ 0: (…, modes) → (…, points)."""
    f = 2 * v
    f[..., 0] = v[..., 0]
    return fourier_values(f, points)


def _difference(fine: Complex, coarse: Complex) -> Floats:
    """Return the relative L² difference of two levels, the maximum over the times: (batch,)."""
    difference = fine.copy()
    difference[..., : coarse.shape[-1]] -= coarse
    gap, size = np.linalg.norm(difference, axis=-1), np.linalg.norm(fine, axis=-1)
    return np.asarray((gap / np.where(size > 0, size, 1.0)).max(axis=-1))


def _is_resolved(a: Floats, top: int, rtol: float) -> Mask:
    """Test whether modes of a above `top` have at most the energy of those in (top/2, top], or negligible energy: (batch,)."""
    energy = np.abs(fft.rfft(a, norm="forward")[:, : (a.shape[-1] + 1) // 2]) ** 2
    truncated, added = energy[:, top + 1 :].sum(axis=-1), energy[:, top // 2 + 1 : top + 1].sum(axis=-1)
    return np.asarray(truncated <= np.maximum(added, rtol**2 * energy.sum(axis=-1)))


def _etdrk4(v: Complex, k: Floats, dt: float, steps: int, viscosity: float, speed: float, points: int) -> Complex:
    """Take time steps of ETDRK4 for v_t = −ν k² v + N(v), N(v) = −½ c ik (u²)^: (batch, modes) → (batch, modes)."""
    full, half, q, f1, f2, f3 = _etd_weights(len(k), dt, viscosity)
    ik = -0.5j * speed * k

    def nonlinear(w: Complex) -> Complex:
        u = fft.irfft(w, points, norm="forward")
        u *= u
        return np.asarray(ik * fft.rfft(u, norm="forward")[:, : len(k)])

    for _ in range(steps):
        n_v = nonlinear(v)
        x = half * v + q * n_v
        n_x = nonlinear(x)
        y = half * v + q * n_x
        n_y = nonlinear(y)
        z = half * x + q * (2 * n_y - n_v)
        v = full * v + f1 * n_v + 2 * f2 * (n_x + n_y) + f3 * nonlinear(z)
    return v


@lru_cache(maxsize=256)
def _etd_weights(modes: int, dt: float, viscosity: float) -> tuple[Floats, ...]:
    """Return e^z, e^{z/2} and the four weights of ETDRK4, z = −ν k² dt, as means over a circle around z (no cancellation)."""
    z = -viscosity * (2 * np.pi * np.arange(modes)) ** 2 * dt
    circle = np.exp(1j * np.pi * (np.arange(1, 33) - 0.5) / 32)
    w = z[:, None] + circle
    e = np.exp(w)
    q = (np.exp(w / 2) - 1) / w
    f1 = (-4 - w + e * (4 - 3 * w + w**2)) / w**3
    f2 = (2 + w + e * (w - 2)) / w**3
    f3 = (-4 - 3 * w - w**2 + e * (4 - w)) / w**3
    return np.exp(z), np.exp(z / 2), *(dt * f.mean(axis=1).real for f in (q, f1, f2, f3))
