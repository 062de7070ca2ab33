"""Open a data set: `pdno.open` for stores of pdno and for files of other programs.

Data larger than the memory allowed go through a cache: one `.npy` file for each array, (sample, channel, *grid), written once
in blocks and then mapped into memory. Random rows of such a file are read nearly as fast as from memory.
"""

from dataclasses import asdict
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from .. import __version__
from .._typing import Array
from ..errors import UserError
from ..grid import Axis, Grid
from ..work.engine import memory_allowed
from ..work.files import replacing
from . import store
from .dataset import Dataset, open_store
from .formats import Contents, Entry, contents
from .formats.meshes import is_mesh
from .nodes import NODE, Nodes
from .pairs import Pairs
from .parameters import PARAMETER, read_parameters
from .selection import CHANNEL, SAMPLE, Selection, arrange, float_type, pick, pick_scalars, without_index
from .suggest import CELLS, POINTS, WEIGHTS, complete, obstacle

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["file_dims", "open", "open_file", "open_selected", "table_in"]

BLOCK_BYTES = 2**26  # of an array that are copied into the cache at a time
UNEVEN = 1e-3  # spread of the spacing of coordinates / mean spacing, above which an axis is not uniform
FIELDS = ("a", "u", "u_eta")  # roles of arrays on a grid

Sources = dict[str, tuple[Contents, dict[str, str]]]  # file and names of arrays by role, of each split


def open(
    path: str | Path,
    a: str | None = None,
    u: str | None = None,
    dims: str | None = None,
    *,
    u_eta: str | None = None,
    group: str | None = None,
    scalars: str | None = None,
    parameters: "str | Path | pd.DataFrame | None" = None,
    test_a: str | None = None,
    test_u: str | None = None,
    validation_a: str | None = None,
    validation_u: str | None = None,
    test: str | Path | None = None,
    mask: str | None = None,
    cache: str | Path | None = None,
    budget: int | None = None,
) -> Dataset:
    """Open a data set: a store of pdno, or any file that `pdno inspect` can read.

    Args:
        path: the file (.npz, .npy, .mat, .h5, .nc, .pt) or folder (.zarr, or meshes with one file for each run).
        a, u: names of the arrays, ``NAME`` or a part ``NAME[:,0]``; optional where they are unambiguous.
        dims: names of dimensions where shapes are ambiguous: ``"sample,x,y"``, or ``"sample,x:sample,channel,x"`` for a and u.
        u_eta: noisy outputs for evaluation; u is then taken as clean.
        group: labels; pairs with equal labels stay together in splits.
        scalars: further parameters of a pair, (sample, parameter); several arrays are separated by commas.
        parameters: the same in a table with a row for each sample of u: a .csv file, ``FILE[NAME,NAME]`` for some of its
            columns, or a pandas DataFrame. If u depends on them alone, name no a.
        test_a, test_u, validation_a, validation_u: arrays of test and validation pairs.
        test: another file with the test pairs.
        mask: "nan" marks NaN in u as missing.
        cache: folder for the cache of data larger than memory.
        budget: bytes of memory that the arrays may occupy; default: half of the machine's.

    Returns:
        Training, validation and test pairs with arrays (sample, channel, *grid).

    Raises:
        UserError: if the file cannot be read, or it is ambiguous which arrays are a and u.
    """
    if (a is None) != (u is None) and (parameters is None or u is None):
        raise UserError(f"only one of a and u was named for {path}; name both (see: pdno inspect {path})")
    names = {"dims": dims, "u_eta": u_eta, "group": group, "scalars": scalars, "test_a": test_a, "test_u": test_u}
    names |= {"validation_a": validation_a, "validation_u": validation_u}
    if u is None and any(names.values()):
        raise UserError(f"names were given for {path}, but not those of a and u; name both (see: pdno inspect {path})")
    if u is None and parameters is None:
        return open_selected(Path(path), None, test, mask, cache, budget)
    table = None if parameters is None else read_parameters(parameters)
    origin = str(parameters) if isinstance(parameters, str | Path) else None if table is None else "the table of parameters"
    return open_selected(Path(path), Selection(a, u, parameters=origin, **names), test, mask, cache, budget, table=table)


