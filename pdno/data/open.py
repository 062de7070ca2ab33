"""From a file to a data set: `pdno.open` for stores of our own and for the files of others.

Data larger than the memory allowed go through a cache: one `.npy` for each array, (sample, channel, *grid), written once
in blocks and mapped into memory afterwards. Random rows of such a file come nearly as fast as from memory.
"""

import os
from dataclasses import asdict
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import __version__
from ..errors import UserError
from ..grid import Axis, Grid
from . import store
from .formats import Contents, contents
from .pairs import Dataset, Pairs, open_store
from .selection import CHANNEL, SAMPLE, Selection, arrange, float_type, pick, without_index
from .suggest import suggest

__all__ = ["memory_allowed", "open", "open_chosen", "open_file"]

Array = NDArray[Any]
BLOCK_BYTES = 2**26


def memory_allowed() -> int:
    """Half of the machine's memory."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2


def open(
    path: str | Path,
    a: str | None = None,
    u: str | None = None,
    dims: str | None = None,
    *,
    u_eta: str | None = None,
    group: str | None = None,
    scalars: str | None = None,
    test_a: str | None = None,
    test_u: str | None = None,
    validation_a: str | None = None,
    validation_u: str | None = None,
    test: str | Path | None = None,
    mask: str | None = None,
    cache: str | Path | None = None,
    budget: int | None = None,
) -> Dataset:
    """Open a data set: a store of pdno, or any file that `pdno inspect` understands.

    Args:
        path: the file (.npz, .npy, .mat, .h5, .nc, .pt) or folder (.zarr).
        a, u: names of the arrays, ``NAME`` or a part ``NAME[:,0]``; may be left out where there is no doubt.
        dims: ``"sample,x,y"``, or ``"sample,x:sample,channel,x"`` for a and u, where shapes leave a choice.
        u_eta: noisy outputs to judge with; u is then clean.
        group: labels; pairs with the same one never straddle a split.
        scalars: further parameters of a pair, (sample, parameter).
        test_a, test_u, validation_a, validation_u: arrays that are held out already.
        test: another file with the test pairs.
        mask: "nan" takes NaN in u as missing.
        cache: folder for data larger than memory.
        budget: bytes of memory that the arrays may take; half of the machine's if left out.
    """
    if (a is None) != (u is None):
        raise UserError(f"only one of a and u was named for {path}; name both (see: pdno inspect {path})")
    names = (dims, u_eta, group, scalars, test_a, test_u, validation_a, validation_u)
    if a is None and any(names):
        raise UserError(f"names were given for {path}, but not those of a and u; name both (see: pdno inspect {path})")
    chosen = None if a is None or u is None else Selection(a, u, *names)
    return open_chosen(Path(path), chosen, test, mask, cache, budget)


def open_chosen(
    path: Path,
    chosen: Selection | None,
    test: str | Path | None = None,
    mask: str | None = None,
    cache: str | Path | None = None,
    budget: int | None = None,
) -> Dataset:
    """`open` with a selection; without one, the store's own or the one that is certain."""
    if store.is_store(path):
        if chosen is not None:
            raise UserError(f"{path} is a store of pdno and knows its arrays; give no names")
        if test is not None or mask is not None:
            raise UserError(
                f"{path} is a store of pdno with test pairs and a mask of its own, if any; give no test file or mask"
            )
        return open_store(path)
    allowed = memory_allowed() if budget is None else budget
    file = contents(path, allowed)
    return open_file(file, _certain(file) if chosen is None else chosen, test, mask, cache, allowed)


def _certain(file: Contents) -> Selection:
    found = suggest(file)
    if found is None or not found.certain:
        names = ", ".join(f"{name} {entry.shape}" for name, entry in list(file.entries.items())[:8])
        hint = f"perhaps {found.selection.options()}" if found else "name them with a= and u="
        raise UserError(f"which arrays of {file.path.name} are a and u? It has {names}; {hint}")
    return found.selection


