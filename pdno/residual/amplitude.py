r"""An input-dependent scale: residuals of regressions are seldom equally large for all inputs.

    residual = t S ξ,        log t = c + βᵀφ(a) + e,

t being the size of the residual of one field relative to that of S ξ, φ(a) logarithms of size and roughness of the input and of
m(a), scalars and their logarithms, and e the part that these do not explain, drawn from its training values. c and β are
estimated by ridge regression, with the penalty of smallest leave-one-out error; these errors are also the values of e. Fields
of a group, or of equal inputs, are left out together. If sizes vary no more than those of S ξ, t = 1, so that homoscedastic
noise is modelled as such.

Nothing is extrapolated: features are clipped to the range seen in training, and t, with e and without, to the range of sizes.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from .._typing import Array, Ints
from ..draw import generator, streams
from ..work.state import State
from .scale import Scale

__all__ = ["Amplitude", "size_features"]

FEWEST = 20  # fields from which sizes can be estimated
SIMULATED = 256  # fields S ξ that show how much sizes scatter by chance
SIZES = 64  # values of e over which sums are taken
TINY = 1e-30


@dataclass(frozen=True, eq=False)
class Amplitude:
    """log t = c + βᵀ(φ − centre)/spread + e, with e one of `rest`.

    Args:
        constant: c.
        slope: β, (feature,).
        centre, spread: of the features, (feature,).
        rest: values of e, ascending.
        lowest, highest: the range of (φ − centre)/spread in training, (feature,).
        bounds: smallest and largest log t in training, (2,).

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
    lowest: Array = field(default_factory=lambda: np.array(-np.inf))
    highest: Array = field(default_factory=lambda: np.array(np.inf))
    bounds: Array = field(default_factory=lambda: np.array([-np.inf, np.inf]))

    @classmethod
    def of(
        cls,
        residuals: Array,
        scale: Scale,
        a: Array,
        m: Array,
        scalars: Array | None = None,
        seed: int = 0,
        mask: Array | None = None,
        drawn: Callable[[Array], Array] | None = None,
        group: Ints | None = None,
    ) -> "Amplitude | None":
        """Estimate c, β and the values of e.

        Args:
            residuals: out-of-fold residuals, (sample, channel, *grid).
            scale: S.
            a, m: inputs and predictions, (sample, channel, *grid).
            scalars: (sample, parameter).
            seed: of the simulated fields S ξ that sizes are compared with.
            mask: True where residuals are observed; sizes are those of the observed values.
            drawn: maps white noise ξ to residuals with t = 1; default: S ξ.
            group: labels; fields with the same label are left out together. Default: all are independent.

        Returns:
            None if sizes vary no more than those of S ξ, or there are too few fields, or all are of one group.
        """
        sizes = _sizes(residuals, scale, mask)
        known = np.isfinite(sizes)
        labels = np.unique(np.arange(len(sizes))[known] if group is None else group[known], return_inverse=True)[1].reshape(-1)
        if known.sum() < FEWEST or labels.max() == 0 or not (sizes[known] > 0).all():
            return None
        log_t = np.log(sizes[known])
        noise = generator(seed, "amplitude", 0).standard_normal((SIMULATED, *residuals.shape[1:]))
        masks = None if mask is None else mask[np.resize(np.flatnonzero(known), SIMULATED)]
        by_chance = np.log(_sizes((drawn or scale.sqrt)(noise), scale, masks))
        variance = float(by_chance.var())
        stderr = variance * np.sqrt(2 / (labels.max() + 1))
        if log_t.var(ddof=1) < 1.5 * variance + 3 * stderr:
            return None
        x = size_features(a, m, scalars)[known]
        centre, spread = x.mean(axis=0), x.std(axis=0)
        spread = np.where(spread > 1e-6, spread, np.inf)
        x = (x - centre) / spread
        slope, rest = _ridge(x, log_t - log_t.mean(), labels)
        kept = np.sqrt(max(0.0, 1 - variance / max(rest.var(), TINY)))  # scatter by chance is in ξ already
        rest, chance = np.sort(kept * (rest - rest.mean())), by_chance.mean()
        bounds = np.array([log_t.min(), log_t.max()]) - chance
        return cls(float(log_t.mean() - chance), slope, centre, spread, rest, x.min(axis=0), x.max(axis=0), bounds)

    def __call__(self, a: Array, m: Array, scalars: Array | None = None) -> Array:
        """Return t without e for inputs a and predictions m: (sample,)."""
        x = (size_features(a, m, scalars) - self.centre) / self.spread
        return self._bounded(self.constant + np.clip(x, self.lowest, self.highest) @ self.slope)

    def _bounded(self, log_t: Array) -> Array:
        """Return t within the range of sizes seen in training."""
        return np.asarray(np.exp(np.clip(log_t, *self.bounds)))

    @property
    def sizes(self) -> Array:
        """exp(e), at most SIZES values of equal probability."""
        return np.exp(self.rest[:: max(1, len(self.rest) // SIZES)])

    def relative_sizes(self, t: Array) -> Array:
        """Return exp(e) for inputs with these t, such that t exp(e) is a size seen in training: (sample, size)."""
        return self._bounded(np.log(t[:, None] * self.sizes)) / t[:, None]

    def draw(self, seed: int, inputs: Ints, members: Ints, t: Array | None = None) -> Array:
        """Draw exp(e) for each (input, member), as a function of (seed, input, member).

        Args:
            seed: of the draws.
            inputs, members: numbers of input and member.
            t: without e, for each of them; if given, t exp(e) is a size seen in training.
        """
        numbers = [stream.integers(len(self.rest)) for stream in streams(seed, "amplitude", inputs, members)]
        e = self.rest[np.array(numbers, dtype=np.intp)]
        return np.asarray(np.exp(e)) if t is None else self._bounded(np.log(t) + e) / t

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
        arrays = {name: np.asarray(value) for name, value in state.arrays.items()}
        return cls(float(arrays.pop("constant")), **arrays)


def _sizes(residuals: Array, scale: Scale, mask: Array | None = None) -> Array:
    """Return the root mean square of each field relative to that of S ξ; channels have equal weights.

    With a mask it is that of the observed nodes, NaN for fields without any.
    """
    axes = tuple(range(2, residuals.ndim))
    expected = np.mean(np.broadcast_to(scale.std, residuals.shape[1:]) ** 2, axis=tuple(range(1, residuals.ndim - 1)))
    if not (expected > 0).any():
        return np.zeros(len(residuals))
    if mask is None:
        shares = np.mean(residuals**2, axis=axes)[:, expected > 0] / expected[expected > 0]
        return np.asarray(np.sqrt(shares.mean(axis=1)))
    observed = np.asarray(mask) > 0
    below = np.sum(observed * np.broadcast_to(scale.std, residuals.shape[1:]) ** 2, axis=axes)
    above = np.sum(np.where(observed, residuals, 0.0) ** 2, axis=axes)
    shares, count = np.divide(above, below, where=below > 0, out=np.zeros(below.shape)), (below > 0).sum(axis=1)
    return np.asarray(np.sqrt(np.divide(shares.sum(axis=1), count, where=count > 0, out=np.full(len(count), np.nan))))


def size_features(a: Array, m: Array, scalars: Array | None) -> Array:
    """Return logarithms of size, roughness and steepest slope of each channel of a and m, and scalars: (sample, feature).

    A scalar gives two features, itself and the logarithm of its absolute value.
    """
    columns = []
    for values in (channel for each in (a, m) for channel in np.moveaxis(each, 1, 0)):
        steps = [np.abs(np.diff(values, axis=k)).reshape(len(values), -1) for k in range(1, values.ndim)]
        slopes = np.concatenate([*steps, np.zeros((len(values), 1))], axis=1)
        size = np.sqrt(np.mean(values.reshape(len(values), -1) ** 2, axis=1))
        columns += [np.log(np.maximum(x, TINY)) for x in (size, np.sqrt(np.mean(slopes**2, axis=1)), slopes.max(axis=1))]
    for x in () if scalars is None else scalars.T:
        columns += [x, np.log(np.maximum(np.abs(x), TINY))]
    return np.stack(columns, axis=1)


def _ridge(x: Array, y: Array, labels: Ints) -> tuple[Array, Array]:
    """Return the coefficients with the penalty of smallest leave-one-out error, and these errors.

    Args:
        x, y: centred features and values, (sample, feature) and (sample,).
        labels: numbers from 0; samples with the same label are left out together.
    """
    left, s, right = np.linalg.svd(x, full_matrices=False)
    order = np.argsort(labels, kind="stable")
    begins = np.searchsorted(labels[order], np.arange(labels.max() + 1))
    columns = np.concatenate([left, np.full((len(y), 1), len(y) ** -0.5)], axis=1)  # the last is that of the constant

    def fit(penalty: float) -> tuple[Array, Array]:
        shrink = s**2 / (s**2 + penalty)
        b = columns * np.sqrt(np.append(shrink, 1.0))  # the hat matrix is H = B Bᵀ
        inside = y - b @ (b.T @ y)
        grams = np.add.reduceat((b[:, :, None] * b[:, None, :])[order], begins)  # B_IᵀB_I of the rows I of each label
        moments = np.add.reduceat((b * inside[:, None])[order], begins)
        solved = np.linalg.solve(np.eye(b.shape[1]) - grams, moments[:, :, None])[:, :, 0]
        errors = inside + (b * solved[labels]).sum(axis=1)  # (1 − H_II)⁻¹ of residuals, by Woodbury's formula
        return right.T @ (s / (s**2 + penalty) * (left.T @ y)), errors

    fits = [fit(penalty) for penalty in len(y) * np.logspace(-4, 3, 15)]
    return min(fits, key=lambda each: float(each[1] @ each[1]))