def open_selected(
    path: Path,
    selection: Selection | None,
    test: str | Path | None = None,
    mask: str | None = None,
    cache: str | Path | None = None,
    budget: int | None = None,
    fill: bool = True,
    table: xr.DataArray | None = None,
) -> Dataset:
    """Open a data set with a selection; arguments as in `open`.

    Without names of arrays the file must be a store, or unambiguous. Unless `fill`, a cache is only read, not written. `table`
    is the table of parameters of the selection, if it has been read.

    Raises:
        UserError: as `open`, or if a store, whose arrays have fixed names, is opened with a selection.
    """
    if store.is_store(path):
        if selection is not None:
            raise UserError(f"{path} is a store of pdno, whose arrays have fixed names; give no names")
        if test is not None or mask is not None:
            raise UserError(f"{path} is a store of pdno, which includes its test pairs and mask; give no test file or mask")
        return open_store(path)
    allowed = memory_allowed() if budget is None else budget
    file = contents(path, allowed)
    selection = table_in(path) if selection is None else selection
    if table is None and selection is not None and selection.parameters is not None:
        table = read_parameters(selection.parameters)
    if selection is None or selection.u is None:
        selection = _unambiguous(file, selection, table)
    return open_file(file, selection, test, mask, cache, allowed, fill, table)


def table_in(path: Path) -> Selection | None:
    """Return the only table of parameters in a folder of meshes as a selection; None if there is none, or there are several."""
    tables = sorted(path.glob("*.csv")) if path.is_dir() and is_mesh(path) else []
    return Selection(parameters=str(tables[0])) if len(tables) == 1 else None


def _unambiguous(file: Contents, selection: Selection | None, table: xr.DataArray | None) -> Selection:
    """Return the suggested selection of a file, if it is certain."""
    suggestion = complete(file, selection, 0 if table is None else len(table))
    if suggestion is None or not suggestion.certain:
        names = ", ".join(f"{name} {entry.shape}" for name, entry in list(file.entries.items())[:8])
        if suggestion is None and selection is not None and table is not None:
            raise UserError(
                f"{selection.parameters} has {len(table)} rows, but no array of {file.path.name} has as many samples: {names}"
            )
        if suggestion is None:
            raise UserError(f"{file.path.name}: {obstacle(file)}")
        hint = f"perhaps {suggestion.selection.options()}"
        raise UserError(f"which arrays of {file.path.name} are a and u? It has {names}; {hint}")
    return suggestion.selection


