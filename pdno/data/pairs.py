"""Pairs (a, u): what is learned from, and what is judged against.

    data.train.a, data.train.u       inputs and (noisy) outputs to learn from
    data.validation                  pairs to choose by, None if there are none
    data.test.a, data.test.u         inputs and clean outputs
    data.test.u_eta                  outputs with noise of their own, None if the data have none

Arrays are (sample, channel, *grid), in memory or mapped from files; beside a and u there may be `scalars` (sample,
parameter), a `mask` of the outputs that are known, and a `group` that no split divides.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from ..draw import generator
from ..equation import EQUATIONS, Equation
from ..errors import UserError
from ..grid import Axis, Grid
from . import store
from .selection import CHANNEL, SAMPLE, arrange

if TYPE_CHECKING:
    import torch

__all__ = ["Dataset", "Pairs", "aligned", "layout", "open_store", "to_numpy"]

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Pairs:
    """Pairs (a, u) of one split, as an xarray Dataset; those of an opened store are read on first use."""

    xarray: xr.Dataset

    @classmethod
    def of(
        cls,
        a: Any,
        u: Any,
        *,
        dims: tuple[tuple[str, ...] | None, tuple[str, ...] | None] = (None, None),
        coordinates: Mapping[str, Array] | None = None,
        u_eta: Any = None,
        mask: Any = None,
        scalars: Any = None,
        group: Any = None,
    ) -> "Pairs":
        """Pairs from NumPy arrays, torch tensors or xarray DataArrays.

        `dims` names the dimensions of a and of u (``("sample", "x", "y")``) where their shapes leave a choice; DataArrays
        bring their own names and coordinates. ``mask="nan"`` takes NaN in u as missing.
        """
        known = dict(coordinates or {})
        for array in (a, u):
            if isinstance(array, xr.DataArray):
                known |= {str(name): c.values for name, c in array.coords.items() if c.dims == (name,)}
        outputs, axes_u = _field(u, dims[1], "u")
        fields, axes_a = aligned(_field(a, dims[0], "a"), axes_u)
        points_u = dict(zip(axes_u, outputs.shape[2:], strict=True))
        clash = {x for x, n in zip(axes_a, fields.shape[2:], strict=True) if points_u.get(x, n) != n}
        axes_a = tuple(f"a_{x}" if x in clash else x for x in axes_a)
        variables = {"a": ((SAMPLE, "a_channel", *axes_a), fields), "u": (u_dims := (SAMPLE, "u_channel", *axes_u), outputs)}
        if u_eta is not None:
            variables["u_eta"] = (u_dims, _field(u_eta, dims[1], "u_eta")[0])
        if mask is not None:
            known_u = np.isfinite(outputs) if isinstance(mask, str) else aligned(_field(mask, dims[1], "mask"), axes_u)[0] > 0
            variables["mask"] = (u_dims, known_u)
        if scalars is not None:
            variables["scalars"] = ((SAMPLE, "parameter"), (p := to_numpy(scalars)).reshape(len(p), -1))
        if group is not None:
            variables["group"] = ((SAMPLE,), np.unique(to_numpy(group), return_inverse=True)[1].reshape(-1))
        _check_counts({name: len(values) for name, (_, values) in variables.items()})
        sizes = {x: n for dim, v in variables.values() for x, n in zip(dim, v.shape, strict=True)}
        fitting = {x: v for x, v in known.items() if sizes.get(x) == len(v) and x != SAMPLE}
        return cls(xr.Dataset(variables, coords=fitting))

    @property
    def a(self) -> Array:
        return self._values("a")

    @property
    def u(self) -> Array:
        return self._values("u")

    @property
    def u_eta(self) -> Array | None:
        return self._optional("u_eta")

    @property
    def mask(self) -> Array | None:
        """True where u is known, None if it is everywhere."""
        return self._optional("mask")

    @property
    def scalars(self) -> Array | None:
        return self._optional("scalars")

    @property
    def group(self) -> Array | None:
        return self._optional("group")

    def fingerprints(self) -> NDArray[np.int64]:
        """A number for each input, of a and scalars in single precision: equal for equal inputs."""
        parts = [self.a] if self.scalars is None else [self.a, self.scalars]
        rows = zip(*(np.asarray(part, dtype=np.float32) for part in parts), strict=True)
        digests = [blake2b(b"".join(part.tobytes() for part in row), digest_size=8).digest() for row in rows]
        return np.frombuffer(b"".join(digests), dtype="<i8").astype(np.int64)

    def __len__(self) -> int:
        return int(self.xarray.sizes[SAMPLE])

    def __repr__(self) -> str:
        shapes = ", ".join(f"{name} {tuple(v.shape[1:])}" for name, v in sorted(self.xarray.data_vars.items()))
        return f"Pairs({len(self)} samples: {shapes})"

    def __getitem__(self, index: Any) -> "Pairs":
        """Some of the pairs, by slice or by an array of numbers."""
        return Pairs(self.xarray.isel({SAMPLE: index}))

    def torch(self) -> "tuple[torch.Tensor, torch.Tensor]":
        """a and u as torch tensors that share memory with the arrays where they can."""
        import torch

        return torch.from_numpy(np.ascontiguousarray(self.a)), torch.from_numpy(np.ascontiguousarray(self.u))

    def batches(self, size: int, seed: int = 0, epoch: int = 0) -> Iterator[tuple[Array, Array]]:
        """Batches (a, u) of all pairs in a random order that is a function of (seed, epoch)."""
        a, u = self.a, self.u
        order = generator(seed, "batches", epoch).permutation(len(self))
        for first in range(0, len(order), size):
            rows = order[first : first + size]
            yield a[rows], u[rows]

    def _optional(self, name: str) -> Array | None:
        return self._values(name) if name in self.xarray else None

    def _values(self, name: str) -> Array:
        try:
            return np.asarray(self.xarray[name].values)
        except MemoryError:
            raise UserError(f"array {name!r} does not fit into memory; take fewer samples, or more memory") from None
        except Exception as error:  # zarr raises whatever its codecs raise for a damaged chunk
            where = self.xarray.encoding.get("source", "the store")
            raise UserError(f"array {name!r} of {where} is damaged; generate it again ({error})") from error


@dataclass(frozen=True, eq=False)
class Dataset:
    """Train, validation and test pairs with their provenance.

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
        """The equation that the pairs were generated from, None if it is not one of pdno's."""
        made = self.provenance.get("equation", {})
        known = EQUATIONS.get(made.get("name", ""))
        return known(**made["settings"]) if known and self.provenance.get("command") else None

    def splits(self) -> dict[str, Pairs]:
        """Name → pairs of the splits that there are."""
        every = {"train": self.train, "validation": self.validation, "test": self.test}
        return {name: pairs for name, pairs in every.items() if pairs is not None}

    def split(self, validation: float = 0.1, test: float = 0.1, seed: int = 0) -> "Dataset":
        """Hold out these fractions of the training pairs for the splits that are missing or empty; groups stay whole."""
        wanted = {"validation": 0.0 if self.validation else validation, "test": 0.0 if len(self.test) else test}
        rows = _divide(self.train, wanted, seed)
        parts: dict[str, Any] = {name: self.train[rows[name]] for name, fraction in wanted.items() if fraction}
        provenance = {**self.provenance, "split": {"validation": validation, "test": test, "seed": seed}}
        return replace(self, train=self.train[rows["train"]], provenance=provenance, **parts)

    def save(self, path: str | Path) -> None:
        """Write the store; an existing path is refused."""
        arrays = {
            split: {str(k): v.values for k, v in pairs.xarray.data_vars.items()} for split, pairs in self.splits().items()
        }
        plan = layout(self.splits(), {split: len(pairs) for split, pairs in self.splits().items()}, self.grid, self.provenance)
        with store.building(Path(path), plan) as partial:
            for split, first, end in store.blocks(plan):
                store.write(partial, split, first, {name: values[first:end] for name, values in arrays[split].items()})

    def __repr__(self) -> str:
        counts = " + ".join(f"{len(pairs)} {name}" for name, pairs in self.splits().items() if len(pairs))
        shapes = ", ".join(f"{name} {self.train.xarray[name].shape[1:]}" for name in ("a", "u"))
        noise = f", noise {self.provenance['noise']}" if "noise" in self.provenance else ""
        return f"Dataset({self.provenance['name']}, {counts} pairs, {shapes}{noise})"


