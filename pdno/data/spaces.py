"""The spaces of a and u: shapes, channels, axes and grids, and the conversion of the user's arrays to them and back.

Networks take a and u on one grid. An a on another grid of the same dimension is transferred to that of u by hat functions
(interpolation where u is finer, averaging where it is coarser), and scalar parameters become constant channels. An a of another
dimension stays on its own grid, and networks have a learned projection to that of u (`pdno.nn.projection`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any, get_args

import numpy as np
import xarray as xr

from .._typing import Array
from ..basis import Kind
from ..errors import UserError, nearest
from ..grid import Axis, Grid
from ..work.state import State
from .arrays import check_real
from .formats.entry import labels_of
from .nodes import COORDINATES, NODE, Nodes
from .pairs import Pairs, to_numpy
from .parameters import ordered
from .selection import CHANNEL, SAMPLE, aligned, arrange

__all__ = ["Spaces", "axis_kinds", "input_kinds", "named_kinds", "unit_grid"]


@dataclass(frozen=True, eq=False)
class Spaces:
    """The spaces of a and u.

    Args:
        a_shape, u_shape: (channel, *grid).
        scalars: number of scalar parameters.
        axes, a_axes: names of the axes of u and of a.
        channel: whether the user's u has a channel axis.
        dtype: of the user's u.
        coordinates: nodes of u by name of the axis.
        kind: of each axis, see `pdno.grid`; () for "cell" along all.
        parameters: names of the scalars.
        ranges: smallest and largest training value of each scalar.
        without_field: whether outputs depend on scalars alone, and a is zero.
        nodes: of the mesh that an axis named "node" numbers; None if there is none.
        labels: units and long_name of "a", "u" and the axes, by name.
    """

    a_shape: tuple[int, ...]
    u_shape: tuple[int, ...]
    scalars: int = 0
    axes: tuple[str, ...] = ()
    a_axes: tuple[str, ...] = ()
    channel: bool = True
    dtype: str = "float64"
    coordinates: dict[str, Array] = field(default_factory=dict)
    kind: tuple[Kind, ...] = ()
    parameters: tuple[str, ...] = ()
    ranges: tuple[tuple[float, float], ...] = ()
    without_field: bool = False
    nodes: Nodes | None = None
    labels: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "kind", axis_kinds(self.kind or "cell", len(self.u_shape) - 1))

    @classmethod
    def of(cls, pairs: Pairs, channel: bool = True, kind: Kind | Sequence[Kind] = "cell") -> "Spaces":
        """Return the spaces of some pairs.

        Args:
            pairs: that a model is trained on.
            channel: whether the user's u has a channel axis.
            kind: of the axes: one for all, or one for each.

        Raises:
            UserError: if kinds are unknown or of another number than the axes of u.
        """
        a, u = pairs.xarray["a"], pairs.xarray["u"]
        a_shape, u_shape = tuple(a.shape[1:]), tuple(u.shape[1:])
        axes, a_axes = tuple(map(str, u.dims[2:])), tuple(str(d).removeprefix("a_") for d in a.dims[2:])
        coordinates = {axis: pairs.xarray[axis].values for axis in axes if axis in pairs.xarray.coords}
        s = np.empty((1, 0)) if pairs.scalars is None else np.asarray(pairs.scalars, dtype=np.float64)
        ranges = tuple((float(p.min()), float(p.max())) for p in s.T)
        kinds = named_kinds(axis_kinds(kind, len(axes)), axes)
        labels = {name: found for name in ("a", "u", *axes) if (found := labels_of(pairs.xarray[name].attrs))}
        more = kinds, pairs.parameters, ranges, pairs.without_field, pairs.nodes, labels
        return cls(a_shape, u_shape, s.shape[1], axes, a_axes, channel, str(u.dtype), coordinates, *more)

    def label(self, name: str) -> str:
        """Return the name and the unit of "a", "u" or an axis, as on the axis of a figure, such as "position [km]"."""
        found = self.labels.get(name, {})
        return found.get("long_name", name) + (f" [{found['units']}]" if "units" in found else "")

    def plot_labels(self) -> dict[str, str]:
        """Return the labels of a, u and the axes, which figures call x, y and z."""
        axes = {place: self.label(axis) for place, axis in zip("xyz", self.axes, strict=False)}
        return {"a": self.label("a"), "u": self.label("u"), **axes}

    @property
    def channels(self) -> int:
        """Number of channels of the condition: those of a, and one for each scalar."""
        return self.a_shape[0] + self.scalars

    @property
    def no_field(self) -> bool:
        """Whether an input is one node, which stands for no field beside the scalars."""
        return self.a_shape == (1, 1)

    @cached_property
    def grid(self) -> Grid:
        """The grid of u on the unit cube."""
        return unit_grid(self.u_shape[1:], self.kind, self.axes)

    @cached_property
    def a_grid(self) -> Grid:
        """The grid of a on the unit cube."""
        return unit_grid(self.a_shape[1:], input_kinds(self.kind, len(self.a_shape) - 1), self.a_axes)

    @property
    def same_dimension(self) -> bool:
        """Whether the grids of a and u have the same number of axes."""
        return len(self.a_shape) == len(self.u_shape)

    def condition(self, a: Array, scalars: Array | None) -> Array:
        """Return what a network is conditioned on.

        Args:
            a: normalised inputs on their own grid, (sample, channel, *grid of a).
            scalars: normalised parameters, (sample, parameter).

        Returns:
            a on the grid of u, or on its own if that has another dimension, then the scalars as constant channels: (sample,
            channel, *grid).
        """
        for axis, (source, target) in enumerate(zip(self.a_shape[1:], self.u_shape[1:], strict=False), start=2):
            if source != target and self.same_dimension:
                a = np.moveaxis(np.moveaxis(a, axis, -1) @ _hats(source, target).T, -1, axis)
        if scalars is None:
            return a
        constant = np.broadcast_to(scalars.reshape(*scalars.shape, *(1,) * (a.ndim - 2)), (*scalars.shape, *a.shape[2:]))
        return np.concatenate([a, constant], axis=1)

    def inputs(self, a: Any, scalars: Any = None) -> tuple[Array, Array | None]:
        """Check the user's inputs against those of training.

        Args:
            a: fields; None for a model of scalars alone, whose scalars may also be given here.
            scalars: parameters.

        Returns:
            Inputs as (sample, channel, *grid) and (sample, parameter), None for no scalars.

        Raises:
            UserError: if shapes do not fit, values are not finite, or there are no inputs.
        """
        if a is None and scalars is None:
            raise UserError("there are no inputs to predict for; give at least one")
        if a is None or (self.scalars and scalars is None and np.ndim(a) == 2 and (len(self.a_shape) > 2 or self.no_field)):
            a, scalars = None, a if scalars is None else scalars
        scalars = ordered(scalars, self.parameters)
        check_real("scalars", scalars)
        s = None if scalars is None else np.asarray(to_numpy(scalars), dtype=np.float64)
        s = s[:, None] if s is not None and s.ndim == 1 else s  # as in fit
        if (0 if s is None else s.shape[-1]) != self.scalars or (s is not None and s.ndim != 2):
            got = "none" if s is None else f"an array of shape {s.shape}"
            needed = f"(sample, {self.scalars}): {', '.join(self.parameters)}" if self.scalars else "none"
            raise UserError(f"scalars: got {got}; this model needs {needed}")
        fields = np.zeros((len(s), *self.a_shape)) if a is None and s is not None else self.check_field("a", a)
        if s is not None and len(s) != len(fields):
            raise UserError(f"numbers of samples differ: {len(fields)} of a, {len(s)} of scalars")
        if not len(fields):
            raise UserError("there are no inputs to predict for; give at least one")
        if not np.isfinite(fields).all() or (s is not None and not np.isfinite(s).all()):
            raise UserError("inputs have NaN or infinite values; a prediction needs every value")
        return fields, s

    def check_field(self, name: str, values: Any) -> Array:
        """Check the user's "a" or "u" against that of training and return it as (sample, channel, *grid).

        Raises:
            UserError: if its shape does not fit.
        """
        shape, role = (self.a_shape, "inputs") if name == "a" else (self.u_shape, "outputs")
        check_real(name, values)
        if isinstance(values, xr.DataArray):
            dims = tuple(CHANNEL if d == f"{name}_channel" else str(d) for d in values.dims)
            plain, _ = aligned(arrange(values.values, dims, name), self.a_axes if name == "a" else self.axes)
        else:
            plain = to_numpy(values)
        if plain.shape[1:] == shape[1:] and shape[0] == 1:
            plain = plain[:, None]
        if plain.shape[1:] != shape:
            expected = ", ".join(["sample", *map(str, shape)])
            raise UserError(f"{name} has shape {plain.shape}; this model was trained on {role} of shape ({expected})")
        return plain

    def outputs(self, values: Array, like: Any) -> Any:
        """Return values in the layout and type of the user's u.

        Args:
            values: (sample, channel, *grid), or (member, sample, channel, *grid).
            like: the user's inputs; if they are a DataArray, the result is one with their sample coordinates.

        Returns:
            Values without the channel axis if the user's u has none.
        """
        lead = values.ndim - len(self.u_shape) - 1
        if not self.channel:
            values = values.take(0, axis=lead + 1)
        values = values.astype(self.dtype, copy=False)
        if not isinstance(like, xr.DataArray):
            return values
        dims = (*["member"][:lead], SAMPLE, *([CHANNEL] if self.channel else []), *self.axes)
        along = {str(k): c.values for k, c in like.coords.items() if c.dims == (k,) and k in (SAMPLE, *self.axes)}
        along |= self.coordinates
        sizes = dict(zip(dims, values.shape, strict=True))
        coords: dict[str, Any] = {k: (k, c, self.labels.get(k, {})) for k, c in along.items() if sizes.get(k) == len(c)}
        of_nodes = {} if self.nodes is None else self.nodes.coordinates()
        coords |= {k: (NODE, c) for k, c in of_nodes.items() if COORDINATES[k] == (NODE,)}
        return xr.DataArray(values, dims=dims, coords=coords)

    def state(self) -> State:
        """Return what `from_state` needs; of the coordinates, those that are numbers."""
        settings = {
            "a_shape": list(self.a_shape),
            "u_shape": list(self.u_shape),
            "scalars": self.scalars,
            "axes": list(self.axes),
            "a_axes": list(self.a_axes),
            "channel": self.channel,
            "dtype": self.dtype,
            "kind": list(self.kind),
            "parameters": list(self.parameters),
            "ranges": [list(pair) for pair in self.ranges],
            "without_field": self.without_field,
            "labels": {name: dict(found) for name, found in self.labels.items()},
        }
        coordinates = {axis: nodes for axis, nodes in self.coordinates.items() if nodes.dtype.kind in "iuf"}
        return State(settings, coordinates | ({} if self.nodes is None else self.nodes.coordinates()))

    @classmethod
    def from_state(cls, state: State) -> "Spaces":
        """Return the spaces that `state` was made of."""
        tuples: dict[str, Any] = {
            name: tuple(state.settings[name]) for name in ("a_shape", "u_shape", "axes", "a_axes", "kind")
        }
        tuples["parameters"] = tuple(state.settings.get("parameters", ()))  # older files have none
        tuples["ranges"] = tuple((low, high) for low, high in state.settings.get("ranges", ()))
        coordinates = {name: nodes for name, nodes in state.arrays.items() if name not in COORDINATES}
        return cls(**{**state.settings, **tuples}, coordinates=coordinates, nodes=Nodes.of(state.arrays))


def axis_kinds(kind: Kind | Sequence[Kind], axes: int) -> tuple[Kind, ...]:
    """Return the kind of each axis, given one for all or one for each.

    Raises:
        UserError: if a kind is unknown, or their number is not that of the axes.
    """
    kinds: tuple[Kind, ...] = (kind,) * axes if isinstance(kind, str) else tuple(kind)
    for each in kinds:
        if each not in get_args(Kind):
            raise UserError(f"grid kind {each!r} is unknown; {nearest(str(each), get_args(Kind))}")
    if len(kinds) != axes:
        raise UserError(
            f"got {len(kinds)} kinds of axes ({', '.join(kinds)}) for a grid of {axes}; give one for all or one each"
        )
    return kinds


def named_kinds(kinds: Sequence[Kind], axes: Sequence[str]) -> tuple[Kind, ...]:
    """Return the kinds of axes with these names: an axis that numbers the nodes of a mesh has the kind "node".

    >>> named_kinds(("cell", "cell"), ("time", "node"))
    ('cell', 'node')
    """
    return tuple("node" if axis == NODE else kind for kind, axis in zip(kinds, axes, strict=True))


def input_kinds(kind: Kind | Sequence[Kind], axes: int) -> tuple[Kind, ...]:
    """Return the kind of each axis of a, given those of u: the same, or that which all axes of u share, else "cell".

    >>> input_kinds(("periodic", "cell"), 2), input_kinds(("periodic", "periodic"), 1), input_kinds(("periodic", "cell"), 1)
    (('periodic', 'cell'), ('periodic',), ('cell',))
    """
    kinds: tuple[Kind, ...] = (kind,) if isinstance(kind, str) else tuple(kind)
    if len(kinds) == axes:
        return kinds
    return (kinds[0] if len(set(kinds)) == 1 else "cell",) * axes


def unit_grid(points: tuple[int, ...], kind: Kind | Sequence[Kind], names: Sequence[str] = ()) -> Grid:
    """Return the grid with these points on the unit cube; axes without names are called x, y, z."""
    kinds = axis_kinds(kind, len(points))
    return Grid(tuple(Axis(n, k, name=x) for n, k, x in zip(points, kinds, names or "xyz", strict=False)))


@lru_cache(maxsize=32)
def _hats(source: int, target: int) -> Array:
    """Return the weights of hat functions as wide as the coarser spacing: (target, source). Both grids span one interval."""
    place = np.linspace(0, source - 1, target)[:, None]
    width = max(1.0, (source - 1) / max(1, target - 1))
    weights = np.maximum(0, 1 - np.abs(place - np.arange(source)) / width)
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))
