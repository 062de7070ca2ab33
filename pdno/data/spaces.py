"""What the a and u of a model look like: their shapes, axes and types, and the way in and out for the arrays of a user.

Networks see a and u on one grid: an a on another grid is carried over to that of u by hat functions (interpolation where u
is finer, averaging where it is coarser), and scalar parameters become constant channels.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from ..basis import Kind
from ..errors import UserError
from ..grid import Axis, Grid
from .pairs import Pairs, aligned, to_numpy
from .selection import CHANNEL, SAMPLE, Selection, arrange

__all__ = ["Frame", "arranged", "check_finite", "check_real"]

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Frame:
    """Shapes are (channel, *grid)."""

    a_shape: tuple[int, ...]
    u_shape: tuple[int, ...]
    scalars: int = 0
    axes: tuple[str, ...] = ()  # of u
    a_axes: tuple[str, ...] = ()
    channel: bool = True  # whether the user's u has an axis of channels
    dtype: str = "float64"
    coordinates: dict[str, Array] = field(default_factory=dict)  # of u

    @classmethod
    def of(cls, pairs: Pairs, channel: bool = True) -> "Frame":
        """The frame of the pairs that a model learns from."""
        a, u = pairs.xarray["a"], pairs.xarray["u"]
        a_shape, u_shape = tuple(a.shape[1:]), tuple(u.shape[1:])
        if len(a_shape) != len(u_shape):
            raise UserError(
                f"inputs have {len(a_shape) - 1} dimensions and outputs {len(u_shape) - 1}; both must live on grids of one "
                "dimension (parameters that are no fields go into scalars)"
            )
        axes, a_axes = tuple(map(str, u.dims[2:])), tuple(str(d).removeprefix("a_") for d in a.dims[2:])
        coordinates = {axis: pairs.xarray[axis].values for axis in axes if axis in pairs.xarray.coords}
        p = 0 if pairs.scalars is None else pairs.scalars.shape[1]
        return cls(a_shape, u_shape, p, axes, a_axes, channel, str(u.dtype), coordinates)

    @property
    def channels(self) -> int:
        """Channels of the condition that a network gets."""
        return self.a_shape[0] + self.scalars

    def grid(self, kind: Kind | Sequence[Kind]) -> Grid:
        """The grid of u, given the kind of its axes: one for all, or one each."""
        points = self.u_shape[1:]
        kinds = (kind,) * len(points) if isinstance(kind, str) else tuple(kind)
        if len(kinds) != len(points):
            raise UserError(f"got {len(kinds)} kinds of axes, {', '.join(kinds)}, for a grid of {len(points)}; give one each")
        return Grid(tuple(Axis(n, k, name=x) for n, k, x in zip(points, kinds, self.axes or "xyz", strict=False)))

    def condition(self, a: Array, scalars: Array | None) -> Array:
        """(sample, channel, *grid of u) from a on its own grid and scalars, both normalised."""
        for axis, (source, target) in enumerate(zip(self.a_shape[1:], self.u_shape[1:], strict=True), start=2):
            if source != target:
                a = np.moveaxis(np.moveaxis(a, axis, -1) @ _hats(source, target).T, -1, axis)
        if scalars is None:
            return a
        constant = np.broadcast_to(scalars.reshape(*scalars.shape, *(1,) * (a.ndim - 2)), (*scalars.shape, *a.shape[2:]))
        return np.concatenate([a, constant], axis=1)

    def inputs(self, a: Any, scalars: Any = None) -> tuple[Array, Array | None]:
        """The user's inputs as (sample, channel, *grid) and (sample, parameter), checked against what was learned."""
        if a is None and scalars is None:
            raise UserError("there are no inputs to predict for; give at least one")
        check_real("scalars", scalars)
        if a is None or (self.scalars and scalars is None and np.ndim(a) == 2 and len(self.a_shape) > 2):
            a, scalars = None, a if scalars is None else scalars
        s = None if scalars is None else np.asarray(to_numpy(scalars), dtype=np.float64)
        s = s[:, None] if s is not None and s.ndim == 1 else s  # as in fit
        if (0 if s is None else s.shape[-1]) != self.scalars or (s is not None and s.ndim != 2):
            got = "none" if s is None else f"an array of shape {s.shape}"
            raise UserError(f"scalars: got {got}; this model needs {f'(sample, {self.scalars})' if self.scalars else 'none'}")
        field_ = np.zeros((len(s), *self.a_shape)) if a is None and s is not None else self.field("a", a)
        if s is not None and len(s) != len(field_):
            raise UserError(f"numbers of samples differ: {len(field_)} of a, {len(s)} of scalars")
        if not len(field_):
            raise UserError("there are no inputs to predict for; give at least one")
        if not np.isfinite(field_).all() or (s is not None and not np.isfinite(s).all()):
            raise UserError("inputs have NaN or infinite values; a prediction needs every value")
        return field_, s

    def field(self, name: str, given: Any) -> Array:
        """The user's "a" or "u" as (sample, channel, *grid), checked against what was learned."""
        shape, what = (self.a_shape, "inputs") if name == "a" else (self.u_shape, "outputs")
        check_real(name, given)
        if isinstance(given, xr.DataArray):
            dims = tuple(CHANNEL if d == f"{name}_channel" else str(d) for d in given.dims)
            values, _ = aligned(arrange(given.values, dims, name), self.a_axes if name == "a" else self.axes)
        else:
            values = to_numpy(given)
        if values.shape[1:] == shape[1:] and shape[0] == 1:
            values = values[:, None]
        if values.shape[1:] != shape:
            expected = ", ".join(["sample", *map(str, shape)])
            raise UserError(f"{name} has shape {values.shape}; this model was trained on {what} of shape ({expected})")
        return values

    def outputs(self, values: Array, like: Any) -> Any:
        """Values (…, sample, channel, *grid) as the user's u: without channels if it had none, xarray if `like` is."""
        lead = values.ndim - len(self.u_shape) - 1
        if not self.channel:
            values = values.take(0, axis=lead + 1)
        values = values.astype(self.dtype, copy=False)
        if not isinstance(like, xr.DataArray):
            return values
        dims = (*["member"][:lead], SAMPLE, *([CHANNEL] if self.channel else []), *self.axes)
        known = {str(k): c.values for k, c in like.coords.items() if c.dims == (k,) and k in (SAMPLE, *self.axes)}
        known |= self.coordinates
        sizes = dict(zip(dims, values.shape, strict=True))
        return xr.DataArray(values, dims=dims, coords={k: (k, c) for k, c in known.items() if sizes.get(k) == len(c)})

    def to_json(self) -> dict[str, Any]:
        """The frame as plain types, but for the coordinates."""
        plain = asdict(self)
        del plain["coordinates"]
        return plain

    @classmethod
    def from_json(cls, plain: dict[str, Any], coordinates: dict[str, Array]) -> "Frame":
        """What `to_json` wrote."""
        plain = {"a_axes": (), **plain}  # which the first files do not have
        tuples = {name: tuple(plain[name]) for name in ("a_shape", "u_shape", "axes", "a_axes")}
        return cls(**{**plain, **tuples}, coordinates=coordinates)