def layout(
    templates: Mapping[str, Pairs], samples: Mapping[str, int], grid: Grid | None, provenance: Mapping[str, Any]
) -> store.Layout:
    """What a store holds, from some pairs of each split and the number there will be."""
    specs, coordinates = {}, {}
    for split, pairs in templates.items():
        arrays = pairs.xarray.data_vars.items()
        specs[split] = {str(k): store.Spec(v.shape[1:], str(v.dtype), tuple(map(str, v.dims))) for k, v in arrays}
        coordinates[split] = {str(name): c.values for name, c in pairs.xarray.coords.items()}
    axes = grid and [
        {"points": int(x.points), "kind": x.kind, "low": float(x.low), "high": float(x.high), "name": x.name} for x in grid.axes
    ]
    return store.Layout(samples, specs, coordinates, {"pdno": {**provenance, "samples": dict(samples), "grid": axes}})


def open_store(path: Path) -> Dataset:
    """Open a store that `pdno generate` or `Dataset.save` wrote; values are read when they are used."""
    provenance = dict(store.check(path)["pdno"])
    axes = provenance.pop("grid")
    grid = None if axes is None else Grid(tuple(Axis(**axis) for axis in axes))
    splits = {
        split: Pairs(xr.open_zarr(path, group=split, consolidated=False, chunks=None)) for split in provenance.pop("samples")
    }
    return Dataset(splits["train"], splits["test"], provenance, grid, splits.get("validation"))


