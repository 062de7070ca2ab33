"""Eight simulations with a few scalar parameters and a field as output, for `benchmarks.runs`.

Each problem has a box of parameters and a solver of many runs at once: parameters (run, parameter) ↦ fields (run, *grid).
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp
from scipy.stats import qmc

import pdno
from pdno._typing import Floats

__all__ = ["PROBLEMS", "Problem"]

Complex = NDArray[np.complex128]
SIDE = 50  # points of a field along each axis of a plane
POINTS = 200  # points of a field on a line


@dataclass(frozen=True)
class Problem:
    """A simulation.

    Args:
        low, high: box of the parameters.
        solve: parameters (run, parameter) ↦ fields (run, *grid).
        noise: standard deviation of independent noise, relative to that of all outputs.
    """

    low: tuple[float, ...]
    high: tuple[float, ...]
    solve: Callable[[Floats], Floats]
    noise: float = 0.0

    def design(self, count: int, seed: int) -> Floats:
        """Return a Latin hypercube in the box, (run, parameter)."""
        return np.asarray(qmc.scale(qmc.LatinHypercube(len(self.low), rng=seed).random(count), self.low, self.high))

    def uniform(self, count: int, seed: int) -> Floats:
        """Return independent parameters, uniform in the box."""
        return np.random.default_rng(seed).uniform(self.low, self.high, (count, len(self.low)))

    def observed(self, parameters: Floats, seed: int) -> Floats:
        """Return the fields of runs, with noise if there is any."""
        u = self.solve(parameters)
        return np.asarray(u + self.noise * u.std() * np.random.default_rng(seed).normal(size=u.shape))


def reaction(p: Floats) -> Floats:
    """Return u at time 10 of a λ–ω system that forms a spiral; parameters: rotation β, diffusivity d.

    u' = (1 − A) u + β A v + d Δu, v' = (1 − A) v − β A u + d Δv, A = u² + v², periodic with a period of 20.
    """
    beta, d = (x[:, None, None] for x in p.T)
    x = 20 * (np.arange(SIDE) / SIDE - 0.5)
    z = x[:, None] + 1j * x
    w = np.broadcast_to(np.tanh(np.abs(z)) * np.exp(1j * (np.angle(z) - np.abs(z))), (len(p), SIDE, SIDE))
    k = 2 * np.pi * np.fft.fftfreq(SIDE, 20 / SIDE)
    step = 0.05
    decay = np.exp(-step * d * (k[:, None] ** 2 + k**2) / 2)

    def rate(w: Complex) -> Complex:
        a = np.abs(w) ** 2
        return np.asarray((1 - a) * w - 1j * beta * a * w)

    for _ in range(200):  # Strang splitting
        w = np.fft.ifft2(decay * np.fft.fft2(w))
        half = w + step / 2 * rate(w)
        w = np.fft.ifft2(decay * np.fft.fft2(w + step * rate(half)))
    return np.asarray(w.real)


def heat(p: Floats) -> Floats:
    """Return the temperature of an insulated plate with a Gaussian source; parameters: position, width, diffusivity."""
    x0, y0, width, kappa = (x[:, None, None] for x in p.T)
    x = (np.arange(SIDE) + 0.5) / SIDE
    source = np.exp(-((x[:, None] - x0) ** 2 + (x - y0) ** 2) / (2 * width**2))
    k, plane = np.pi * np.arange(SIDE), (False, False)
    rate = kappa * (k[:, None] ** 2 + k**2) + 1e-12
    modes = pdno.basis.modes(source[:, None], plane)[:, 0]
    return pdno.basis.fields((-np.expm1(-0.2 * rate) / rate * modes)[:, None], plane)[:, 0]


def burgers(p: Floats) -> Floats:
    """Return u at time 0.5 of Burgers' equation from A sin 2πx, by the formula of Cole and Hopf; parameters: A, log₁₀ ν."""
    a, nu = p[:, 0, None, None], 10 ** p[:, 1, None, None]
    x, y = np.arange(POINTS) / POINTS, np.arange(-150, 250) / 100
    exponent = -((x[:, None] - y) ** 2 / (4 * 0.5 * nu)) - a * (1 - np.cos(2 * np.pi * y)) / (4 * np.pi * nu)
    weights = np.exp(exponent - logsumexp(exponent, axis=2, keepdims=True))
    return np.asarray((weights * (x[:, None] - y)).sum(axis=2) / 0.5)


