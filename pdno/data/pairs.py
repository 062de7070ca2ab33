"""Pairs (a, u) of inputs and outputs.

    pairs.a, pairs.u       inputs and (noisy) outputs
    pairs.u_eta            outputs with an independent draw of the noise, None if there are none

Arrays are (sample, channel, *grid), in memory or mapped from files. Beside a and u there may be `scalars` (sample, parameter),
a `mask` of the observed outputs, and a `group` label of each pair: splits keep pairs of a group together.
"""

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from .._typing import Array, Ints, Mask
from ..draw import generator
from ..errors import UserError
from .formats.entry import labels_of
from .nodes import COORDINATES, Nodes, OnNodes
from .parameters import PARAMETER, names_of
from .selection import CHANNEL, SAMPLE, aligned, arrange, check_counts
from .series import is_series

if TYPE_CHECKING:
    import torch

__all__ = ["Pairs", "to_numpy"]

IN_ORDER = 32  # pairs that are used together: their order does not matter


@dataclass(frozen=True, eq=False)
class Pairs(OnNodes):
    """Pairs (a, u) of one split.

    Args:
        xarray: the arrays a and u, and optionally u_eta, mask, scalars and group; those of a store are read on first use.
    """

    xarray: xr.Dataset

    @classmethod
    def of(
        cls,
        a: Any,
        u: Any,
        *,
        dims: tuple[tuple[str, ...] | None, tuple[str, ...] | None] = (None, None),
        coordinates: Mapping[str, Array] | None = None,
        nodes: Nodes | None = None,
        u_eta: Any = None,
        mask: Any = None,
        scalars: Any = None,
        group: Any = None,
        labels: Mapping[str, Mapping[str, str]] | None = None,
    ) -> "Pairs":
        """Make pairs from NumPy arrays, torch tensors or xarray DataArrays.

        Args:
            a, u: inputs and outputs.
            dims: names of the dimensions of a and of u, such as ``("sample", "x", "y")``, where their shapes are ambiguous;
                DataArrays have their own names and coordinates.
            coordinates: nodes by name of the axis.
            nodes: of a mesh, which an axis named "node" numbers.
            u_eta: outputs with an independent draw of the noise, in the shape of u.
            mask: True where u is observed, in the shape of u; "nan" marks NaN in u as missing.
            scalars: further parameters, (sample, parameter); the names of columns of a pandas table are kept.
            group: labels, (sample,); pairs with equal labels stay together in splits.
            labels: units and long_name of "a", "u" and of axes, by name; DataArrays have their own.

        Raises:
            UserError: if shapes are ambiguous or numbers of samples differ.
        """
        along, described = dict(coordinates or {}), dict(labels or {})
        for role, array in (("a", a), ("u", u)):
            if isinstance(array, xr.DataArray):
                own = {str(name): c for name, c in array.coords.items() if c.dims == (name,)}
                described |= {name: labels_of(v.attrs) for name, v in {role: array, **own}.items()}
                along |= {name: c.values for name, c in own.items()}
                nodes = nodes or Nodes.of({name: c.values for name, c in array.coords.items() if name in COORDINATES})
        outputs, axes_u = _field(u, dims[1], "u")
        fields, axes_a = aligned(_field(a, dims[0], "a"), axes_u)
        points_u = dict(zip(axes_u, outputs.shape[2:], strict=True))
        clash = {x for x, n in zip(axes_a, fields.shape[2:], strict=True) if points_u.get(x, n) != n}
        axes_a = tuple(f"a_{x}" if x in clash else x for x in axes_a)
        variables = {"a": ((SAMPLE, "a_channel", *axes_a), fields), "u": (u_dims := (SAMPLE, "u_channel", *axes_u), outputs)}
        if u_eta is not None:
            variables["u_eta"] = (u_dims, _field(u_eta, dims[1], "u_eta")[0])
        if mask is not None:
            observed = np.isfinite(outputs) if isinstance(mask, str) else aligned(_field(mask, dims[1], "mask"), axes_u)[0] > 0
            variables["mask"] = (u_dims, observed)
        if scalars is not None:
            variables["scalars"] = ((SAMPLE, PARAMETER), (p := to_numpy(scalars)).reshape(len(p), -1))
            along |= {PARAMETER: np.array(names)} if (names := names_of(scalars)) else {}
        if group is not None:
            variables["group"] = ((SAMPLE,), np.unique(to_numpy(group), return_inverse=True)[1].reshape(-1))
        check_counts({name: len(values) for name, (_, values) in variables.items()})
        sizes = {x: n for dim, v in variables.values() for x, n in zip(dim, v.shape, strict=True)}
        fitting: dict[str, Any] = {x: v for x, v in along.items() if sizes.get(x) == len(v) and x != SAMPLE}
        fitting |= {} if nodes is None else {name: (COORDINATES[name], v) for name, v in nodes.coordinates().items()}
        dataset = xr.Dataset(variables, fitting)
        for name in described.keys() & set(dataset.variables):
            dataset[name].attrs = dict(described[name])
        return cls(dataset)

    @property
    def a(self) -> Array:
        """Inputs, (sample, channel, *grid)."""
        return self._values("a")

    @property
    def u(self) -> Array:
        """Outputs, (sample, channel, *grid)."""
        return self._values("u")

    @property
    def u_eta(self) -> Array | None:
        """Outputs with an independent draw of the noise, in the shape of u; None if there are none."""
        return self._optional("u_eta")

    @property
    def mask(self) -> Mask | None:
        """True where u is observed, in the shape of u; None if all of u is observed."""
        return self._optional("mask")

    @property
    def scalars(self) -> Array | None:
        """Further parameters, (sample, parameter); None if there are none."""
        return self._optional("scalars")

    @property
    def parameters(self) -> tuple[str, ...]:
        """Names of the scalars; p1, p2, … if they have none."""
        if PARAMETER in self.xarray.coords:
            return tuple(map(str, self.xarray.coords[PARAMETER].values))
        return tuple(f"p{i}" for i in range(1, self.xarray.sizes.get(PARAMETER, 0) + 1))

    @property
    def group(self) -> Ints | None:
        """Labels of the user's groups, (sample,); None if there are none."""
        return self._optional("group")

    @property
    def without_field(self) -> bool:
        """Whether outputs depend on scalars alone: a is zero."""
        return PARAMETER in self.xarray.dims and not self.xarray["a"][:1].values.any() and not self.a.any()

    @property
    def mask_varies(self) -> bool:
        """Whether outputs are observed at different nodes in different samples."""
        mask = self.mask
        return mask is not None and bool((mask != mask[:1]).any())

    @property
    def filled(self) -> Array:
        """Outputs u with zeros where they are missing."""
        mask = self.mask
        return self.u if mask is None else np.where(mask, self.u, 0.0)

    def with_outputs(self, values: Array, complete: bool = False) -> "Pairs":
        """Return the same pairs with other outputs, in the shape of u; u_eta is dropped, and the mask if these are complete."""
        data = self.xarray.drop_vars(["u_eta", "mask"] if complete else "u_eta", errors="ignore")
        return Pairs(data.assign(u=xr.Variable(data["u"].dims, values)))

    def labels(self) -> Ints:
        """Return a label for each pair, equal for pairs that must be held out together: those of a group, else of equal inputs.

        Returns:
            Numbers from 0 to (number of independent pairs) − 1, (sample,).
        """
        labels = self.fingerprints() if self.group is None else self.group
        return np.unique(labels, return_inverse=True)[1].reshape(-1)

    def shared_labels(self) -> Ints | None:
        """Return `labels`, None if all pairs are independent."""
        labels = self.labels()
        return None if labels.max(initial=0) + 1 == len(self) else labels

    def is_series(self) -> bool:
        """Return whether consecutive samples are alike, as in a time series, and inputs are not merely repeated."""
        return len(self) > 0 and is_series(self.a, self.u, self.scalars) and len(np.unique(self.fingerprints())) == len(self)

    def fingerprints(self) -> NDArray[np.int64]:
        """Return a hash of each input, equal for inputs whose a and scalars are equal in single precision: (sample,)."""
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
        """Return some of the pairs, by a slice or an array of row numbers."""
        return Pairs(self.xarray.isel({SAMPLE: index}))

    def in_random_order(self, seed: int) -> "Pairs":
        """Return many pairs in a random order, so that the first of them are a sample of pairs that may be sorted."""
        return self if len(self) <= IN_ORDER else self[generator(seed, "order", 0).permutation(len(self))]

    def torch(self) -> "tuple[torch.Tensor, torch.Tensor]":
        """Return a and u as torch tensors, which share memory with the arrays where possible."""
        import torch

        return torch.from_numpy(np.ascontiguousarray(self.a)), torch.from_numpy(np.ascontiguousarray(self.u))

    def batches(self, size: int, seed: int = 0, epoch: int = 0) -> Iterator[tuple[Array, Array]]:
        """Yield batches of all pairs in a random order, which is a function of (seed, epoch).

        Args:
            size: number of pairs of a batch; the last one may be smaller.
            seed, epoch: identify the order.

        Yields:
            (a, u), both (size, channel, *grid).
        """
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
            raise UserError(f"array {name!r} does not fit into memory; use fewer samples, or a machine with more") from None
        except Exception as error:  # for a damaged chunk zarr raises any exception of its codecs
            source = self.xarray.encoding.get("source", "the store")
            raise UserError(f"array {name!r} of {source} is damaged; generate it again ({error})") from error


def to_numpy(values: Any) -> Array:
    """Return a NumPy array, torch tensor, xarray DataArray or list as a NumPy array."""
    torch = sys.modules.get("torch")  # there is no tensor unless torch was imported
    if torch is not None and isinstance(values, torch.Tensor):
        values = values.detach().cpu()
    return np.asarray(values)


def _field(values: Any, dims: tuple[str, ...] | None, role: str) -> tuple[Array, tuple[str, ...]]:
    """Return values as (sample, channel, *grid), and the names of the grid's axes."""
    if isinstance(values, xr.DataArray) and dims is None:
        dims = tuple(CHANNEL if str(name) in ("a_channel", "u_channel") else str(name) for name in values.dims)
    return arrange(to_numpy(values), dims, role)
