r"""The scale of what a regression leaves: how large errors are, where, and how they hang together.

    u = m(a) + S r,      S = D C^½,      D = diag d(x),      C^½ = B diag(s) Bᵀ,      tr C = number of points,

estimated from out-of-fold residuals u_i − m(a_i) such that r has unit variance: r ~ N(0, I) if errors are Gaussian. B is an
orthonormal real basis (`pdno.modes`); channels are independent.

| kind     | d                  | s             | errors                                                     |
|----------|--------------------|---------------|------------------------------------------------------------|
| "scalar" | one number         | 1             | independent, as large everywhere                           |
| "point"  | one for each point | 1             | independent, larger here than there                        |
| "mode"   | one number         | for each mode | correlated, as large everywhere but near ends of an axis   |
| "both"   | one for each point | for each mode | correlated, larger here than there                         |

Squares are about 0, not about a mean: a bias of m is part of its error. Points where residuals are always 0 (a boundary value)
have d = 0 in each kind. Variances of few samples are moved towards an average (`pdno.residual.shrinkage`): of all points, or of
modes k − h … k + h with h ≤ k/4.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import qr
from scipy.ndimage import distance_transform_edt

from ..draw import generator
from ..errors import UserError, nearest
from ..mean.base import folds
from ..modes import diagonal, fields, modes
from .shrinkage import FLOOR, shrunk, spectrum

__all__ = ["Kind", "Scale"]

Array = NDArray[np.float64]
Flags = NDArray[np.bool_]
Rows = NDArray[np.intp]
Kind = Literal["scalar", "point", "mode", "both"]
KINDS: tuple[Kind, ...] = get_args(Kind)

BLOCK_BYTES = 2**25
ZERO = 1e-14  # of the root mean square of a channel: a point that never has more is 0
ROUNDS, SETTLED = 8, 0.05  # of d from s and s from d, and changes of log s that end them
GAPS = 2**25  # points with d = 0 times points, in a channel of correlated errors, at most


@dataclass(frozen=True, eq=False)
class Scale:
    """S, for fields (…, channel, *grid).

    Args:
        point: d, (channel, *grid) or (channel, 1, …); 0 where residuals are always 0.
        mode: s, (channel, *grid), the same for k and −k on periodic axes; ones of shape (1, 1, …) for independent errors.
        periodic: axis by axis.
        kind: what was estimated.

    >>> residuals = 0.1 * np.random.default_rng(0).normal(size=(100, 1, 64))
    >>> scale = Scale.of(residuals)
    >>> scale.describe()
    'one number, 0.1'
    >>> round(float(scale.normalise(residuals).std()), 2)
    1.0
    """

    point: Array
    mode: Array
    periodic: tuple[bool, ...]
    kind: Kind

    @classmethod
    def of(
        cls,
        residuals: NDArray[Any],
        kind: Kind | Literal["auto"] = "auto",
        mask: NDArray[Any] | None = None,
        periodic: Sequence[bool] | None = None,
        group: NDArray[Any] | None = None,
    ) -> "Scale":
        """From residuals (sample, channel, *grid).

        Args:
            residuals: out-of-fold residuals; values where the mask is False do not count.
            kind: "auto" takes the simplest that no other beats by held-out Gaussian likelihood, "scalar" if samples are few.
            mask: True where known; correlated errors need all values.
            periodic: axis by axis; none if not given.
            group: a label for each sample; samples of a group are no independent evidence.
        """
        if kind not in ("auto", *KINDS):
            raise UserError(f"kind {kind!r} of a residual scale is unknown; {nearest(str(kind), ('auto', *KINDS))}")
        data = _Data.of(residuals, mask, periodic, group)
        if kind in ("mode", "both") and data.obstacle:
            raise UserError(f"kind {kind!r} was asked for with {data.obstacle}; use 'scalar' or 'point'")
        found = data.fit(_chosen(data) if kind == "auto" else kind)
        return replace(found, point=found.point * data.unit)

    def normalise(self, values: NDArray[Any]) -> Array:
        """S⁻¹ of (…, channel, *grid). Values where d is 0 do not count: r is the smallest that S takes to all others."""
        white = self._white(values)
        return white if self.independent else fields(white, self.periodic)

    def restore(self, r: NDArray[Any]) -> Array:
        """S r."""
        self._check(r.shape)
        if not self.independent:
            r = fields(modes(r, self.periodic) * self.mode, self.periodic)
        return np.asarray(r * self.point, dtype=np.float64)

    def filled(self, r: NDArray[Any], seed: int = 0, purpose: str = "residual") -> Array:
        """r, with noise of unit variance in place of what S takes to 0: there is nothing to be learned of it."""
        if (self.point > 0).all():
            return np.asarray(r, dtype=np.float64)
        xi = generator(seed, f"{purpose}/filled", 0).standard_normal(r.shape)
        return np.asarray(r + xi - self.normalise(self.restore(xi)))

    @property
    def independent(self) -> bool:
        """Whether errors are independent."""
        return self.kind in ("scalar", "point")

    @property
    def std(self) -> Array:
        """Standard deviation of S ξ, ξ ~ N(0, I), at each point: (channel, *grid), or (channel, 1, …) if all are alike."""
        return np.asarray(self.point * np.sqrt(diagonal(self.mode, self.periodic)))

    def log_likelihood(self, residuals: NDArray[Any], mask: NDArray[Any] | None = None) -> Array:
        """log of the density of N(0, S Sᵀ), for each sample; points where d is 0 or the mask False do not count."""
        residuals = np.asarray(residuals)
        self._check(residuals.shape, samples=True)
        known = _known(residuals, mask)
        if known is not None and not self.independent:
            raise UserError("got unknown values, expected all for correlated errors; take a scale of kind 'scalar' or 'point'")
        d = np.broadcast_to(self.point, residuals.shape[1:])
        logs = np.log(np.sqrt(2 * np.pi) * d, where=d > 0, out=np.zeros(d.shape)).ravel()
        found = np.empty(len(residuals))
        for rows in _blocks(len(residuals), d.size):
            values = residuals[rows] if known is None else np.where(known[rows], residuals[rows], 0.0)
            squares = np.square(self._white(values)).reshape(len(values), -1)
            volume = logs.sum() if known is None else known[rows].reshape(len(values), -1) @ logs
            found[rows] = -0.5 * squares.sum(axis=1) - volume - self._volume
        if np.isnan(found).any():
            raise UserError("residuals are NaN; leave such samples out, or say by a mask which values are known")
        return found

    def arrays(self) -> dict[str, Array]:
        """All of it, to be saved."""
        kind, periodic = np.array(KINDS.index(self.kind), np.float64), np.array(self.periodic, np.float64)
        return {"point": self.point, "mode": self.mode, "periodic": periodic, "kind": kind}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Array]) -> "Scale":
        """From what `arrays` gave."""
        if missing := [name for name in ("point", "mode", "periodic", "kind") if name not in arrays]:
            raise UserError(f"a residual scale lacks {', '.join(missing)}; bring all that Scale.arrays() gave")
        point, mode = (np.array(arrays[name], np.float64) for name in ("point", "mode"))
        if not 0 <= (kind := int(arrays["kind"])) < len(KINDS):
            raise UserError(f"a residual scale is of kind {kind}, expected 0 to {len(KINDS) - 1}; bring what `arrays` gave")
        return cls(point, mode, tuple(bool(p) for p in arrays["periodic"]), KINDS[kind])

    def describe(self) -> str:
        """In a few words."""
        local = self.kind in ("point", "both")
        sizes = (self.std if local else self.point)[self.point > 0]
        if not sizes.size:
            return "no errors: residuals are always 0"
        lowest, highest = f"{sizes.min():.2g}", f"{sizes.max():.2g}"
        size = "a standard deviation for each point" if local else "one number" + " for each channel" * (lowest != highest)
        size += f", {lowest}" if lowest == highest else f", from {lowest} to {highest}"
        if not self.independent:
            power = np.sort(np.square(self.mode).reshape(len(self.mode), -1), axis=1)[:, ::-1].cumsum(axis=1)
            most = int((power < 0.9 * power[:, -1:]).sum(axis=1).max()) + 1
            size = f"correlated errors: {size}; 90 % of the variance is in {most} of {power.shape[1]} modes"
        zeros = int((self.point == 0).sum())
        return f"{size}; 0 at {zeros} of {self.point.size} points" if zeros and self.point[0].size > 1 else size

    def _check(self, shape: tuple[int, ...], samples: bool = False) -> None:
        """Refuse fields that S is not made for."""
        own = np.broadcast_shapes(self.point.shape, self.mode.shape)
        last = shape[-len(own) :]
        fits = len(last) == len(own) and last[0] == own[0] and all(n in (1, m) for n, m in zip(own[1:], last[1:], strict=True))
        if not fits or (samples and len(shape) != len(own) + 1):
            wanted = ["sample" if samples else "…", str(own[0]), *("any" if n == 1 else str(n) for n in own[1:])]
            raise UserError(f"fields have the shape {shape}, expected ({', '.join(wanted)}) as the residuals; estimate anew")

    def _white(self, values: NDArray[Any]) -> Array:
        """Coefficients of S⁻¹ values in B, or its values if errors are independent."""
        self._check(values.shape)
        scaled: Array = np.divide(values, self.point, where=self.point > 0, out=np.zeros(values.shape))
        if self.independent:
            return scaled
        white = np.ascontiguousarray(modes(scaled, self.periodic) / self.mode)
        for channel, gap in self._gaps.items():
            rows = white.reshape(-1, len(self.mode), self.mode[0].size)[:, channel]
            rows -= (rows @ gap.null) @ gap.null.T
        return white

    @cached_property
    def _volume(self) -> float:
        """log det of C^½, of points that d is not 0 for."""
        if self.independent:
            return 0.0
        some = (self.point > 0).reshape(len(self.point), -1).any(axis=1)
        return float(np.log(self.mode[some]).sum() + sum(gap.volume for gap in self._gaps.values()))

    @cached_property
    def _gaps(self) -> dict[int, "_Gap"]:
        """By channel, for correlated errors that are 0 at some points but not at all."""
        if self.independent or self.point[0].size == 1:
            return {}
        some = ((channel, zero) for channel, zero in enumerate(self.point == 0) if zero.any() and not zero.all())
        return {channel: _Gap.of(zero, self.mode[channel], self.periodic) for channel, zero in some}


class _Gap(NamedTuple):
    """Points z where d is 0, in one channel of correlated errors.

    S takes nothing from the fields C^−½ e_z = B Q R, Q being orthonormal: r has no part in them. What remains is the law of the
    other points, with log det C_others = log det C + 2 log |det R|.
    """

    null: Array  # Q: (mode, place)
    volume: float  # log |det R|

    @classmethod
    def of(cls, zero: Flags, mode: Array, periodic: tuple[bool, ...]) -> "_Gap":
        places = np.flatnonzero(zero)
        spikes = np.zeros((len(places), zero.size))
        spikes[np.arange(len(places)), places] = 1
        waves = modes(spikes.reshape(-1, *zero.shape), periodic) / mode
        q, r = qr(waves.reshape(len(places), -1).T, mode="economic", check_finite=False)
        return cls(np.asarray(q, np.float64), float(np.log(np.abs(r.diagonal())).sum()))


@dataclass(frozen=True, eq=False)
class _Data:
    """Residuals, and what all fits need to know of them."""

    values: NDArray[Any]
    known: Flags | None  # None if all are
    periodic: tuple[bool, ...]
    group: Rows
    unit: Array  # (channel, 1, …), largest values: squares of values/unit neither vanish nor overflow
    zero: Flags  # (channel, *grid)

    @classmethod
    def of(cls, values: Any, mask: Any, periodic: Sequence[bool] | None, group: Any) -> "_Data":
        """With all that is wrong refused."""
        values = np.asarray(values)
        if not 3 <= values.ndim <= 5 or not values.size:
            raise UserError(f"residuals have the shape {values.shape}, expected (sample, channel, *grid) of one to three axes")
        known, axes = _known(values, mask), values.ndim - 2
        waves = tuple(bool(p) for p in (periodic if periodic is not None else (False,) * axes))
        if len(waves) != axes:
            raise UserError(f"periodic = {waves} has {len(waves)} axes, residuals have {axes}; say True or False for each")
        labels = np.arange(len(values)) if group is None else np.asarray(group)
        if labels.shape != (len(values),):
            raise UserError(f"group has the shape {labels.shape}, expected a label for each of the {len(values)} samples")
        bare = cls(values, known, waves, np.unique(labels, return_inverse=True)[1], np.ones(()), np.zeros((), bool))
        largest = np.max([np.abs(x).max(axis=0) for x, _ in bare.blocks()], axis=0)
        if not np.isfinite(largest).all():
            raise UserError("residuals are NaN or infinite; leave such samples out, or say by a mask which values are known")
        if known is not None and not (seen := known.any(axis=(0, *range(2, values.ndim)))).all():
            raise UserError(f"no value of channel {int(np.argmin(seen))} is known; leave the channel out")
        unit = largest.max(axis=tuple(range(1, axes + 1)), keepdims=True)
        bare = replace(bare, unit=np.where(unit > 0, unit, 1.0))
        square, count = bare.mean_square(), bare.count()
        rms = np.sqrt(_mean(square, count)) * bare.unit
        return replace(bare, zero=(largest <= ZERO * rms) & (count > 0))

    @property
    def obstacle(self) -> str:
        """What stands against correlated errors."""
        points = self.zero[0].size
        most = max(int(zero.sum()) % points for zero in self.zero)
        if self.known is not None:
            return "unknown values, expected all values to be known"
        return f"{most} points that are always 0, expected at most {GAPS // points}" if most * points > GAPS else ""

    def blocks(self, rows: Rows | None = None) -> Iterator[tuple[Array, Flags | None]]:
        """values/unit, 0 where unknown, and where they are known."""
        rows = np.arange(len(self.values)) if rows is None else rows
        for part in _blocks(len(rows), self.values[0].size):
            block, known = self.values[rows[part]], None if self.known is None else self.known[rows[part]]
            yield np.asarray((block if known is None else np.where(known, block, 0.0)) / self.unit), known

    def count(self, rows: Rows | None = None) -> Array:
        """How often each point is known."""
        if self.known is None:
            return np.full(self.values.shape[1:], float(len(self.values) if rows is None else len(rows)))
        return np.asarray((self.known if rows is None else self.known[rows]).sum(axis=0, dtype=np.float64))

    def mean_square(self, rows: Rows | None = None, of: Callable[[Array], Array] = lambda x: x) -> Array:
        """Over samples."""
        total = sum(np.square(of(x)).sum(axis=0) for x, _ in self.blocks(rows))
        return np.asarray(total / np.maximum(self.count(rows), 1))

    def fit(self, kind: Kind, rows: Rows | None = None) -> Scale:
        """In units of `unit`."""
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
        for turn in range(0 if kind in ("scalar", "point") else 1 if kind == "mode" and not self.zero.any() else ROUNDS):
            old = np.broadcast_to(s, d.shape)
            power = self._power(rows, Scale(d, old, self.periodic, kind)) if turn else self._first_power(rows, d)
            s = spectrum(power, share * len(members), self.periodic)
            local = np.maximum(diagonal(s, self.periodic), FLOOR)
            d = np.where(self.zero, 0.0, np.sqrt(variance / (local if kind == "both" else _mean(local, ~self.zero, 1.0))))
            if np.abs(np.log(s / old)).max() < SETTLED:
                break
        first = d[(slice(None), *(slice(1),) * len(self.periodic))]
        return Scale(first if kind in ("scalar", "mode") and (d == first).all() else d, s, self.periodic, kind)

    def _first_power(self, rows: Rows | None, d: Array) -> Array:
        """Mean squares of coefficients of fields that are, where d is 0, as at the nearest other point: 0 would be a jump."""
        places = np.arange(d.size).reshape(d.shape)
        for channel, zero in enumerate(self.zero):
            if zero.any() and not zero.all():
                near = distance_transform_edt(zero, return_distances=False, return_indices=True)
                places[channel] = places[channel][tuple(near)]
        size = np.where(d > 0, d, 1.0)
        return self.mean_square(rows, lambda x: modes((x / size).reshape(len(x), -1)[:, places], self.periodic))

    def _power(self, rows: Rows | None, scale: Scale) -> Array:
        """The same where fields have the law that the other points give them."""
        white = self.mean_square(rows, scale._white)
        for channel, gap in scale._gaps.items():
            white[channel] += np.square(gap.null).sum(axis=1).reshape(white[channel].shape)
        return np.asarray(np.square(scale.mode) * white)


def _chosen(data: _Data) -> Kind:
    """The simplest kind that no other beats by more than chance on the half of the samples that it has not seen."""
    labels = int(data.group.max()) + 1
    if len(data.values) < 8 or labels < 4:
        return "scalar"
    halves = list(folds(len(data.values), 2, data.group))

    def scores(kind: Kind) -> Array:
        """Likelihood of each group."""
        found = np.zeros(labels)
        for learn, judge in halves:
            scale = data.fit(kind, learn)
            logs = [scale.log_likelihood(x, known) for x, known in data.blocks(judge)]
            found += np.bincount(data.group[judge], np.concatenate(logs), labels)
        return found

    best, score = KINDS[0], scores(KINDS[0])
    for kind in KINDS[1:2] if data.obstacle else KINDS[1:]:
        gain = (new := scores(kind)) - score
        if gain.mean() > max(2 * gain.std(ddof=1) / np.sqrt(labels), 1e-6):
            best, score = kind, new
    return best


def _mean(x: Array, weight: Array | Flags, empty: float = 0.0) -> Array:
    """Of each channel, over points; `empty` if all weights are 0."""
    axes = tuple(range(1, x.ndim))
    total = weight.sum(axis=axes, keepdims=True, dtype=np.float64)
    total_x = (weight * x).sum(axis=axes, keepdims=True)
    return np.asarray(np.divide(total_x, total, where=total > 0, out=np.full(total.shape, empty)))


def _known(values: NDArray[Any], mask: Any) -> Flags | None:
    """None if all are."""
    if mask is None:
        return None
    known = np.asarray(mask) != 0
    if known.shape != values.shape:
        raise UserError(f"mask has the shape {known.shape}, expected that of the residuals, {values.shape}")
    return None if known.all() else known


def _blocks(rows: int, size: int) -> Iterator[slice]:
    """Rows of `size` numbers, as many at once as make a block."""
    step = max(1, BLOCK_BYTES // (8 * max(1, size)))
    return (slice(lo, min(lo + step, rows)) for lo in range(0, rows, step))
