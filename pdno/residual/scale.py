r"""The scale S of residuals: how large errors are at each node, and how they are correlated.

    u = m(a) + S r,      S = D C^½,      D = diag d(x),      C^½ = B diag(s) Bᵀ,      tr C = number of nodes,

such that r has unit variance: r ~ N(0, I) if errors are Gaussian. B is an orthonormal real basis (`pdno.basis`); channels are
independent. `pdno.residual.estimate` estimates S from residuals.

| kind     | d                  | s             | errors                                                            |
|----------|--------------------|---------------|-------------------------------------------------------------------|
| "scalar" | one number         | 1             | independent, equally large at all nodes                           |
| "point"  | one for each node  | 1             | independent, larger at some nodes than at others                  |
| "mode"   | one number         | for each mode | correlated, equally large except near the ends of an axis         |
| "both"   | one for each node  | for each mode | correlated, larger at some nodes than at others                   |

Nodes where residuals are always 0 (boundary values) have d = 0 in each kind.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, get_args

import numpy as np

from .._typing import Array, Floats, Mask
from ..basis import diagonal, fields, modes
from ..draw import generator
from ..errors import UserError
from ..work.state import State
from .gaps import Gap, gaps_by_pattern, work

__all__ = ["KINDS", "Kind", "Scale", "blocks_of", "observed_mask"]

Kind = Literal["scalar", "point", "mode", "both"]
KINDS: tuple[Kind, ...] = get_args(Kind)
BLOCK_BYTES = 2**25  # of residuals that are processed at a time
MOST_WORK = 2e11  # operations for correlated errors with missing values, about ten seconds


@dataclass(frozen=True, eq=False)
class Scale:
    """S, a square root of the covariance S Sᵀ, for fields (…, channel, *grid).

    Args:
        point: d, (channel, *grid) or (channel, 1, …); 0 where residuals are always 0.
        mode: s, (channel, *grid), the same for k and −k on periodic axes; ones of shape (1, 1, …) for independent errors.
        periodic: whether each axis is periodic, None for nodes of a mesh, which have no modes.
        kind: see the table above.

    >>> scale = Scale(np.full((1, 1), 0.1), np.ones((1, 1)), (False,), "scalar")
    >>> scale.describe()
    'one standard deviation, 0.1'
    >>> scale.sqrt(np.ones((1, 1, 3))).tolist()
    [[[0.1, 0.1, 0.1]]]
    """

    point: Floats
    mode: Floats
    periodic: tuple[bool | None, ...]
    kind: Kind

    def inverse_sqrt(self, values: Array) -> Floats:
        """Return S⁻¹ of fields (…, channel, *grid); where d = 0, the minimum-norm solution."""
        white = self.whitened(values)
        return white if self.independent else fields(white, self.periodic)

    def sqrt(self, r: Array) -> Floats:
        """Return S r."""
        self._check(r.shape)
        if not self.independent:
            r = fields(modes(r, self.periodic) * self.mode, self.periodic)
        return np.asarray(r * self.point, dtype=np.float64)

    def covariance(self, values: Array) -> Floats:
        """Return S Sᵀ of fields."""
        x = np.asarray(values * self.point, dtype=np.float64)
        if not self.independent:
            x = fields(modes(x, self.periodic) * np.square(self.mode), self.periodic)
        return np.asarray(x * self.point)

    def filled(self, r: Array, seed: int = 0, purpose: str = "residual") -> Floats:
        """Return r with noise of unit variance in the null space of S, where there is nothing to learn."""
        if (self.point > 0).all():
            return np.asarray(r, dtype=np.float64)
        xi = generator(seed, f"{purpose}/filled", 0).standard_normal(r.shape)
        return np.asarray(r + xi - self.inverse_sqrt(self.sqrt(xi)))

    def completed(self, values: Array, mask: Array, seed: int = 0, purpose: str = "residual") -> Floats:
        """Draw r given the observed values: S r equals them, and has the conditional distribution N(0, S Sᵀ) elsewhere.

        Args:
            values: (sample, channel, *grid).
            mask: True where they are observed.
            seed, purpose: of the draws.

        Raises:
            UserError: if errors are correlated and too many values are missing.
        """
        observed = np.logical_and(np.asarray(mask) > 0, self.point > 0)
        white, xi = self.partly(values, observed)[0], generator(seed, f"{purpose}/completed", 0).standard_normal(values.shape)
        if self.independent:
            return np.asarray(np.where(observed, white, xi))
        for channel, rows, gap in self._gaps_of(np.asarray(observed)):
            free = xi[rows, channel].reshape(len(rows), -1) @ gap.null
            white[rows, channel] += (free @ gap.null.T).reshape(len(rows), *white.shape[2:])
        return fields(white, self.periodic)

    def partly(self, values: Array, observed: Mask) -> tuple[Floats, Floats, Floats]:
        """Return what the observed values of fields (sample, channel, *grid) determine of r, in the basis B.

        Returns:
            The coefficients of E[r | observed values]; the sum over samples of their conditional variances,
            (channel, *grid); log det C_observed^½ of each sample, (sample,). Independent errors: values in place of
            coefficients, variances 0 and log det 0.

        Raises:
            UserError: if errors are correlated and too many values are missing.
        """
        white = np.where(observed, values, 0.0)
        white = np.divide(white, self.point, where=observed & (self.point > 0), out=np.zeros(white.shape))
        variance, volume = np.zeros(white.shape[1:]), np.zeros(len(white))
        if self.independent:
            return white, variance, volume
        observed = observed & np.broadcast_to(self.point > 0, observed.shape)
        some: Mask = np.asarray(observed.reshape(*observed.shape[:2], -1).any(axis=2))
        volume += some @ np.log(self.mode).reshape(len(self.mode), -1).sum(axis=1)
        white = np.ascontiguousarray(modes(white, self.periodic) / self.mode)
        for channel, rows, gap in self._gaps_of(observed):
            known = white[rows, channel].reshape(len(rows), -1)
            known -= (known @ gap.null) @ gap.null.T
            white[rows, channel] = known.reshape(len(rows), *white.shape[2:])
            variance[channel] += len(rows) * np.square(gap.null).sum(axis=1).reshape(variance[channel].shape)
            volume[rows] += gap.volume * some[rows, channel]
        return white, variance, volume

    def _gaps_of(self, observed: Mask) -> Iterator[tuple[int, Array, Gap]]:
        """Yield (channel, samples, gap) for each pattern of missing nodes."""
        if (needed := work(~observed)) > MOST_WORK:
            raise UserError(
                f"correlated errors with missing values need {needed:.1g} operations for {observed.shape[0]} fields of "
                f"{observed[0].size} values, expected at most {MOST_WORK:.1g}; use a scale of kind 'scalar' or 'point', or "
                "fewer fields"
            )
        return gaps_by_pattern(~observed, self.mode, self.periodic)

    @property
    def independent(self) -> bool:
        """Whether errors are independent."""
        return self.kind in ("scalar", "point")

    @property
    def std(self) -> Floats:
        """Standard deviation of S ξ, ξ ~ N(0, I), at each node: (channel, *grid), or (channel, 1, …) if all are equal."""
        return np.asarray(self.point * np.sqrt(diagonal(self.mode, self.periodic)))

    def log_likelihood(self, residuals: Array, mask: Array | None = None) -> Floats:
        """Return the log density of N(0, S Sᵀ) for each sample; nodes where d = 0 or the mask is False are ignored.

        Raises:
            UserError: if residuals are NaN, or errors are correlated and too many values are missing.
        """
        squares, volume = self.squares_and_volume(residuals, mask)
        return np.asarray(-0.5 * squares - volume)

    def squares_and_volume(self, residuals: Array, mask: Array | None = None) -> tuple[Floats, Floats]:
        """Return xᵀ (S Sᵀ)⁻¹ x and log det √(2π S Sᵀ) for each sample x, at the nodes of `log_likelihood`.

        Raises:
            UserError: as `log_likelihood`.
        """
        residuals = np.asarray(residuals)
        self._check(residuals.shape, samples=True)
        observed = observed_mask(residuals, mask)
        d = np.broadcast_to(self.point, residuals.shape[1:])
        logs = np.log(np.sqrt(2 * np.pi) * d, where=d > 0, out=np.zeros(d.shape)).ravel()
        squares, volume = np.empty((2, len(residuals)))
        for rows in blocks_of(len(residuals), d.size):
            if observed is None:
                white, volume[rows] = self.whitened(residuals[rows]), logs.sum() + self._volume
            else:
                white, _, known = self.partly(residuals[rows], observed[rows])
                volume[rows] = known + observed[rows].reshape(len(white), -1) @ logs
            squares[rows] = np.square(white).reshape(len(white), -1).sum(axis=1)
        if np.isnan(squares).any():
            raise UserError("residuals are NaN; remove such samples, or pass a mask of the observed values")
        return squares, volume

    def rank(self, shape: tuple[int, ...]) -> int:
        """Return the rank of S on fields of this shape (channel, *grid): the number of values that it does not map to 0."""
        return int((np.broadcast_to(self.point, shape) > 0).sum())

    def state(self) -> State:
        """Return the arrays and the kind of S, to be saved."""
        return State({"kind": self.kind, "periodic": list(self.periodic)}, {"point": self.point, "mode": self.mode})

    @classmethod
    def from_state(cls, state: State) -> "Scale":
        """Restore what `state` returned.

        Raises:
            UserError: if something is missing or unknown.
        """
        if missing := [name for name in ("point", "mode") if name not in state.arrays]:
            raise UserError(f"a residual scale lacks {', '.join(missing)}; save the model again")
        if (kind := state.settings.get("kind")) not in KINDS:
            raise UserError(f"a residual scale has the kind {kind!r}, expected one of {', '.join(KINDS)}; save the model again")
        point, mode = (np.array(state.arrays[name], np.float64) for name in ("point", "mode"))
        return cls(point, mode, tuple(None if p is None else bool(p) for p in state.settings["periodic"]), kind)

    def describe(self) -> str:
        """Describe S in a few words."""
        local = self.kind in ("point", "both")
        sizes = (self.std if local else self.point)[self.point > 0]
        if not sizes.size:
            return "residuals are always 0"
        lowest, highest = f"{sizes.min():.2g}", f"{sizes.max():.2g}"
        one = "one standard deviation" + " per channel" * (lowest != highest)
        size = "a standard deviation at each node" if local else one
        size += f", {lowest}" if lowest == highest else f", from {lowest} to {highest}"
        if not self.independent:
            power = np.sort(np.square(self.mode).reshape(len(self.mode), -1), axis=1)[:, ::-1].cumsum(axis=1)
            most = int((power < 0.9 * power[:, -1:]).sum(axis=1).max()) + 1
            size = f"correlated errors: {size}; 90 % of the variance is in {most} of {power.shape[1]} modes"
        zeros = int((self.point == 0).sum())
        return f"{size}; 0 at {zeros} of {self.point.size} nodes" if zeros and self.point[0].size > 1 else size

    def _check(self, shape: tuple[int, ...], samples: bool = False) -> None:
        """Raise UserError unless fields of this shape have the channels and the grid of S."""
        own = np.broadcast_shapes(self.point.shape, self.mode.shape)
        last = shape[-len(own) :]
        fits = len(last) == len(own) and last[0] == own[0] and all(n in (1, m) for n, m in zip(own[1:], last[1:], strict=True))
        if not fits or (samples and len(shape) != len(own) + 1):
            wanted = ["sample" if samples else "…", str(own[0]), *("any" if n == 1 else str(n) for n in own[1:])]
            raise UserError(f"fields have the shape {shape}, expected ({', '.join(wanted)}) as the residuals; estimate S again")

    def whitened(self, values: Array) -> Floats:
        """Return the coefficients of S⁻¹ values in B, or its values if errors are independent."""
        self._check(values.shape)
        scaled: Floats = np.divide(values, self.point, where=self.point > 0, out=np.zeros(values.shape))
        if self.independent:
            return scaled
        white = np.ascontiguousarray(modes(scaled, self.periodic) / self.mode)
        for channel, gap in self.gaps.items():
            rows = white.reshape(-1, len(self.mode), self.mode[0].size)[:, channel]
            rows -= (rows @ gap.null) @ gap.null.T
        return white

    @cached_property
    def _volume(self) -> float:
        """log det C^½ over the nodes where d is not 0."""
        if self.independent:
            return 0.0
        some = (self.point > 0).reshape(len(self.point), -1).any(axis=1)
        return float(np.log(self.mode[some]).sum() + sum(gap.volume for gap in self.gaps.values()))

    @cached_property
    def gaps(self) -> dict[int, "Gap"]:
        """By channel, for correlated errors that are 0 at some nodes but not at all."""
        if self.independent or self.point[0].size == 1:
            return {}
        some = ((channel, zero) for channel, zero in enumerate(self.point == 0) if zero.any() and not zero.all())
        return {channel: Gap.of(zero, self.mode[channel], self.periodic) for channel, zero in some}


def observed_mask(values: Array, mask: Any) -> Mask | None:
    """Return the mask of observed values; None if all are observed.

    Raises:
        UserError: if it has another shape than the residuals.
    """
    if mask is None:
        return None
    observed = np.asarray(mask) != 0
    if observed.shape != values.shape:
        raise UserError(f"mask has the shape {observed.shape}, expected that of the residuals, {values.shape}")
    return None if observed.all() else observed


def blocks_of(rows: int, size: int) -> Iterator[slice]:
    """Return slices of rows of `size` values that fill a block of memory."""
    step = max(1, BLOCK_BYTES // (8 * max(1, size)))
    return (slice(lo, min(lo + step, rows)) for lo in range(0, rows, step))