def check_real(name: str, values: Any) -> None:
    """Refuse what is not numbers, before NumPy drops imaginary parts or tries to read texts."""
    if values is not None and (plain := to_numpy(values)).dtype.kind not in "biuf":
        raise UserError(f"{name} has type {plain.dtype}; expected real numbers")


@lru_cache(maxsize=32)
def _hats(source: int, target: int) -> Array:
    """(target, source) weights of hat functions as wide as the coarser spacing; both grids span the same interval."""
    place = np.linspace(0, source - 1, target)[:, None]
    width = max(1.0, (source - 1) / max(1, target - 1))
    weights = np.maximum(0, 1 - np.abs(place - np.arange(source)) / width)
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))


def arranged(a: Any, u: Any, scalars: Any, mask: Any, group: Any, dims: str | None) -> tuple[Pairs, bool]:
    """The user's arrays as pairs, checked, and whether their u has an axis of channels; arguments as in `Surrogate.fit`."""
    names = Selection("a", "u", dims) if dims else None
    if scalars is None and np.ndim(a) == 2 and np.ndim(u) > 3:
        a, scalars = None, a  # cannot be a field on the grid of u
    for name, values in (("a", a), ("u", u), ("scalars", scalars)):
        check_real(name, values)
    if isinstance(mask, str) and mask != "nan":
        raise UserError(f"mask = {mask!r}: expected an array, or 'nan', which takes NaN in u as missing")
    if (
        names is None
        and scalars is None
        and np.ndim(a) == 2
        and not isinstance(a, xr.DataArray)
        and np.shape(a)[-1] != np.shape(u)[-1]
    ):
        raise UserError(
            f'a has shape {np.shape(a)} and u {np.shape(u)}: a may be a field on another grid (say dims="sample,x:sample,x") '
            "or a table of parameters (give it as scalars=)"
        )
    dims_of = (None, None) if names is None else (names.dims_of("a"), names.dims_of("u"))
    if a is None:
        a, dims_of = _nothing(u, dims_of[1]), (None, dims_of[1])
    if scalars is not None and len(scalars) != (count := _samples(u, dims_of[1])):
        raise UserError(f"numbers of samples differ: {count} of u, {len(scalars)} of scalars")
    pairs = Pairs.of(a, u, dims=dims_of, mask=mask, scalars=scalars, group=group)
    check_finite(pairs)
    return pairs, np.ndim(u) == pairs.u.ndim


def _samples(values: Any, dims: tuple[str, ...] | None) -> int:
    names = tuple(values.dims) if dims is None and isinstance(values, xr.DataArray) else dims
    return int(np.shape(values)[names.index(SAMPLE) if names and SAMPLE in names else 0])


def _nothing(u: Any, dims: tuple[str, ...] | None) -> xr.DataArray:
    """An input of zeros on the grid of u, for outputs that depend on scalars alone."""
    pairs = Pairs.of(u, u, dims=(dims, dims))
    shape = pairs.u.shape
    return xr.DataArray(np.zeros((shape[0], 1, *shape[2:])), dims=(SAMPLE, CHANNEL, *pairs.xarray["u"].dims[2:]))


def check_finite(pairs: Pairs) -> None:
    """Refuse NaN and infinite values outside the mask."""
    for name, values, mask in (("a", pairs.a, None), ("u", pairs.u, pairs.mask), ("scalars", pairs.scalars, None)):
        if values is None:
            continue
        for first in range(0, len(values), 256):
            bad = ~np.isfinite(values[first : first + 256])
            bad = bad if mask is None else bad & mask[first : first + 256]
            if bad.any():
                row = first + int(np.argwhere(bad)[0][0])
                hint = '; missing outputs can be masked with mask="nan"' if name == "u" else ""
                raise UserError(f"{name} has NaN or infinite values, first in sample {row}; mend or remove them{hint}")
