r"""Estimate the scale S of residuals (`pdno.residual.scale`) from out-of-fold residuals.

Mean squares are about 0, not about a mean: a bias of m is part of its error. Variances from few samples are shrunk towards an
average (`pdno.residual.shrinkage`): over all nodes, or over the modes k − h … k + h with h ≤ k/4.

With missing values the spectrum of correlated errors is that of the observed pairs of nodes (`pdno.residual.lags`), improved by
expectation maximisation with the Gaussian conditional distribution (`pdno.residual.gaps`) as long as that is affordable.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import distance_transform_edt
from scipy.stats import t as student

from .._typing import Array, Floats, Mask
from ..basis import Waves, diagonal, modes
from ..data.split import folds
from ..errors import UserError, nearest
from ..evaluation.dependence import stderr_of_mean
from .gaps import work
from .lags import power_by_lag
from .scale import KINDS, Kind, Scale, blocks_of, observed_mask
from .shrinkage import FLOOR, shrunk, spectrum
from .window import block_of_nodes, block_squares_and_volume

__all__ = ["estimate_scale"]

Rows = NDArray[np.intp]

ZERO = 1e-14  # of the root mean square of a channel: a node that never exceeds it is 0
ROUNDS = 8  # of estimating d from s and s from d
SETTLED = 0.05  # change of log s that ends the rounds
ROUND_WORK = 5e10  # operations of all rounds with missing values, a few seconds
LIKELIHOOD_WORK = 5e9  # operations above which the likelihood of fields with missing values is that of a block of nodes
GAPS = 2**25  # largest number of nodes with d = 0 times nodes, in a channel of correlated errors
FEWEST_GROUPS = 4  # independent samples below which the kind is "scalar"
HALVES = 40  # independent samples from which two folds are enough to compare kinds
FOLDS = 5  # for fewer samples
CONFIDENCE = 0.977  # that a kind has a larger likelihood: two standard errors for many samples, more for few
TINY = 1e-300  # in place of a sum of squares that is 0


def estimate_scale(
    residuals: Array,
    kind: Kind | Literal["auto"] | str = "auto",
    mask: Array | None = None,
    periodic: Waves | None = None,
    group: Array | None = None,
) -> Scale:
    """Estimate S from residuals.

    Args:
        residuals: out-of-fold residuals, (sample, channel, *grid); values where the mask is False are ignored.
        kind: "auto" selects the simplest kind that no other one beats by held-out Gaussian likelihood, "scalar" if there are
            few samples.
        mask: True where residuals are observed.
        periodic: whether each axis is periodic, None for nodes of a mesh; default: none is.
        group: a label for each sample; samples of a group are not independent.

    Raises:
        UserError: if shapes do not fit, values are NaN, or the kind is unknown or impossible.

    >>> residuals = 0.1 * np.random.default_rng(0).normal(size=(100, 1, 64))
    >>> scale = estimate_scale(residuals)
    >>> scale.describe()
    'one standard deviation, 0.1'
    >>> round(float(scale.inverse_sqrt(residuals).std()), 2)
    1.0
    """
    if kind not in ("auto", *KINDS):
        raise UserError(f"kind {kind!r} of a residual scale is unknown; {nearest(str(kind), ('auto', *KINDS))}")
    data = _Data.of(residuals, mask, periodic, group)
    if kind in ("mode", "both") and data.obstacle:
        raise UserError(f"kind {kind!r} was requested with {data.obstacle}; use 'scalar' or 'point'")
    scale = data.fit(_best_kind(data) if kind == "auto" else next(each for each in KINDS if each == kind))
    return replace(scale, point=scale.point * data.unit)


@dataclass(frozen=True, eq=False)
class _Data:
    """Checked residuals, with the units, labels and zeros that all fits share."""

    values: NDArray[Any]
    observed: Mask | None  # None if all are
    periodic: tuple[bool | None, ...]
    group: Rows
    unit: Floats  # (channel, 1, …), largest values: squares of values/unit neither vanish nor overflow
    zero: Mask  # (channel, *grid)

    @classmethod
    def of(cls, values: Any, mask: Any, periodic: Waves | None, group: Any) -> "_Data":
        """Check the residuals; determine their units, and the nodes where they are always zero."""
        values = np.asarray(values)
        if not 3 <= values.ndim <= 5 or not values.size:
            raise UserError(f"residuals have the shape {values.shape}, expected (sample, channel, *grid) of one to three axes")
        observed, axes = observed_mask(values, mask), values.ndim - 2
        waves = tuple(p if p is None else bool(p) for p in (periodic if periodic is not None else (False,) * axes))
        if len(waves) != axes:
            raise UserError(f"periodic = {waves} has {len(waves)} axes, residuals have {axes}; give True or False for each")
        labels = np.arange(len(values)) if group is None else np.asarray(group)
        if labels.shape != (len(values),):
            raise UserError(f"group has the shape {labels.shape}, expected a label for each of the {len(values)} samples")
        bare = cls(values, observed, waves, np.unique(labels, return_inverse=True)[1], np.ones(()), np.zeros((), bool))
        largest = np.max([np.abs(x).max(axis=0) for x, _ in bare.blocks()], axis=0)
        if not np.isfinite(largest).all():
            raise UserError("residuals are NaN or infinite; remove such samples, or pass a mask of the observed values")
        if observed is not None and not (seen := observed.any(axis=(0, *range(2, values.ndim)))).all():
            raise UserError(f"no value of channel {int(np.argmin(seen))} is observed; remove the channel")
        unit = largest.max(axis=tuple(range(1, axes + 1)), keepdims=True)
        bare = replace(bare, unit=np.where(unit > 0, unit, 1.0))
        square, count = bare.mean_square(), bare.count()
        rms = np.sqrt(_mean(square, count)) * bare.unit
        return replace(bare, zero=(largest <= ZERO * rms) & (count > 0))

    @property
    def obstacle(self) -> str:
        """Reason why errors that are correlated in modes cannot be estimated; empty if they can."""
        if None in self.periodic:
            return "fields on the nodes of a mesh, which have no modes"
        points = self.zero[0].size
        most = max(int(zero.sum()) % points for zero in self.zero)
        return f"{most} nodes that are always 0, expected at most {GAPS // points}" if most * points > GAPS else ""

    def blocks(self, rows: Rows | None = None) -> Iterator[tuple[Floats, Mask | None]]:
        """Yield blocks of values/unit, 0 where missing, and of the mask."""
        rows = np.arange(len(self.values)) if rows is None else rows
        for part in blocks_of(len(rows), self.values[0].size):
            block, mask = self.values[rows[part]], None if self.observed is None else self.observed[rows[part]]
            yield np.asarray((block if mask is None else np.where(mask, block, 0.0)) / self.unit), mask

    def count(self, rows: Rows | None = None) -> Floats:
        """Return how often each node is observed."""
        if self.observed is None:
            return np.full(self.values.shape[1:], float(len(self.values) if rows is None else len(rows)))
        return np.asarray((self.observed if rows is None else self.observed[rows]).sum(axis=0, dtype=np.float64))

    def mean_square(self, rows: Rows | None = None, of: Callable[[Floats], Floats] = lambda x: x) -> Floats:
        """Return mean squares over samples."""
        total = sum(np.square(of(x)).sum(axis=0) for x, _ in self.blocks(rows))
        return np.asarray(total / np.maximum(self.count(rows), 1))

    def fit(self, kind: Kind, rows: Rows | None = None) -> Scale:
        """Estimate S of residuals/unit from some rows, by default from all."""
        members = self.group if rows is None else self.group[rows]
        share = len(np.unique(members)) / len(members)  # of squares that are independent
        square, count = self.mean_square(rows), self.count(rows) * ~self.zero
        variance = np.broadcast_to(_mean(square, count), square.shape)
        if kind in ("point", "both"):
            variance = shrunk(
                np.where(self.zero, 1.0, square), share * count, lambda x: _mean(x, count), np.asarray(count[0].size)
            )
            variance = variance * _mean(square / variance, count)
        d, s = np.where(self.zero, 0.0, np.sqrt(variance)), np.ones((1,) * self.zero.ndim)
        known = ~self.zero if self.observed is None else count
        for turn in range(self._rounds(kind, rows)):
            old = np.broadcast_to(s, d.shape)
            power = self._power(rows, Scale(d, old, self.periodic, kind)) if turn else self._first_power(rows, d)
            s = spectrum(power, share * len(members), self.periodic)
            local = np.maximum(diagonal(s, self.periodic), FLOOR)
            d = np.where(self.zero, 0.0, np.sqrt(variance / (local if kind == "both" else _mean(local, known, 1.0))))
            if np.abs(np.log(s / old)).max() < SETTLED:
                break
        first = d[(slice(None), *(slice(1),) * len(self.periodic))]
        return Scale(first if kind in ("scalar", "mode") and (d == first).all() else d, s, self.periodic, kind)

    def _rounds(self, kind: Kind, rows: Rows | None) -> int:
        """Return the largest number of rounds of estimating d and s."""
        if kind in ("scalar", "point"):
            return 0
        if self.observed is None:
            return 1 if kind == "mode" and not self.zero.any() else ROUNDS
        unknown = ~(self.observed if rows is None else self.observed[rows]) | self.zero
        return int(np.clip(1 + ROUND_WORK / max(work(unknown), 1.0), 1, ROUNDS))

    def _first_power(self, rows: Rows | None, d: Floats) -> Floats:
        """Return mean squares of the coefficients of fields/d; nodes with d = 0 take the nearest value, to avoid jumps."""
        if self.observed is not None:
            size = np.where(d > 0, d, 1.0)
            return power_by_lag(
                ((x / size, mask & (d > 0)) for x, mask in self.blocks(rows) if mask is not None), self.periodic
            )
        places = np.arange(d.size).reshape(d.shape)
        for channel, zero in enumerate(self.zero):
            if zero.any() and not zero.all():
                near = distance_transform_edt(zero, return_distances=False, return_indices=True)
                places[channel] = places[channel][tuple(near)]
        size = np.where(d > 0, d, 1.0)
        return self.mean_square(rows, lambda x: modes((x / size).reshape(len(x), -1)[:, places], self.periodic))

    def _power(self, rows: Rows | None, scale: Scale) -> Floats:
        """Return mean squares of the coefficients of fields/d; nodes with d = 0 are drawn given the others, by N(0, C)."""
        if self.observed is not None:
            known = [scale.partly(x, mask)[:2] for x, mask in self.blocks(rows) if mask is not None]
            total = np.sum([np.square(white).sum(axis=0) + variance for white, variance in known], axis=0)
            return np.asarray(np.square(scale.mode) * total / sum(len(white) for white, _ in known))
        white = self.mean_square(rows, scale.whitened)
        for channel, gap in scale.gaps.items():
            white[channel] += np.square(gap.null).sum(axis=1).reshape(white[channel].shape)
        return np.asarray(np.square(scale.mode) * white)

    def log_likelihood(self, scale: Scale, rows: Rows) -> Floats:
        """Return the log-likelihood of each of some rows with its own size, −D/2 log xᵀ(S Sᵀ)⁻¹x − log det S, D values.

        Sizes of fields differ (`pdno.residual.amplitude`): with one size for all, the largest fields would decide alone. If
        many values are missing, it is that of a block of nodes.
        """
        if self.observed is None or work(~self.observed) <= LIKELIHOOD_WORK:
            parts = [(mask, *scale.squares_and_volume(x, mask)) for x, mask in self.blocks(rows)]
            nodes = ~self.zero
        else:
            block = block_of_nodes(self.count())
            some = ((x, mask) for x, mask in self.blocks(rows) if mask is not None)
            parts = [(mask, *block_squares_and_volume(scale, x, mask, block)) for x, mask in some]
            nodes = block & ~self.zero
        logs = []
        for mask, squares, volume in parts:
            values = nodes.sum() if mask is None else (mask & nodes).reshape(len(mask), -1).sum(axis=1)
            logs.append(-0.5 * values * np.log(np.maximum(squares, TINY)) - volume)
        return np.concatenate(logs)


def _best_kind(data: _Data) -> Kind:
    """Return the simplest kind that no other one beats significantly on held-out samples."""
    labels = int(data.group.max()) + 1
    if labels < FEWEST_GROUPS:
        return "scalar"
    parts = list(folds(len(data.values), 2 if labels >= HALVES else FOLDS, data.group))

    def scores(kind: Kind) -> Floats:
        """Return the log-likelihood of each group."""
        total = np.zeros(labels)
        for train, held_out in parts:
            scale = data.fit(kind, train)
            total += np.bincount(data.group[held_out], data.log_likelihood(scale, held_out), labels)
        return total

    best, score = KINDS[0], scores(KINDS[0])
    threshold = float(student.ppf(CONFIDENCE, labels - 1))  # in standard errors
    for kind in KINDS[1:2] if data.obstacle else KINDS[1:]:
        gain = (new := scores(kind)) - score
        if gain.mean() > max(threshold * stderr_of_mean(gain, None), 1e-6):
            best, score = kind, new
    return best


def _mean(x: Floats, weight: Floats | Mask, empty: float = 0.0) -> Floats:
    """Return the weighted mean per channel over nodes; `empty` if all weights are 0."""
    axes = tuple(range(1, x.ndim))
    total = weight.sum(axis=axes, keepdims=True, dtype=np.float64)
    total_x = (weight * x).sum(axis=axes, keepdims=True)
    return np.asarray(np.divide(total_x, total, where=total > 0, out=np.full(total.shape, empty)))
