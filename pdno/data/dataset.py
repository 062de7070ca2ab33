"""Data sets of training, validation and test pairs.

data.train.a, data.train.u       inputs and (noisy) outputs for training
data.validation                  pairs for model selection, None if there are none
data.test.a, data.test.u         inputs and clean outputs
data.test.u_eta                  outputs with an independent draw of the noise, None if the data have none
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from ..equation import EQUATIONS, Equation
from ..grid import Axis, Grid
from . import store
from .nodes import with_nodes
from .pairs import Pairs
from .parameters import PARAMETER
from .selection import SAMPLE
from .series import blocks
from .split import divide

__all__ = ["Dataset", "layout", "open_store"]


@dataclass(frozen=True, eq=False)
class Dataset:
    """Training, validation and test pairs with their provenance.

    Args:
        train: training pairs.
        test: test pairs, possibly none.
        provenance: where the data came from, as plain JSON types.
        grid: of u, None if unknown.
        validation: validation pairs, None if there are none.

    >>> import pdno
    >>> pdno.generate(pdno.equation.Advection(points=32), train=4, test=2)
    Dataset(advection, 4 train + 2 test pairs, a (1, 32), u (1, 32), noise none)
    """

    train: Pairs
    test: Pairs
    provenance: Mapping[str, Any]
    grid: Grid | None = None
    validation: Pairs | None = None

    @property
    def equation(self) -> Equation | None:
        """The equation that the pairs were generated with, None if it is not one of pdno's."""
        recorded = self.provenance.get("equation", {})
        equation = EQUATIONS.get(recorded.get("name", ""))
        return equation(**recorded["settings"]) if equation and self.provenance.get("command") else None

    def splits(self) -> dict[str, Pairs]:
        """Return the pairs of each split that exists, by its name."""
        splits = {"train": self.train, "validation": self.validation, "test": self.test}
        return {name: pairs for name, pairs in splits.items() if pairs is not None}

    def split(self, validation: float = 0.1, test: float = 0.1, seed: int = 0) -> "Dataset":
        """Hold out training pairs for the splits that are missing or empty; groups and equal inputs are not divided.

        Consecutive samples that are alike, as those of a time series, are grouped into blocks; `provenance["series"]` is their
        number.

        Args:
            validation, test: fractions of the training pairs.
            seed: of the random choice.

        Raises:
            UserError: if fractions are out of range, or there are too few independent pairs.
        """
        whole = self.in_blocks()
        if whole is not self:
            return whole.split(validation, test, seed)
        wanted = {"validation": 0.0 if self.validation else validation, "test": 0.0 if len(self.test) else test}
        rows = divide(self.train, wanted, seed)
        parts: dict[str, Any] = {name: self.train[rows[name]] for name, fraction in wanted.items() if fraction}
        provenance = {**self.provenance, "split": {"validation": validation, "test": test, "seed": seed}}
        return replace(self, train=self.train[rows["train"]], provenance=provenance, **parts)

    def in_blocks(self) -> "Dataset":
        """Return the data set with blocks of consecutive samples as groups, if training pairs are a series without groups."""
        pairs = self.train
        if pairs.group is not None or self.equation is not None or not pairs.is_series():
            return self
        group = xr.Variable((SAMPLE,), blocks(pairs.a, pairs.u, pairs.scalars))
        provenance = {**self.provenance, "series": int(group.values.max()) + 1}
        return replace(self, train=Pairs(pairs.xarray.assign(group=group)), provenance=provenance)

    def save(self, path: str | Path) -> None:
        """Write the data set as a store, see `pdno.data.store`.

        Args:
            path: of the new store, NAME.zarr.

        Raises:
            UserError: if the path exists or cannot be written.
        """
        arrays = {
            split: {str(k): v.values for k, v in pairs.xarray.data_vars.items()} for split, pairs in self.splits().items()
        }
        plan = layout(self.splits(), {split: len(pairs) for split, pairs in self.splits().items()}, self.grid, self.provenance)
        with store.building(Path(path), plan) as partial:
            for split, first, end in store.blocks(plan):
                store.write(partial, split, first, {name: values[first:end] for name, values in arrays[split].items()})

    def __repr__(self) -> str:
        counts = " + ".join(f"{len(pairs)} {name}" for name, pairs in self.splits().items() if len(pairs))
        names = ("u",) if self.train.without_field else ("a", "u")
        shapes = ", ".join(f"{name} {self.train.xarray[name].shape[1:]}" for name in names)
        shapes += f", parameters {', '.join(self.train.parameters)}" if self.train.parameters else ""
        noise = f", noise {self.provenance['noise']}" if "noise" in self.provenance else ""
        return f"Dataset({self.provenance['name']}, {counts} pairs, {shapes}{noise})"


def layout(
    templates: Mapping[str, Pairs], samples: Mapping[str, int], grid: Grid | None, provenance: Mapping[str, Any]
) -> store.Layout:
    """Describe the store of a data set.

    Args:
        templates: some pairs of each split, which have the arrays that the store will have.
        samples: number of pairs of each split.
        grid: of u.
        provenance: as plain JSON types.
    """
    specs, coordinates = {}, {}
    for split, pairs in templates.items():
        arrays = pairs.xarray.data_vars.items()
        specs[split] = {str(k): store.Spec.of(v) for k, v in arrays}
        coordinates[split] = {str(name): c.values for name, c in pairs.xarray.coords.items() if name != PARAMETER}
        if PARAMETER in pairs.xarray.coords:
            provenance = {**provenance, "parameters": list(pairs.parameters)}
    axes = grid and [
        {"points": int(x.points), "kind": x.kind, "low": float(x.low), "high": float(x.high), "name": x.name} for x in grid.axes
    ]
    labels = {str(name): c.attrs for pairs in templates.values() for name, c in pairs.xarray.coords.items()}
    provenance = {**provenance, "samples": dict(samples), "grid": axes}
    return store.Layout(samples, specs, coordinates, {"pdno": provenance}, labels=labels)


def open_store(path: Path) -> Dataset:
    """Open a store that `pdno generate` or `Dataset.save` wrote; values are read on first use.

    Raises:
        UserError: if it does not exist, is not such a store, or is incomplete.
    """
    provenance = dict(store.check(path)["pdno"])
    axes = provenance.pop("grid")
    grid = None if axes is None else Grid(tuple(Axis(**axis) for axis in axes))
    names = {PARAMETER: np.array(provenance.pop("parameters"))} if "parameters" in provenance else {}
    splits = {
        split: Pairs(
            with_nodes(xr.open_zarr(path, group=split, zarr_format=3, consolidated=False, chunks=None)).assign_coords(names)
        )
        for split in provenance.pop("samples")
    }
    return Dataset(splits["train"], splits["test"], provenance, grid, splits.get("validation"))
