r"""An input-dependent scale: residuals of regressions are seldom equally large for all inputs.

    residual = t S ξ,        log t = c + βᵀφ(a) + e,

t being the size of the residual of one field relative to that of S ξ, φ(a) logarithms of size and roughness of the input and of
m(a), scalars and their logarithms, and e the part that these do not explain, drawn from its training values. c and β are
estimated by ridge regression, with the penalty of smallest leave-one-out error; these errors are also the values of e. If sizes
vary no more than those of S ξ, t = 1, so that homoscedastic noise is modelled as such.
"""

from dataclasses import dataclass

import numpy as np

from .._typing import Array, Ints
from ..draw import generator
from ..work.state import State
from .scale import Scale

__all__ = ["Amplitude"]

FEWEST = 20  # fields from which sizes can be estimated
SIMULATED = 256  # fields S ξ that show how much sizes scatter by chance
SIZES = 64  # values of e over which sums are taken
CLIP = 4  # standard deviations beyond which features are not extrapolated
TINY = 1e-30


@dataclass(frozen=True, eq=False)
class Amplitude:
    """log t = c + βᵀ(φ − centre)/spread + e, with e one of `rest`.

    >>> from pdno.residual.estimate import estimate_scale
    >>> steep = np.exp(np.random.default_rng(0).normal(size=(200, 1, 1)))
    >>> fields = steep * np.sin(np.linspace(0, 6, 64))
    >>> residuals = steep * np.random.default_rng(1).normal(size=(200, 1, 64))
    >>> amplitude = Amplitude.of(residuals, estimate_scale(residuals, "scalar"), fields, fields)
    >>> ratio = amplitude(fields, fields) / steep.ravel()
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
        """Estimate c, β and the values of e.

        Args:
            residuals: out-of-fold residuals, (sample, channel, *grid).
            scale: S.
            a, m: inputs and predictions, (sample, channel, *grid).
            scalars: (sample, parameter).
            seed: of the simulated fields S ξ that sizes are compared with.

        Returns:
            None if sizes vary no more than those of S ξ, or there are too few fields.
        """
        sizes = _sizes(residuals, scale)
        if len(residuals) < FEWEST or not (sizes > 0).all():
            return None
        log_t = np.log(sizes)
        noise = generator(seed, "amplitude", 0).standard_normal((SIMULATED, *residuals.shape[1:]))
        by_chance = np.log(_sizes(scale.sqrt(noise), scale))
        variance = float(by_chance.var())
        stderr = variance * np.sqrt(2 / len(log_t))
        if log_t.var(ddof=1) < 1.5 * variance + 3 * stderr:
            return None
        x = _features(a, m, scalars)
        centre, spread = x.mean(axis=0), x.std(axis=0)
        spread = np.where(spread > 1e-6, spread, np.inf)
        slope, rest = _ridge((x - centre) / spread, log_t - log_t.mean())
        kept = np.sqrt(max(0.0, 1 - variance / max(rest.var(), TINY)))  # scatter by chance is in ξ already
        return cls(float(log_t.mean() - by_chance.mean()), slope, centre, spread, np.sort(kept * (rest - rest.mean())))

    def __call__(self, a: Array, m: Array, scalars: Array | None = None) -> Array:
        """Return t without e for inputs a and predictions m: (sample,)."""
        x = (_features(a, m, scalars) - self.centre) / self.spread
        return np.asarray(np.exp(self.constant + np.clip(x, -CLIP, CLIP) @ self.slope))

    @property
    def sizes(self) -> Array:
        """exp(e), at most SIZES values of equal probability."""
        return np.exp(self.rest[:: max(1, len(self.rest) // SIZES)])

    def draw(self, seed: int, inputs: Ints, members: Ints) -> Array:
        """Draw exp(e) for each (input, member), as a function of (seed, input, member)."""
        numbers = [
            generator(seed, "amplitude", int(i), int(m)).integers(len(self.rest)) for i, m in zip(inputs, members, strict=True)
        ]
        return np.asarray(np.exp(self.rest[np.array(numbers, dtype=np.intp)]))

    def describe(self) -> str:
        """Return a few words on how much sizes vary."""
        explained, left = float(np.linalg.norm(self.slope)), float(self.rest.std())
        by = f"a factor {np.exp(explained):.2g} explained by the input, and {np.exp(left):.2g} that is not"
        return f"input-dependent scale: larger for some inputs than for others, by {by}"

    def state(self) -> State:
        """Return all fields, to be saved."""
        return State({}, {name: np.asarray(value, dtype=np.float64) for name, value in vars(self).items()})

    @classmethod
    def from_state(cls, state: State) -> "Amplitude":
        """Restore what `state` returned."""
        arrays = state.arrays
        return cls(float(arrays["constant"]), *(np.asarray(arrays[name]) for name in ("slope", "centre", "spread", "rest")))


def _sizes(residuals: Array, scale: Scale) -> Array:
    """Return the root mean square of each field relative to that of S ξ; channels have equal weights."""
    axes = tuple(range(2, residuals.ndim))
    expected = np.mean(np.broadcast_to(scale.std, residuals.shape[1:]) ** 2, axis=tuple(range(1, residuals.ndim - 1)))
    shares = np.mean(residuals**2, axis=axes)[:, expected > 0] / expected[expected > 0]
    return np.sqrt(shares.mean(axis=1)) if shares.shape[1] else np.zeros(len(residuals))


def _features(a: Array, m: Array, scalars: Array | None) -> Array:
    """Return logarithms of size, roughness and steepest slope of each channel of a and m, and scalars: (sample, feature).

    A scalar gives two features, itself and the logarithm of its absolute value.
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
    """Return the coefficients with the penalty of smallest leave-one-out error, and these errors."""
    left, s, right = np.linalg.svd(x, full_matrices=False)

    def fit(penalty: float) -> tuple[Array, Array]:
        shrink = s**2 / (s**2 + penalty)
        errors = (y - left @ (shrink * (left.T @ y))) / (1 - (left**2) @ shrink - 1 / len(y))
        return right.T @ (s / (s**2 + penalty) * (left.T @ y)), errors

    fits = [fit(penalty) for penalty in len(y) * np.logspace(-4, 3, 15)]
    return min(fits, key=lambda each: float(each[1] @ each[1]))
