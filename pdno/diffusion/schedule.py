r"""The noise schedule β_n, γ_n of the forward chain, and its sub-chains.

    U_n = √(1−β_n) U_{n−1} + √β_n ε_n,        γ_n = Π_{i≤n} (1−β_i),        β_n = 1 − γ_n/γ_{n−1}    (`eqn:forward-transition`)

Indices are those of the paper: n = 1 … N, and γ_0 = 1, so arrays have N + 1 entries and entry 0 of β is 0. A sub-chain keeps
a subset of the steps. Its β is that of the transition between two kept steps, so every formula in β and γ also holds on a
sub-chain.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray
from scipy.integrate import quad

from .._typing import Floats
from ..errors import UserError, nearest

__all__ = ["Schedule", "Spacing", "noise_range"]

Spacing = Literal["even", "quadratic", "error"]
LAST_TIME = 0.999  # of flow matching
MAX_BETA = 0.999  # upper bound of every β_n, so that γ_N > 0
SHARED = 5.0  # largest noise level / (√d × standard deviation): what a field shares is then lost in noise but for 2 % of it
LEAST_HIGH = 40.0  # smallest value of the largest noise level: U_N has 1/40 of the mean of the data
RESOLVED = 3.0  # width of the narrowest mode / smallest noise level
NARROWEST = 0.012  # default of this width, in standard deviations of the data
CONTRACTION = 0.5  # weight of equal contraction in the spacing "error", beside even spacing


@dataclass(frozen=True, eq=False)
class Schedule:
    """The values γ along a chain, and the step numbers n that are passed to the network.

    Args:
        gamma: γ from the clean end to the noisy end: strictly decreasing, in (0, 1].
        n: number of each step in the full chain; default: 0 … N.

    Raises:
        UserError: if γ does not decrease within (0, 1], or if the numbers n do not increase from γ = 1 at n = 0.

    >>> chain = Schedule.cosine(100)
    >>> print(f"{chain.beta[1]:.3g} {chain.gamma[50]:.3g} {chain.gamma[100]:.3g}")
    0.000631 0.494 2.43e-07
    >>> chain.subchain(5).n.tolist()
    [0, 20, 40, 60, 80, 100]
    """

    gamma: Floats
    n: NDArray[np.int64]

    def __init__(self, gamma: Any, n: Any = None) -> None:
        g = np.asarray(gamma, dtype=np.float64)
        numbers = np.arange(g.size) if n is None else np.asarray(n, dtype=np.int64)
        if g.ndim != 1 or g.size < 2 or not (np.diff(g) < 0).all() or not (g[-1] > 0 and g[0] <= 1):
            raise UserError("a schedule needs γ_0 > γ_1 > … > γ_N with at least one step, in (0, 1]")
        if numbers.shape != g.shape or not (np.diff(numbers) > 0).all() or (numbers[0] == 0) != (g[0] == 1):
            raise UserError("a schedule needs one number n for each γ, in ascending order, and γ = 1 at number 0 only")
        object.__setattr__(self, "gamma", g)
        object.__setattr__(self, "n", numbers)

    @classmethod
    def cosine(cls, n_steps: int = 100) -> "Schedule":
        """Return the cosine schedule: f(t) = cos²((t/N + .008)/1.008·π/2), β_n = 1 − f(n)/f(n−1), at most .999."""
        _check_n_steps(n_steps)
        t = np.arange(n_steps + 1) / n_steps
        f = np.cos((t + 0.008) / 1.008 * np.pi / 2) ** 2
        return cls.from_beta(np.minimum(1 - f[1:] / f[:-1], MAX_BETA))

    @classmethod
    def linear(cls, n_steps: int = 100) -> "Schedule":
        """Return the linear schedule: β from (1000/N)·1e-4 to (1000/N)·.02, at most .999.

        Σβ has the same value for every N > 20, where no β_n is cut off.
        """
        _check_n_steps(n_steps)
        scale = 1000 / n_steps
        return cls.from_beta(np.minimum(np.linspace(scale * 1e-4, scale * 0.02, n_steps), MAX_BETA))

    @classmethod
    def geometric(cls, n_steps: int = 100, low: float = 0.004, high: float = 40.0) -> "Schedule":
        """Return the schedule whose noise levels σ_n = √(1/γ_n − 1) are log-spaced from `low` to `high`.

        With data of unit variance and the target "v", this is the diffusion of Karras et al. (2022) with log-uniform σ: their
        preconditioned network predicts −v. A shift that d nodes share is decided at σ ≈ √d times its size, and a mode is
        resolved by σ of a third of its width: `noise_range` returns such levels.

        Args:
            n_steps: N.
            low, high: σ_1 and σ_N, in units of the standard deviation of the data.

        >>> gamma = Schedule.geometric(3, 0.1, 10.0).gamma
        >>> [round(float((1 / g - 1) ** 0.5), 3) for g in gamma]
        [0.0, 0.1, 1.0, 10.0]
        """
        _check_n_steps(n_steps)
        if not 0 < low < high:
            raise UserError(f"low = {low}, high = {high}: noise levels must be positive and increase")
        sigma = np.geomspace(low, high, n_steps) if n_steps > 1 else np.array([high])
        return cls(np.concatenate([[1.0], 1 / (1 + sigma**2)]))

    @classmethod
    def flow(cls, n_steps: int = 100) -> "Schedule":
        """Return the schedule of flow matching: x_t = (1−t) u₀ + t ε, scaled to unit variance, at t = .999 n/N.

        γ = (1−t)²/((1−t)² + t²), which would be 0 at t = 1.

        >>> print(f"{Schedule.flow(4).gamma[2]:.2f}")
        0.50
        """
        _check_n_steps(n_steps)
        t = LAST_TIME * np.arange(n_steps + 1) / n_steps
        return cls((1 - t) ** 2 / ((1 - t) ** 2 + t**2))

    @classmethod
    def from_alpha(cls, alpha: Callable[[float], float], t_final: float = 1.0, n_steps: int = 100) -> "Schedule":
        """Return the schedule of dU = −½ α(t) U dt + √α(t) dW at t_n = n t_final/N: γ_n = exp(−∫₀^{t_n} α(t) dt).

        Args:
            alpha: the noise scheduling function, positive.
            t_final: T.
            n_steps: N.

        Raises:
            UserError: if it is not positive, or so large that γ_N is 0.

        >>> Schedule.from_alpha(lambda t: 2 * t, 2.0, 4).gamma.round(4).tolist()
        [1.0, 0.7788, 0.3679, 0.1054, 0.0183]
        """
        _check_n_steps(n_steps)
        t = np.linspace(0.0, t_final, n_steps + 1)
        parts = [quad(alpha, low, high)[0] for low, high in pairwise(t.tolist())]
        return cls(np.exp(-np.concatenate([[0.0], np.cumsum(parts)])))

    @classmethod
    def ornstein_uhlenbeck(cls, n_steps: int = 100, t_final: float = 10.0) -> "Schedule":
        """Return the schedule of dU = −½ U dt + dW, the process in function space (`eqn:forward-sde-infinite`): γ_n = e^(−t_n).

        t_n = n t_final/N; the time t_start of `remark:noise-free-OL` is the step n = N t_start/t_final of the reverse chain.

        >>> Schedule.ornstein_uhlenbeck(2, 4.0).gamma.round(4).tolist()
        [1.0, 0.1353, 0.0183]
        """
        _check_n_steps(n_steps)
        return cls(np.exp(-t_final * np.arange(n_steps + 1) / n_steps))

    @classmethod
    def from_beta(cls, beta: Sequence[float] | Floats) -> "Schedule":
        """Return the schedule with these β_1 … β_N, (N,), each in (0, 1)."""
        return cls(np.concatenate([[1.0], np.cumprod(1 - np.asarray(beta, dtype=np.float64))]))

    @property
    def n_steps(self) -> int:
        """Number of steps of this chain."""
        return self.gamma.size - 1

    @property
    def beta(self) -> Floats:
        """β_n of each step, on a sub-chain that of the transition between kept steps; entry 0 is 0."""
        return np.concatenate([[0.0], 1 - self.gamma[1:] / self.gamma[:-1]])

    def subchain(
        self, steps: int | None = None, t_start: int = 0, spacing: Spacing = "even", error: Floats | None = None
    ) -> "Schedule":
        """Return the chain from step N down to step t_start in a given number of steps.

        Args:
            steps: number of steps of the sub-chain; default: all N − t_start.
            t_start: last step of the reverse chain; with t_start > 0 it ends early, at U(t_start) (`remark:noise-free-OL`).
            spacing: "even"; "quadratic" for n_k = t_start + (N − t_start)(k/steps)²: small steps where the noise level is low,
                so that details below the noise level of one large last step are resolved; "error" for steps that contract a
                Gaussian of the measured denoising error equally, averaged with "even": fewer steps below the noise of the data.
            error: e_n, (N + 1,) or by place, for "error".

        Raises:
            UserError: if this chain is itself a sub-chain, or if an argument is missing or out of range.
        """
        if not np.array_equal(self.n, np.arange(self.n.size)):
            raise UserError("a sub-chain is taken from a full chain; this chain has been shortened already")
        if spacing not in get_args(Spacing):
            raise UserError(f"spacing {spacing!r} is unknown; {nearest(str(spacing), get_args(Spacing))}")
        if not 0 <= t_start < self.n_steps:
            raise UserError(f"t_start = {t_start}: expected a step from 0 to {self.n_steps - 1}")
        longest = self.n_steps - t_start
        if steps is not None and not 1 <= steps <= longest:
            raise UserError(f"steps = {steps}: expected a number from 1 to {longest}, the number of steps used in training")
        k = np.arange((steps or longest) + 1)
        if spacing == "error":
            kept = self._by_error(k, t_start, error)
        else:
            kept = np.round(t_start + longest * (k / k[-1]) ** (2 if spacing == "quadratic" else 1)).astype(np.int64)
        kept = np.maximum.accumulate(kept - k) + k  # all steps differ
        kept = np.minimum(kept, self.n_steps - k[-1] + k)
        return Schedule(self.gamma[kept], self.n[kept])

    def _by_error(self, k: NDArray[np.int64], t_start: int, error: Floats | None) -> NDArray[np.int64]:
        """Return steps at equal distances of the mean of n and ½ log(σ_n² + s_n²), σ_n² + s_n² = σ_n²/(1 − e_n)."""
        if error is None:
            raise UserError('the spacing "error" needs the denoising error e_n; fit a model with variance="analytic"')
        first = max(t_start, 1)
        e = np.reshape(error, (self.gamma.size, -1)).mean(axis=1)[first:].clip(0.0, 1 - 1e-9)
        log = np.minimum.accumulate(0.5 * np.log((1 / self.gamma[first:] - 1) / (1 - e))[::-1])[::-1]  # e_n ≈ 1 is inaccurate
        contraction = log - log[0]
        even = np.linspace(0.0, 1.0, len(log)) if len(log) > 1 else np.ones(1)
        distance = even if contraction[-1] == 0 else (1 - CONTRACTION) * even + CONTRACTION * contraction / contraction[-1]
        kept = first + np.abs(distance[None, :] - (k / k[-1])[:, None]).argmin(axis=1)
        kept[0] = t_start
        return np.asarray(kept, dtype=np.int64)


def noise_range(points: int, narrowest: float = NARROWEST) -> tuple[float, float]:
    """Return the smallest and the largest noise level for fields of unit variance, for `Schedule.geometric`.

    A shift that all d nodes share is visible in the average of the field, whose noise is σ/√d: the largest level is 5 √d, and
    at least 40. The smallest is a third of the width of the narrowest mode.

    Args:
        points: d, number of nodes of a field, of all channels.
        narrowest: standard deviation of the narrowest mode / that of the data.

    >>> noise_range(64), noise_range(128**2, narrowest=0.03)
    ((0.004, 40.0), (0.01, 640.0))
    """
    return narrowest / RESOLVED, max(LEAST_HIGH, SHARED * float(np.sqrt(points)))


def _check_n_steps(n_steps: int) -> None:
    if n_steps < 1:
        raise UserError(f"n_steps = {n_steps}: a chain needs at least one step")
