r"""The noise schedule β_n, γ_n of the forward chain, and its sub-chains.

    U_n = √(1−β_n) U_{n−1} + √β_n ε_n,        γ_n = Π_{i≤n} (1−β_i),        β_n = 1 − γ_n/γ_{n−1}    (`eqn:forward-transition`)

Indices are the paper's: n = 1 … N, and γ_0 = 1, so arrays have N + 1 entries and entry 0 of β is 0. A sub-chain keeps some of
the steps; its β is that of the jump between two kept steps, so every formula in β and γ holds on it unchanged.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ..errors import UserError

__all__ = ["Schedule", "Spacing"]

Array = NDArray[np.float64]
Spacing = Literal["even", "quadratic"]


@dataclass(frozen=True, eq=False)
class Schedule:
    """γ along a chain of steps, and the numbers n by which the network knows them.

    Args:
        gamma: γ from the clean end to the noisy one: falling, in (0, 1].
        n: number of each step in the full chain; 0 … N if left out.

    >>> chain = Schedule.cosine(100)
    >>> print(f"{chain.beta[1]:.3g} {chain.gamma[50]:.3g} {chain.gamma[100]:.3g}")
    0.000631 0.494 2.43e-07
    >>> chain.subchain(5).n.tolist()
    [0, 20, 40, 60, 80, 100]
    """

    gamma: Array
    n: NDArray[np.int64]

    def __init__(self, gamma: Any, n: Any = None) -> None:
        g = np.asarray(gamma, dtype=np.float64)
        numbers = np.arange(g.size) if n is None else np.asarray(n, dtype=np.int64)
        if g.ndim != 1 or g.size < 2 or not (np.diff(g) < 0).all() or not (g[-1] > 0 and g[0] <= 1):
            raise UserError("a schedule needs γ_0 > γ_1 > … > γ_N with at least one step, in (0, 1]")
        if numbers.shape != g.shape or not (np.diff(numbers) > 0).all() or (numbers[0] == 0) != (g[0] == 1):
            raise UserError("a schedule needs one number for each γ, ascending, and γ = 1 at number 0 alone")
        object.__setattr__(self, "gamma", g)
        object.__setattr__(self, "n", numbers)

    @classmethod
    def cosine(cls, n_steps: int = 100) -> "Schedule":
        """f(t) = cos²((t/N + .008)/1.008·π/2), β_n = 1 − f(n)/f(n−1), at most .999."""
        t = np.arange(_checked(n_steps) + 1) / n_steps
        f = np.cos((t + 0.008) / 1.008 * np.pi / 2) ** 2
        return cls.from_beta(np.minimum(1 - f[1:] / f[:-1], 0.999))

    @classmethod
    def linear(cls, n_steps: int = 100) -> "Schedule":
        """β from (1000/N)·1e-4 to (1000/N)·.02 in even steps, at most .999: Σβ is the same for every N > 20."""
        scale = 1000 / _checked(n_steps)
        return cls.from_beta(np.minimum(np.linspace(scale * 1e-4, scale * 0.02, n_steps), 0.999))

    @classmethod
    def from_beta(cls, beta: Sequence[float] | Array) -> "Schedule":
        """From β_1 … β_N."""
        return cls(np.concatenate([[1.0], np.cumprod(1 - np.asarray(beta, dtype=np.float64))]))

    @property
    def n_steps(self) -> int:
        """Steps of this chain."""
        return self.gamma.size - 1

    @property
    def beta(self) -> Array:
        """β_n of each step, those of the jumps on a sub-chain; entry 0 is 0."""
        return np.concatenate([[0.0], 1 - self.gamma[1:] / self.gamma[:-1]])

    def subchain(self, steps: int | None = None, t_start: int = 0, spacing: Spacing = "even") -> "Schedule":
        """The chain from step N down to step t_start in `steps` strides; all of its steps if `steps` is None.

        Strides are even, or those of n_k = t_start + (N − t_start)(k/steps)²: short where the noise is weak, so that details
        below the noise of one long last stride are not lost. With t_start > 0 the reverse chain ends early, at U(t_start)
        (`remark:noise-free-OL`).
        """
        if not np.array_equal(self.n, np.arange(self.n.size)):
            raise UserError("a sub-chain is taken from a full chain; this one has been shortened already")
        if not 0 <= t_start < self.n_steps:
            raise UserError(f"t_start = {t_start}: expected a step from 0 to {self.n_steps - 1}")
        longest = self.n_steps - t_start
        if steps is not None and not 1 <= steps <= longest:
            raise UserError(
                f"steps = {steps}: expected a number from 1 to {longest}, the steps that the model was trained with"
            )
        k = np.arange((steps or longest) + 1)
        kept = np.round(t_start + longest * (k / k[-1]) ** (2 if spacing == "quadratic" else 1)).astype(np.int64)
        kept = np.maximum.accumulate(kept - k) + k  # no step twice
        return Schedule(self.gamma[kept], self.n[kept])


def _checked(n_steps: int) -> int:
    if n_steps < 1:
        raise UserError(f"n_steps = {n_steps}: a chain needs at least one step")
    return n_steps
