r"""How large the error of an answer is, from the input: residuals of regressions are seldom equally large for all inputs.

    r = t S ξ,        log t = c + βᵀφ(a) + e,

t being the size of the residual of one field relative to that of S ξ, φ(a) some logarithms of how large and how rough the
input and the answer m(a) are, scalars and their logarithms, and e what these do not tell, drawn from the sizes that were seen.
c and β are found by ridge regression, its penalty by leaving out one field at a time, and e are the errors of that. Where sizes
scatter no more than those of S ξ do by chance, t = 1: noise that is the same for all inputs stays exactly that.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..draw import generator
from .scale import Scale

__all__ = ["Amplitude"]

Array = NDArray[Any]
FEWEST = 20  # fields that sizes can be told from
DRAWN = 256  # fields that tell how much sizes scatter by chance
SOME = 64  # of e, where sums over all of them are to be taken
TINY = 1e-30


@dataclass(frozen=True, eq=False)
class Amplitude:
    """log t = c + βᵀ(φ − centre)/spread + e, with e one of `rest`.

    >>> steep = np.exp(np.random.default_rng(0).normal(size=(200, 1, 1)))
    >>> fields = steep * np.sin(np.linspace(0, 6, 64))
    >>> residuals = steep * np.random.default_rng(1).normal(size=(200, 1, 64))
    >>> found = Amplitude.of(residuals, Scale.of(residuals, "scalar"), fields, fields)
    >>> ratio = found(fields, fields) / steep.ravel()
    >>> bool(ratio.std() / ratio.mean() < 0.05)
    True
    """

    constant: float
    slope: Array
    centre: Array
    spread: Array
    rest: Array

    @classmethod
    def of(
        cls, residuals: Array, scale: Scale, a: Array, m: Array, scalars: Array | None = None, seed: int = 0
    ) -> "Amplitude | None":
        """From residuals that m has not learned from, their inputs and answers; None if all are of one size but for chance."""
        sizes = _sizes(residuals, scale)
        if len(residuals) < FEWEST or not (sizes > 0).all():
            return None
        log_t = np.log(sizes)
        noise = generator(seed, "amplitude", 0).standard_normal((DRAWN, *residuals.shape[1:]))
        by_chance = np.log(_sizes(scale.restore(noise), scale))
        chance = float(by_chance.var())
        doubt = chance * np.sqrt(2 / len(log_t))
        if log_t.var(ddof=1) < 1.5 * chance + 3 * doubt:
            return None
        x = _features(a, m, scalars)
        centre, spread = x.mean(axis=0), x.std(axis=0)
        spread = np.where(spread > 1e-6, spread, np.inf)
        slope, rest = _ridge((x - centre) / spread, log_t - log_t.mean())
        kept = np.sqrt(max(0.0, 1 - chance / max(rest.var(), TINY)))  # scatter by chance is in ξ already
        return cls(float(log_t.mean() - by_chance.mean()), slope, centre, spread, np.sort(kept * (rest - rest.mean())))

    def __call__(self, a: Array, m: Array, scalars: Array | None = None) -> Array:
        """t without e, for inputs and answers: (sample,)."""
        x = (_features(a, m, scalars) - self.centre) / self.spread
        return np.asarray(np.exp(self.constant + np.clip(x, -4, 4) @ self.slope))

    @property
    def sizes(self) -> Array:
        """exp(e), at most SOME of them."""
        return np.exp(self.rest[:: max(1, len(self.rest) // SOME)])

    def draw(self, seed: int, inputs: Array, members: Array) -> Array:
        """exp(e) for each (input, member): a function of (seed, input, member)."""
        found = [
            generator(seed, "amplitude", int(i), int(m)).integers(len(self.rest)) for i, m in zip(inputs, members, strict=True)
        ]
        return np.asarray(np.exp(self.rest[np.array(found, dtype=np.intp)]))

    def describe(self) -> str:
        """In a few words."""
        told, left = float(np.linalg.norm(self.slope)), float(self.rest.std())
        by = f"a factor {np.exp(told):.2g} that the input tells, and {np.exp(left):.2g} that it does not"
        return f"larger for some inputs than for others, by {by}"

    def arrays(self) -> dict[str, Array]:
        return {name: np.asarray(value, dtype=np.float64) for name, value in vars(self).items()}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Array]) -> "Amplitude":
        """From what `arrays` gave."""
        return cls(float(arrays["constant"]), *(np.asarray(arrays[name]) for name in ("slope", "centre", "spread", "rest")))


def _sizes(residuals: Array, scale: Scale) -> Array:
    """Root mean square of each field over that of S ξ; channels count alike."""
    axes = tuple(range(2, residuals.ndim))
    expected = np.mean(np.broadcast_to(scale.std, residuals.shape[1:]) ** 2, axis=tuple(range(1, residuals.ndim - 1)))
    shares = np.mean(residuals**2, axis=axes)[:, expected > 0] / expected[expected > 0]
    return np.sqrt(shares.mean(axis=1)) if shares.shape[1] else np.zeros(len(residuals))


def _features(a: Array, m: Array, scalars: Array | None) -> Array:
    """Logarithms of size, roughness and steepest slope of each channel of the input and of the answer, and scalars.

    (sample, number). Of a scalar, itself and the logarithm of its size.
    """
    columns = []
    for field in (channel for fields in (a, m) for channel in np.moveaxis(fields, 1, 0)):
        steps = [np.abs(np.diff(field, axis=k)).reshape(len(field), -1) for k in range(1, field.ndim)]
        slopes = np.concatenate([*steps, np.zeros((len(field), 1))], axis=1)
        size = np.sqrt(np.mean(field.reshape(len(field), -1) ** 2, axis=1))
        columns += [np.log(np.maximum(x, TINY)) for x in (size, np.sqrt(np.mean(slopes**2, axis=1)), slopes.max(axis=1))]
    for x in () if scalars is None else scalars.T:
        columns += [x, np.log(np.maximum(np.abs(x), TINY))]
    return np.stack(columns, axis=1)


def _ridge(x: Array, y: Array) -> tuple[Array, Array]:
    """Coefficients with the penalty that predicts left-out values best, and the errors of these predictions."""
    left, s, right = np.linalg.svd(x, full_matrices=False)
    best: tuple[float, Array, Array] | None = None
    for penalty in len(y) * np.logspace(-4, 3, 15):
        shrink = s**2 / (s**2 + penalty)
        fitted = left @ (shrink * (left.T @ y))
        errors = (y - fitted) / (1 - (left**2) @ shrink - 1 / len(y))
        if best is None or float(errors @ errors) < best[0]:
            best = float(errors @ errors), right.T @ (s / (s**2 + penalty) * (left.T @ y)), errors
    assert best is not None
    return best[1], best[2]