def open_file(
    file: Contents,
    selection: Selection,
    test: str | Path | None = None,
    mask: str | None = None,
    cache: str | Path | None = None,
    allowed: int | None = None,
    fill: bool = True,
    table: xr.DataArray | None = None,
) -> Dataset:
    """Return the selected arrays of a file as a data set.

    Args:
        file: contents of the file.
        selection: names of its arrays.
        test, mask, cache: as in `open`.
        allowed: bytes of memory that the arrays may occupy; None for any.
        fill: write the cache if it is not there.
        table: of parameters, (sample, parameter).

    Raises:
        UserError: as `open`.
    """
    if mask not in (None, "nan"):
        raise UserError(f"mask = {mask!r}: the only mask is 'nan', which marks NaN in u as missing")
    sources = {split: (file, selection.arrays(split)) for split in ("train", "validation", "test")}
    if test is not None and table is not None:
        raise UserError(f"{test} has no table of parameters; put all runs into one file and one table, a part is held out")
    if test is not None:
        other = contents(test, memory_allowed() if allowed is None else allowed)
        sources["test"] = (other, selection.arrays("test") or selection.arrays("train"))
    folders = {} if cache is None else _cache_folders(Path(cache), sources, selection, fill)
    if not folders and allowed is not None:
        _check_memory(sources, allowed)
    block = BLOCK_BYTES if allowed is None else min(BLOCK_BYTES, allowed // 4)
    splits = {}
    for split, (source, names) in sources.items():
        if names:
            splits[split] = _pairs(source, selection, names, mask, folders.get(split), block, table)
    train = splits["train"]
    provenance = {
        "schema": 1,
        "name": file.path.stem,
        "source": {"file": file.path.name, "format": file.format, "selection": asdict(selection)},
        "version": __version__,
    }
    return Dataset(train, splits.get("test", train[:0]), provenance, _grid(train), splits.get("validation"))


def _pairs(
    file: Contents,
    selection: Selection,
    names: dict[str, str],
    mask: str | None,
    folder: Path | None,
    block: int,
    table: xr.DataArray | None,
) -> Pairs:
    """Return the pairs of a split whose arrays have these names, by role; without a, outputs depend on the table alone."""
    fields: dict[str, Array] = {}
    axes: dict[str, tuple[str, ...]] = {}
    others: dict[str, Any] = {}
    for role in reversed(FIELDS):  # u before a, which may be a table without a grid
        if role in names:
            dims = selection.dims_of(role) or file_dims(file, names[role])
            if dims == (SAMPLE, PARAMETER) and role == "a":
                others["scalars"] = pick(file, names["a"])
                fields["a"], axes["a"] = _no_field(fields["u"], axes["u"])
                continue
            target = None if folder is None else folder / f"{role}.npy"
            fields[role], axes[role] = _field(file, names[role], dims, role, target, block)
    if table is not None and len(table) != (count := len(fields["u"])):
        raise UserError(
            f"{selection.parameters} has {len(table)} rows, but {names['u']} has {count} samples; expected a row for each "
            "sample, in the same order"
        )
    if "a" not in fields:
        fields["a"], axes["a"] = _no_field(fields["u"], axes["u"])
    others |= {} if table is None else {"scalars": table}
    if "group" in names:
        others["group"] = pick(file, names["group"])
    if "scalars" in names and table is None:
        others["scalars"] = pick_scalars(file, names["scalars"], len(fields["u"]))
    dims_a, dims_u = ((SAMPLE, CHANNEL, *axes[role]) for role in ("a", "u"))
    coordinates = {x: c for x in {*axes["a"], *axes["u"]} if (c := _coordinate(file, x)) is not None}
    nodes = _nodes(file, fields["u"].shape[-1]) if NODE in axes["u"] else None
    described = {role: _entry(file, names.get(role)) for role in ("a", "u")}
    described |= {x: _coordinate_entry(file, x) for x in coordinates}
    labels = {name: entry.labels for name, entry in described.items() if entry is not None}
    others |= {"coordinates": coordinates, "nodes": nodes, "mask": mask, "labels": labels}
    return Pairs.of(fields["a"], fields["u"], u_eta=fields.get("u_eta"), dims=(dims_a, dims_u), **others)


def _no_field(u: Array, axes: tuple[str, ...]) -> tuple[Array, tuple[str, ...]]:
    """Return an input of zeros on the grid of u, for outputs that depend on scalars alone; of one node on that of a mesh."""
    grid = [1 if axis == NODE else n for axis, n in zip(axes, u.shape[2:], strict=True)]
    return np.zeros((len(u), 1, *grid)), axes


def _nodes(file: Contents, count: int) -> Nodes | None:
    """Return the nodes of the mesh in a file; None if it has no coordinates.

    Raises:
        UserError: if their number is not that of the values of u, or they are unusable.
    """
    points, cells, weights = (
        next((file.entries[name].read(slice(None)) for name in names if name in file.entries), None)
        for names in (POINTS, CELLS, WEIGHTS)
    )
    if points is None:
        return None
    if len(points) != count:
        raise UserError(
            f"{file.path.name} has coordinates of {len(points)} nodes, and u has {count}; give one row for each node"
        )
    return Nodes(points, cells, weights)


def _field(
    file: Contents, expression: str, dims: tuple[str, ...] | None, role: str, target: Path | None, block: int
) -> tuple[Array, tuple[str, ...]]:
    """Return values (sample, channel, *grid), read or mapped from `target`, and the names of the grid's axes."""
    label = f"{role} ({expression})"
    if target is None:
        return arrange(pick(file, expression), dims, label)
    if (dims and dims[0] != SAMPLE) or without_index(expression)[1][:1] not in ((), (slice(None),)):
        raise UserError(f"{label} cannot be cached in blocks of samples: samples must be its first axis, and all be used")
    head, axes = arrange(pick(file, expression, slice(0, 1)), dims, label)
    if not target.exists():
        entry = file.entries[without_index(expression)[0]]
        step = max(1, block // max(1, entry.dtype.itemsize * int(np.prod(entry.shape[1:]))))
        _fill(target, file, expression, dims, label, head, step)
    return np.load(target, mmap_mode="r"), axes


def _fill(
    target: Path, file: Contents, expression: str, dims: tuple[str, ...] | None, label: str, head: Array, step: int
) -> None:
    """Copy an array into a .npy file, `step` rows at a time; `head` is its first row, arranged."""
    rows = file.entries[without_index(expression)[0]].shape[0]
    with replacing(target) as partial:
        out = np.lib.format.open_memmap(partial, mode="w+", dtype=head.dtype, shape=(rows, *head.shape[1:]))
        for first in range(0, rows, step):
            out[first : first + step] = arrange(pick(file, expression, slice(first, first + step)), dims, label)[0]
        out.flush()


def _cache_folders(cache: Path, sources: Sources, selection: Selection, fill: bool) -> dict[str, Path]:
    """Return the folders where the arrays of each split are cached, one for each file and selection; none if not all exist."""
    folders = {}
    for split, (file, names) in sources.items():
        status = file.path.stat()
        source = f"{file.path.absolute()}|{status.st_size}|{status.st_mtime_ns}|{selection}|{split}"
        folder = cache / f"{file.path.stem}-{split}-{blake2b(source.encode(), digest_size=8).hexdigest()}"
        if fill and names:
            folder.mkdir(parents=True, exist_ok=True)
        elif not all((folder / f"{role}.npy").is_file() for role in FIELDS if role in names):
            return {}
        folders[split] = folder
    return folders


def _check_memory(sources: Sources, allowed: int) -> None:
    """Refuse arrays that occupy more than the memory allowed."""
    needed = 0
    for file, names in sources.values():
        for expression in names.values():
            entry = file.entries.get(without_index(expression)[0])
            if entry is not None:
                needed += int(np.prod(entry.shape)) * float_type(entry.dtype).itemsize
    if needed > allowed:
        raise UserError(
            f"the arrays need {needed / 1e9:.1f} GB of memory, {allowed / 1e9:.1f} GB are allowed; "
            "name a folder for a cache on disk (cache=… or --cache …)"
        )


def file_dims(file: Contents, expression: str) -> tuple[str, ...] | None:
    """Return the dimensions that the file names, if it names the samples and the whole array is selected."""
    name, index = without_index(expression)
    dims = file.entries[name].dims if name in file.entries else None
    return dims if dims and SAMPLE in dims and not index else None


def _coordinate(file: Contents, axis: str) -> Array | None:
    """Return the coordinates of an axis, if the file has an array of them."""
    entry = _coordinate_entry(file, axis)
    return None if entry is None else np.asarray(entry.read(slice(None)), dtype=np.float64).ravel()


def _coordinate_entry(file: Contents, axis: str) -> Entry | None:
    """Return the array of the coordinates of an axis."""
    entries = (file.entries.get(name) for name in (axis, f"{axis}-coordinate", f"dimensions/{axis}"))
    return next((entry for entry in entries if entry is not None and sum(n > 1 for n in entry.shape) == 1), None)


def _entry(file: Contents, expression: str | None) -> Entry | None:
    """Return the array that an expression names."""
    return None if expression is None else file.entries.get(without_index(expression)[0])


def _grid(pairs: Pairs) -> Grid | None:
    """Return the grid of u, if coordinates show that it is uniform."""
    axes = []
    for name in pairs.xarray["u"].dims[2:]:
        if name not in pairs.xarray.coords:
            return None
        nodes = pairs.xarray.coords[name].values
        steps = np.diff(nodes)
        if len(nodes) < 2 or not (steps > 0).all() or np.ptp(steps) > UNEVEN * steps.mean():
            return None
        axes.append(Axis(len(nodes), "vertex", float(nodes[0]), float(nodes[-1]), str(name)))
    return Grid(tuple(axes))
