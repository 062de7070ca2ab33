"""Data sets of one problem on several grids as one data set, on the finest of them."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .. import __version__
from .._typing import Array
from ..basis import Kind
from ..errors import UserError
from .dataset import Dataset
from .meshes import on_finest
from .pairs import Pairs
from .selection import CHANNEL, SAMPLE
from .spaces import input_kinds, unit_grid

__all__ = ["merged"]

FIELDS = ("a", "u", "u_eta")


def merged(parts: Sequence[Dataset], kind: Kind | Sequence[Kind] | None = None) -> Dataset:
    """Return the pairs of several data sets, interpolated to the finest grid, by the interpolation that loses least.

    Args:
        parts: data sets of one problem, with the same arrays.
        kind: of the axes, see `pdno.grid`; default: that of the data, if it is known, or "cell".

    Raises:
        UserError: if there are no parts, arrays differ, outputs are incomplete, or fields are on the nodes of a mesh.
    """
    if not parts:
        raise UserError("expected one data set or more; got none")
    finest = max(parts, key=lambda part: part.train.u[0].size)
    kind = kind or ("cell" if finest.grid is None else tuple(axis.kind for axis in finest.grid.axes))
    every = [pairs for part in parts for pairs in part.splits().values() if len(pairs)]
    _check(every)
    points = {x: tuple(map(int, np.max([p.xarray[x].shape[2:] for p in every], axis=0))) for x in ("a", "u")}
    splits = {name: [s[name] for part in parts if len((s := part.splits()).get(name, ()))] for name in finest.splits()}
    whole = {name: _joined(some, kind, points) for name, some in splits.items() if some}
    names = [str(part.provenance.get("name", "data")) for part in parts]
    provenance = {"schema": 1, "name": "+".join(names), "source": {"merged": names}, "version": __version__}
    train = whole["train"]
    axes = tuple(map(str, train.xarray["u"].dims[2:]))
    grid = finest.grid or unit_grid(train.u.shape[2:], input_kinds(kind, len(axes)), axes)
    return Dataset(train, whole.get("test", train[:0]), provenance, grid, whole.get("validation"))


def _check(every: Sequence[Pairs]) -> None:
    """Refuse pairs that cannot be interpolated to one grid."""
    if any(pairs.weights is not None or "node" in pairs.xarray.dims for pairs in every):
        raise UserError("fields on the nodes of a mesh cannot be merged: interpolate them to one mesh, or to grids")
    if any(pairs.mask is not None for pairs in every):
        raise UserError("outputs with missing values cannot be interpolated to another grid; fill them, or train on one file")
    kinds = {tuple((pairs.xarray[x].shape[1], pairs.xarray[x].ndim - 2) for x in ("a", "u")) for pairs in every}
    if len(kinds) > 1:
        found = " and ".join(f"{p.a.shape[1:]} to {p.u.shape[1:]}" for p in (every[0], every[-1]))
        raise UserError(f"the files have fields of shapes {found}; they need the same channels and number of axes")
    parameters = {pairs.parameters for pairs in every}
    if len(parameters) > 1:
        raise UserError(f"the files have different parameters, {' and '.join(map(str, parameters))}; give the same in each")


def _joined(some: Sequence[Pairs], kind: Kind | Sequence[Kind], points: Mapping[str, tuple[int, ...]]) -> Pairs:
    """Return the pairs of one split on one grid."""
    names = [name for name in FIELDS if all(name in pairs.xarray for pairs in some)]
    fields: dict[str, Any] = {
        name: on_finest([getattr(pairs, name) for pairs in some], kind, points[name[0]])[0] for name in names
    }
    best = max(some, key=lambda pairs: pairs.u[0].size)
    others: dict[str, Any] = {}
    if best.scalars is not None:
        others["scalars"] = np.concatenate([pairs.xarray["scalars"].values for pairs in some])
    if any(pairs.group is not None for pairs in some):
        others["group"] = _labels(some)
    along = {str(x): c.values for x, c in best.xarray.coords.items() if c.dims == (x,)}
    return Pairs.of(**fields, **others, dims=(_dims(best, "a"), _dims(best, "u")), coordinates=along)


def _dims(pairs: Pairs, name: str) -> tuple[str, ...]:
    """Return the names of the dimensions of a field."""
    return (SAMPLE, CHANNEL, *map(str, pairs.xarray[name].dims[2:]))


def _labels(some: Sequence[Pairs]) -> Array:
    """Return labels of all pairs, those of different data sets different."""
    labels, first = [], 0
    for pairs in some:
        own = pairs.labels()
        labels.append(first + own)
        first += int(own.max()) + 1
    return np.concatenate(labels)