def open_file(
    file: Contents,
    chosen: Selection,
    test: str | Path | None = None,
    mask: str | None = None,
    cache: str | Path | None = None,
    allowed: int | None = None,
) -> Dataset:
    """The data set that a selection makes of a file, and perhaps of a second one with the test pairs."""
    if mask not in (None, "nan"):
        raise UserError(f"mask = {mask!r}: the only mask is 'nan', which takes NaN in u as missing")
    sources = {"train": (file, chosen.arrays("train")), "validation": (file, chosen.arrays("validation"))}
    sources["test"] = (file, chosen.arrays("test"))
    if test is not None:
        other = contents(test, memory_allowed() if allowed is None else allowed)
        sources["test"] = (other, chosen.arrays("test") or chosen.arrays("train"))
    if cache is None and allowed is not None:
        _check_memory(sources, allowed)
    block = BLOCK_BYTES if allowed is None else min(BLOCK_BYTES, allowed // 4)
    splits = {}
    for split, (source, names) in sources.items():
        if names:
            folder = None if cache is None else _folder(Path(cache), source, chosen, split)
            splits[split] = _pairs(source, chosen, names, mask, folder, block)
    train = splits["train"]
    provenance = {
        "schema": 1,
        "name": file.path.stem,
        "source": {"file": file.path.name, "format": file.format, "selection": asdict(chosen)},
        "version": __version__,
    }
    return Dataset(train, splits.get("test", train[:0]), provenance, _grid(train), splits.get("validation"))


def _pairs(
    file: Contents, chosen: Selection, names: dict[str, str], mask: str | None, folder: Path | None, block: int
) -> Pairs:
    fields, axes = {}, {}
    for role in ("a", "u", "u_eta"):
        if role in names:
            dims = chosen.dims_of(role) or _file_dims(file, names[role])
            target = None if folder is None else folder / f"{role}.npy"
            fields[role], axes[role] = _field(file, names[role], dims, role, target, block)
    others = {role: pick(file, names[role]) for role in ("scalars", "group") if role in names}
    dims_a, dims_u = ((SAMPLE, CHANNEL, *axes[role]) for role in ("a", "u"))
    coordinates = {x: c for x in {*axes["a"], *axes["u"]} if (c := _coordinate(file, x)) is not None}
    return Pairs.of(**fields, **others, dims=(dims_a, dims_u), coordinates=coordinates, mask=mask)


def _field(
    file: Contents, expression: str, dims: tuple[str, ...] | None, what: str, target: Path | None, block: int
) -> tuple[Array, tuple[str, ...]]:
    """Values (sample, channel, *grid), read or mapped, and the names of the grid's axes."""
    label = f"{what} ({expression})"
    if target is None:
        return arrange(pick(file, expression), dims, label)
    if (dims and dims[0] != SAMPLE) or without_index(expression)[1][:1] not in ((), (slice(None),)):
        raise UserError(f"{label} cannot be cached block by block: samples must be its first axis, and all of them taken")
    head, axes = arrange(pick(file, expression, slice(0, 1)), dims, label)
    if not target.exists():
        entry = file.entries[without_index(expression)[0]]
        step = max(1, block // max(1, entry.dtype.itemsize * int(np.prod(entry.shape[1:]))))
        _fill(target, file, expression, dims, label, head, step)
    return np.load(target, mmap_mode="r"), axes


def _fill(
    target: Path, file: Contents, expression: str, dims: tuple[str, ...] | None, label: str, head: Array, step: int
) -> None:
    """Copy an array into a .npy file, `step` rows at a time; the file gets its name when it is whole."""
    rows = file.entries[without_index(expression)[0]].shape[0]
    partial = target.with_suffix(".partial")
    out = np.lib.format.open_memmap(partial, mode="w+", dtype=head.dtype, shape=(rows, *head.shape[1:]))
    for first in range(0, rows, step):
        out[first : first + step] = arrange(pick(file, expression, slice(first, first + step)), dims, label)[0]
    out.flush()
    partial.rename(target)


def _folder(cache: Path, file: Contents, chosen: Selection, split: str) -> Path:
    """Where the arrays of a split are cached: another file, or another choice, is another folder."""
    status = file.path.stat()
    what = f"{file.path.absolute()}|{status.st_size}|{status.st_mtime_ns}|{chosen}|{split}"
    folder = cache / f"{file.path.stem}-{split}-{blake2b(what.encode(), digest_size=8).hexdigest()}"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _check_memory(sources: dict[str, tuple[Contents, dict[str, str]]], allowed: int) -> None:
    needed = 0
    for file, names in sources.values():
        for expression in names.values():
            entry = file.entries.get(without_index(expression)[0])
            if entry is not None:
                needed += int(np.prod(entry.shape)) * float_type(entry.dtype).itemsize
    if needed > allowed:
        raise UserError(
            f"the arrays take {needed / 1e9:.1f} GB of memory, {allowed / 1e9:.1f} GB are allowed; "
            "name a folder for a cache on disk (cache=… or --cache …)"
        )


def _file_dims(file: Contents, expression: str) -> tuple[str, ...] | None:
    """Dimensions as the file names them, if it names the samples and the whole array is taken."""
    name, index = without_index(expression)
    dims = file.entries[name].dims if name in file.entries else None
    return dims if dims and SAMPLE in dims and not index else None


def _coordinate(file: Contents, axis: str) -> Array | None:
    """The coordinates of an axis, if the file has an array for them."""
    for name in (axis, f"{axis}-coordinate", f"dimensions/{axis}"):
        entry = file.entries.get(name)
        if entry is not None and sum(n > 1 for n in entry.shape) == 1:
            return np.asarray(entry.read(slice(None)), dtype=np.float64).ravel()
    return None


def _grid(pairs: Pairs) -> Grid | None:
    """The grid of u, where coordinates say that it is uniform."""
    axes = []
    for name in pairs.xarray["u"].dims[2:]:
        if name not in pairs.xarray.coords:
            return None
        nodes = pairs.xarray.coords[name].values
        steps = np.diff(nodes)
        if len(nodes) < 2 or not (steps > 0).all() or np.ptp(steps) > 1e-3 * steps.mean():
            return None
        axes.append(Axis(len(nodes), "vertex", float(nodes[0]), float(nodes[-1]), str(name)))
    return Grid(tuple(axes))
