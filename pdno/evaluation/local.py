r"""The regression of fields on the neighbourhoods of their predictions: errors that are aligned with local extremes.

    m(x) ↦ m(x) + w · φ(x),        φ = 1 and products of m(x), m(x) − (m ∗ K_h)(x) for three widths h, |∇m|(x)

The largest values of a prediction are also those where its error is most likely positive: at a flat top, the maximum of the
prediction is the maximum of its error. One factor per band of wavenumbers (`pdno.evaluation.bands`) cannot say where a field is
flat; φ can. w is estimated by ridge regression on held-out pairs, and used only if the error of pairs that were left out
decreases by more than chance allows.
"""

from dataclasses import dataclass
from typing import Self

import numpy as np
from scipy.ndimage import gaussian_filter

from .._typing import Array
from ..work.state import State
from .dependence import stderr_of_mean

__all__ = ["LocalRegression"]

WIDTHS = (1.0, 2.0, 4.0)  # h, in nodes
PENALTY = 1e-4  # of the ridge regression, relative to the number of values
FOLDS = 4  # for the error of pairs that were left out
FEWEST = 40  # held-out pairs
MOST_VALUES = 2**19  # of a channel, from which w is estimated
SIGNIFICANT = 2.0  # standard errors by which the error must decrease
TINY = 1e-300


@dataclass(frozen=True, eq=False)
class LocalRegression:
    """w for each channel.

    Args:
        centre, scale: of the features before products, (channel, feature).
        weights: w, (channel, product).
        most: largest change in training, which no change exceeds, (channel,).
        periodic: whether each axis is periodic.
    """

    centre: Array
    scale: Array
    weights: Array
    most: Array
    periodic: tuple[bool, ...]

    @classmethod
    def of(cls, u: Array, prediction: Array, periodic: tuple[bool, ...]) -> Self | None:
        """Return the regression of fields of new pairs on their predictions; None if it does not help.

        Args:
            u: fields, (sample, channel, *grid).
            prediction: likewise.
            periodic: whether each axis is periodic.
        """
        if len(u) < FEWEST or min(u.shape[2:]) < 2 * WIDTHS[-1]:
            return None
        some = slice(None, None, -(-u[:, 0].size // MOST_VALUES))
        u, prediction = u[some], prediction[some]
        whole = cls._of(u, prediction, periodic)
        fold, gains = np.arange(len(u)) % FOLDS, np.empty(len(u))
        for number in range(FOLDS):
            left = fold == number
            error = u[left] - prediction[left]
            changed = u[left] - cls._of(u[~left], prediction[~left], periodic)(prediction[left])
            unit = np.maximum(np.square(u - prediction).mean(axis=(0, *range(2, u.ndim)), keepdims=True), TINY)
            gains[left] = ((np.square(error) - np.square(changed)) / unit).mean(axis=tuple(range(1, u.ndim)))
        return whole if gains.mean() > SIGNIFICANT * stderr_of_mean(gains, None) else None

    @classmethod
    def _of(cls, u: Array, prediction: Array, periodic: tuple[bool, ...]) -> Self:
        features = _features(prediction, periodic)
        axes = (1, *range(3, features.ndim))
        centre, scale = features.mean(axis=axes).T, np.maximum(features.std(axis=axes).T, TINY)
        weights, most = [], []
        for c in range(u.shape[1]):
            x = _products(features[:, :, c], centre[c], scale[c])
            gram = x @ x.T + PENALTY * x.shape[1] * np.eye(len(x))
            weights.append(np.linalg.solve(gram, x @ (u - prediction)[:, c].ravel()))
            most.append(np.abs(weights[-1] @ x).max())
        return cls(centre, scale, np.array(weights), np.array(most), periodic)

    def __call__(self, prediction: Array) -> Array:
        """Return the regression of fields (sample, channel, *grid)."""
        features, out = _features(prediction, self.periodic), prediction.copy()
        for c, (weights, most) in enumerate(zip(self.weights, self.most, strict=True)):
            change = weights @ _products(features[:, :, c], self.centre[c], self.scale[c])
            out[:, c] += np.clip(change, -most, most).reshape(out[:, c].shape)
        return out

    def state(self) -> State:
        """Return what `from_state` restores."""
        names = ("centre", "scale", "weights", "most")
        return State({"periodic": list(self.periodic)}, {name: getattr(self, name) for name in names})

    @classmethod
    def from_state(cls, state: State) -> Self:
        """Restore what `state` returned."""
        arrays = {name: np.asarray(values) for name, values in state.arrays.items()}
        return cls(**arrays, periodic=tuple(state.settings["periodic"]))


def _features(m: Array, periodic: tuple[bool, ...]) -> Array:
    """Return m, its deviations from local averages, and the size of its gradient: (feature, sample, channel, *grid)."""
    modes, grid = ["wrap" if p else "nearest" for p in periodic], range(2, m.ndim)
    away = [m - gaussian_filter(m, (0, 0, *(h,) * len(modes)), mode=["nearest", "nearest", *modes]) for h in WIDTHS]
    slope = np.sqrt(sum(np.square(np.gradient(m, axis=axis)) for axis in grid))
    return np.stack([m, *away, slope])


def _products(features: Array, centre: Array, scale: Array) -> Array:
    """Return 1, normalised features, their products, products of m² with features, and m⁴: (product, value)."""
    x = (features.reshape(len(features), -1) - centre[:, None]) / scale[:, None]
    pairs = [x[i] * x[j] for i in range(len(x)) for j in range(i, len(x))]
    return np.stack([np.ones_like(x[0]), *x, *pairs, *(x[0] ** 2 * row for row in x), x[0] ** 4])