def to_numpy(values: Any) -> Array:
    """NumPy, torch or xarray as NumPy."""
    if hasattr(values, "detach"):
        values = values.detach().cpu()
    return np.asarray(values)


def _field(values: Any, dims: tuple[str, ...] | None, what: str) -> tuple[Array, tuple[str, ...]]:
    if isinstance(values, xr.DataArray) and dims is None:
        dims = tuple(CHANNEL if str(name) in ("a_channel", "u_channel") else str(name) for name in values.dims)
    return arrange(to_numpy(values), dims, what)


def aligned(field: tuple[Array, tuple[str, ...]], axes: tuple[str, ...]) -> tuple[Array, tuple[str, ...]]:
    """A field with the axes of another in the other's order, where they have the same names."""
    values, mine = field
    if mine == axes or set(mine) != set(axes):
        return field
    return np.transpose(values, (0, 1, *(2 + mine.index(axis) for axis in axes))), axes


def _check_counts(counts: Mapping[str, int]) -> None:
    if len(set(counts.values())) > 1:
        told = ", ".join(f"{n} of {name}" for name, n in counts.items())
        raise UserError(
            f"numbers of samples differ: {told}; choose arrays that belong together, or name their axes with --dims"
        )


def _divide(pairs: Pairs, fractions: Mapping[str, float], seed: int) -> dict[str, NDArray[np.intp]]:
    """Rows of each held-out part and of train, drawn by group; without groups, pairs of equal inputs stay together."""
    if not (all(f >= 0 for f in fractions.values()) and sum(fractions.values()) < 1):
        raise UserError(f"fractions {dict(fractions)} were asked for; expected none negative, and something left to learn from")
    group = _apart(pairs, min((f for f in fractions.values() if f), default=1.0))
    names = np.unique(group)
    shuffled = generator(seed, "split", 0).permutation(names)
    rows, begin = {}, 0
    for part, fraction in fractions.items():
        end = begin + (max(1, round(fraction * len(names))) if fraction else 0)
        if fraction and end >= len(names):
            raise UserError(
                f"{len(names)} independent pairs are too few to hold out {fraction:g} of them for {part}; bring more"
            )
        rows[part] = np.flatnonzero(np.isin(group, shuffled[begin:end]))
        begin = end
    rows["train"] = np.flatnonzero(np.isin(group, shuffled[begin:]))
    return rows


def _apart(pairs: Pairs, least: float) -> NDArray[np.intp]:
    """A label for each pair, the same for those that must stay together: groups, or equal inputs unless these are too few."""
    if pairs.group is not None:
        return np.asarray(pairs.group)
    rows = np.arange(len(pairs))
    _, first, inverse = np.unique(pairs.fingerprints(), return_index=True, return_inverse=True)
    return rows if least * len(first) < 1 else first[inverse.reshape(-1)]
