"""Pairs (a, u): what was learned from, and what is judged against.

data.train.a, data.train.u       inputs and (noisy) outputs to learn from
data.test.a, data.test.u         inputs and clean outputs
data.test.u_eta                  outputs with noise of their own, None if the data have no noise
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from . import store
from .errors import UserError
from .grid import Axis, Grid

__all__ = ["Dataset", "Pairs", "open"]

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Pairs:
    """Pairs (a, u) of one split. Arrays are (sample, channel, *grid); those of an opened store are read on first use."""

    xarray: xr.Dataset

    @classmethod
    def from_arrays(cls, grid: Grid, arrays: Mapping[str, Array]) -> "Pairs":
        """Pairs in memory from arrays named a, u and perhaps u_eta."""
        variables = {name: (("sample", f"{name[0]}_channel", *grid.names), values) for name, values in arrays.items()}
        return cls(xr.Dataset(variables, coords=grid.coordinates))

    @property
    def a(self) -> Array:
        return self._values("a")

    @property
    def u(self) -> Array:
        return self._values("u")

    @property
    def u_eta(self) -> Array | None:
        return self._values("u_eta") if "u_eta" in self.xarray else None

    def __len__(self) -> int:
        return int(self.xarray.sizes["sample"])

    def _values(self, name: str) -> Array:
        try:
            values: Array = self.xarray[name].values
        except Exception as error:  # zarr raises whatever its codecs raise for a damaged chunk
            raise UserError(
                f"array {name!r} of {self.xarray.encoding.get('source', 'the store')} is damaged; generate it again ({error})"
            ) from error
        return values


@dataclass(frozen=True)
class Dataset:
    """Train and test pairs on one grid, with their provenance.

    >>> import pdno
    >>> data = pdno.generate(pdno.equation.Advection(points=32), train=4, test=2)
    >>> data
    Dataset(advection, grid 32, 4 train + 2 test pairs, noise none)
    """

    train: Pairs
    test: Pairs
    grid: Grid
    provenance: Mapping[str, Any]

    def save(self, path: str | Path) -> None:
        """Write the store; an existing path is refused."""
        splits = {"train": self.train, "test": self.test}
        arrays = {split: {str(k): v.values for k, v in pairs.xarray.data_vars.items()} for split, pairs in splits.items()}
        plan = layout(self.grid, self.provenance, {s: {k: v.shape[1:] for k, v in a.items()} for s, a in arrays.items()})
        with store.building(Path(path), plan) as partial:
            for split, first, end in store.blocks(plan):
                store.write(partial, split, first, {name: values[first:end] for name, values in arrays[split].items()})

    def __repr__(self) -> str:
        name = self.provenance["equation"]["name"]
        counts = f"{len(self.train)} train + {len(self.test)} test pairs"
        return f"Dataset({name}, grid {self.grid}, {counts}, noise {self.provenance['noise']})"


def layout(grid: Grid, provenance: Mapping[str, Any], shapes: Mapping[str, Mapping[str, tuple[int, ...]]]) -> store.Layout:
    """The store's layout for data on `grid` with sample shapes split → array → (channel, *grid)."""
    axes = [{"points": x.points, "kind": x.kind, "low": x.low, "high": x.high, "name": x.name} for x in grid.axes]
    attributes = {"pdno": {**provenance, "grid": axes}}
    return store.Layout(provenance["samples"], shapes, grid.coordinates, attributes)


def open(path: str | Path) -> Dataset:
    """Open a store that `pdno generate` or `Dataset.save` wrote; values are read when they are used."""
    root = Path(path)
    provenance = dict(store.check(root)["pdno"])
    grid = Grid(tuple(Axis(**axis) for axis in provenance.pop("grid")))
    train, test = (Pairs(xr.open_zarr(root, group=split, consolidated=False, chunks=None)) for split in ("train", "test"))
    return Dataset(train, test, grid, provenance)