def darcy(p: Floats) -> Floats:
    """Return the pressure of Darcy flow with a log-permeability of eight cosine modes; parameters: their coefficients."""
    x = np.pi * (np.arange(SIDE) + 0.5) / SIDE
    orders = [(0, 1), (1, 0), (1, 1), (0, 2), (2, 0), (1, 2), (2, 1), (2, 2)]
    waves = np.stack([np.cos(i * x)[:, None] * np.cos(j * x) / (i * i + j * j) ** 0.5 for i, j in orders])
    a = np.exp(np.tensordot(p, waves, axes=1))[:, None]
    return np.asarray(pdno.equation.Darcy(points=SIDE).solve(a))[:, 0]


def duffing(p: Floats) -> Floats:
    """Return the path of a damped ball between two wells, which of them it ends in depends on the start.

    Parameters: initial velocity, damping, tilt.
    """
    velocity, damping, tilt = p.T
    state, step, path = np.stack([np.zeros(len(p)), velocity]), 0.05, []

    def rate(s: Floats) -> Floats:
        return np.stack([s[1], -damping * s[1] + s[0] - s[0] ** 3 + tilt])

    for i in range(4 * POINTS):
        half = state + step / 2 * rate(state)
        state = state + step * rate(half)
        path += [state[0]] if i % 4 == 3 else []
    return np.stack(path, axis=1)


def barenblatt(p: Floats) -> Floats:
    """Return the porous-medium solution of Barenblatt, with a kink at its front; parameters: time, size, exponent m."""
    t, size, m = (x[:, None] for x in p.T)
    beta = 1 / (m + 1)
    k, x = beta * (m - 1) / (2 * m), np.linspace(-2, 2, POINTS)
    return np.asarray(t**-beta * np.maximum(size - k * (x * t**-beta) ** 2, 0) ** (1 / (m - 1)))


def fisher(p: Floats) -> Floats:
    """Return a population that spreads, u' = d u″ + r u (1 − u), at time 6; parameters: d, r, width of the first colony."""
    d, r, width = (x[:, None] for x in p.T)
    x, step = 20 * (np.arange(POINTS) + 0.5) / POINTS, 0.05
    u = 0.5 * (1 - np.tanh(x - width))
    decay = np.exp(-step * d * (np.pi * np.arange(POINTS) / 20) ** 2)
    for _ in range(120):
        u = pdno.basis.fields(decay[:, None] * pdno.basis.modes(u[:, None], (False,)), (False,))[:, 0]
        u = u / (u + (1 - u) * np.exp(-step * r))  # the logistic equation, exactly
    return np.asarray(u)


def fin(p: Floats) -> Floats:
    """Return the temperature of a fin; parameters: loss, inflow, outer temperature, one without effect, tip."""
    loss, inflow, outer, _, tip = (x[:, None] for x in p.T)
    x = (np.arange(POINTS) + 0.5) / POINTS
    m = np.sqrt(loss)
    b = (tip - outer + inflow * np.sinh(m) / m) / np.cosh(m)
    return np.asarray(outer + b * np.cosh(m * x) - inflow * np.sinh(m * x) / m)  # u(1) = tip, −u'(0) = inflow


PROBLEMS: dict[str, Problem] = {
    "reaction": Problem((1.0, 0.05), (2.0, 0.3), reaction),
    "heat": Problem((0.2, 0.2, 0.05, 0.1), (0.8, 0.8, 0.2, 1.0), heat),
    "burgers": Problem((0.2, -2.0), (1.0, -0.7), burgers),
    "darcy": Problem((-1.0,) * 8, (1.0,) * 8, darcy),
    "bifurcation": Problem((0.5, 0.1, -0.1), (2.0, 0.5, 0.1), duffing),
    "kink": Problem((0.5, 0.1, 2.0), (2.0, 0.5, 4.0), barenblatt),
    "noise": Problem((0.2, 0.5, 1.0), (1.5, 1.5, 5.0), fisher, noise=0.01),
    "irrelevant": Problem((0.5, 0.5, -1.0, 0.0, -1.0), (30.0, 3.0, 1.0, 1.0, 1.0), fin),
}
