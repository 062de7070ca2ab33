"""The store of pdno: a Zarr v3 folder that xarray opens, written in blocks by any number of processes.

    darcy.zarr/            attributes: grid and full provenance, nothing that depends on time, machine or number of processes
      train/a, train/u     (sample, channel, *grid), named dimensions, coordinates x, y
      test/a, test/u, test/u_eta

A block of samples is one chunk of each array, so that no two writers write the same file. Chunks have a checksum, the fill
value is NaN. A store is written under the name ``darcy.zarr.partial`` and renamed when it is complete: a store that exists is
complete, and the same command run again resumes a partial one.

The attributes of a complete store have a checksum of each array: that of its metadata and of the checksums of its chunks, which
are the last bytes of a Zstandard frame. It is verified when the store is opened, in milliseconds; the values of a chunk are
verified when they are read.
"""

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
import zarr
from zarr.codecs import ZstdCodec

from .._typing import Array
from ..errors import UserError
from ..work.files import locked
from .formats.entry import user_errors
from .formats.zarr_files import chunk_files, missing_chunks, open_arrays
from .nodes import COORDINATES

__all__ = ["Layout", "Spec", "blocks", "building", "check", "check_free", "is_complete", "is_store", "write"]

CHUNK_BYTES = 2**21  # largest size of a chunk of the largest array, which has a power of two of samples
BLOCK_SAMPLES = 128  # largest number of samples of a block, so that small samples also give blocks for many workers
SPLITS = ("train", "validation", "test")
CODEC = ZstdCodec(level=3, checksum=True)
COMPLETE = {"array.write_empty_chunks": True}  # every chunk is a file, so that a missing one is detected
CHECKSUM_BYTES = 4  # of a Zstandard frame, at its end


@dataclass(frozen=True)
class Spec:
    """An array of a store.

    Args:
        shape: of a sample.
        dtype: of the values.
        dims: names of all dimensions, that of the samples first.
        meaning: description for people, stored as its long_name.
        units: of the values, if they are known.
    """

    shape: tuple[int, ...]
    dtype: str
    dims: tuple[str, ...]
    meaning: str = ""
    units: str = ""

    @classmethod
    def of(cls, array: xr.DataArray) -> "Spec":
        """Return the description of an array with samples."""
        meaning, units = (str(array.attrs.get(name, "")) for name in ("long_name", "units"))
        return cls(array.shape[1:], str(array.dtype), tuple(map(str, array.dims)), meaning, units)

    @property
    def bytes(self) -> int:
        """Size of a sample."""
        return int(np.prod(self.shape)) * np.dtype(self.dtype).itemsize


@dataclass(frozen=True)
class Layout:
    """The content of a store.

    Args:
        samples: number of samples of each split.
        arrays: by name, of each split.
        coordinates: nodes by name of the axis, of each split.
        attributes: as plain JSON types, below the key "pdno".
        most: largest number of samples of a block.
        labels: attributes of coordinates, by name of the axis.
    """

    samples: Mapping[str, int]
    arrays: Mapping[str, Mapping[str, Spec]]
    coordinates: Mapping[str, Mapping[str, Array]]
    attributes: Mapping[str, Any]
    most: int = BLOCK_SAMPLES
    labels: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    @property
    def block(self) -> int:
        """Number of samples of a block."""
        largest = max(spec.bytes for arrays in self.arrays.values() for spec in arrays.values())
        return min(self.most, 1 << max(0, (CHUNK_BYTES // largest).bit_length() - 1))


def blocks(layout: Layout) -> list[tuple[str, int, int]]:
    """Return the blocks (split, first, end) of a store."""
    return [
        (split, first, min(first + layout.block, count))
        for split, count in layout.samples.items()
        for first in range(0, count, layout.block)
    ]


@contextmanager
def building(path: Path, layout: Layout) -> Iterator[Path]:
    """Create the store at `path`, or resume it; when the block ends without error, the store is complete.

    Yields:
        The folder to write the blocks into.

    Raises:
        UserError: if a store cannot be written there, or a partial one has another layout.
    """
    check_free(path)
    partial = _partial(path)
    partial.mkdir(exist_ok=True)
    with locked(partial):
        attributes = _attributes(partial)
        if attributes is None:
            _clear(partial)
            _create(partial, layout)
        else:
            attributes["pdno"].pop("checksums", None)  # of a store that was complete but not renamed
            if attributes != json.loads(json.dumps(layout.attributes)):
                raise UserError(f"{partial} was begun with other settings or software; delete it, or choose another name")
            _arrays(partial)  # refuses a folder of other origin with links or codecs that are not run
        _remove_leftovers(partial)
        try:
            yield partial
        except BaseException:
            chunks = [partial / split / name / "c" for split, arrays in layout.arrays.items() for name in arrays]
            if not any(folder.exists() for folder in chunks):  # there is nothing to resume
                shutil.rmtree(partial)
            raise
        _remove_leftovers(partial)
        checksums = {name: _checksum(partial, name, array) for name, array in _arrays(partial).items()}
        _put_attributes(partial, layout, {"pdno": {**layout.attributes["pdno"], "checksums": checksums}})
        check_free(path)
        partial.rename(path)


def _partial(path: Path) -> Path:
    """Return the name of a store that is not complete."""
    return path.with_name(path.name + ".partial")


def _remove_leftovers(partial: Path) -> None:
    """Remove the temporary files of writers that were killed."""
    for leftover in partial.rglob("*.partial"):
        leftover.unlink()


def write(root: Path, split: str, first: int, arrays: Mapping[str, Array]) -> None:
    """Write the block of `split` that starts at sample `first`."""
    with zarr.config.set(COMPLETE):
        for name, values in arrays.items():
            target = zarr.open_array(root, path=f"{split}/{name}" if split else name, mode="r+", zarr_format=3)
            target[first : first + len(values)] = values


def is_complete(root: Path, split: str, first: int, end: int) -> bool:
    """Return whether a block exists and is not damaged."""
    group = zarr.open_group(root, path=split, mode="r", zarr_format=3, use_consolidated=False)
    try:
        return all(np.isfinite(np.asarray(array[first:end])).all() for name, array in group.arrays() if array.ndim > 1)
    except Exception:  # for a damaged chunk zarr raises any exception of its codecs
        return False


def is_store(path: Path) -> bool:
    """Return whether this is a store of pdno, or the name of one that is not complete yet."""
    if path.exists():
        return (path / "zarr.json").exists() and _attributes(path) is not None
    return _partial(path).is_dir()


def check(path: Path) -> dict[str, Any]:
    """Return the attributes of a store of pairs, if it has all its arrays and chunks: Zarr reads a missing chunk as NaN.

    Raises:
        UserError: if there is no store, or it is damaged, of another version, or needs codecs that are not run.
    """
    if not path.exists():
        partial = _partial(path)
        unfinished = (
            f"; {partial.name} is unfinished: run the same `pdno generate` again to finish it" if partial.exists() else ""
        )
        raise UserError(f"{path} does not exist{unfinished}")
    attributes = _attributes(path)
    if attributes is None:
        raise UserError(f"{path} is not a store written by pdno; `pdno generate` and Dataset.save write them")
    recorded = attributes["pdno"]
    if "samples" not in recorded:
        raise UserError(f"{path} holds predictions, not pairs; open it with xarray.open_zarr")
    if recorded["schema"] != 1:
        raise UserError(f"{path} has schema {recorded['schema']}, this version reads schema 1; update pdno")
    arrays = _arrays(path)
    checksums = recorded.pop("checksums", None)
    _check_names(path, recorded["samples"], arrays, checksums)
    for name, array in arrays.items():
        if missing := missing_chunks(path, name, array):
            count = sum(1 for _ in chunk_files(path, name, array))
            raise UserError(f"{path}: {missing} of {count} chunks of {name} are missing; generate it again")
        if checksums is not None and _checksum(path, name, array) != checksums[name]:
            raise UserError(f"{path}: {name!r} is damaged: its checksum is not the recorded one; generate it again")
    return attributes


def _check_names(path: Path, samples: Mapping[str, int], arrays: Mapping[str, Any], recorded: Mapping[str, str] | None) -> None:
    """Refuse a store with other arrays than were recorded, or with a split that has another name or number of samples."""
    names = {f"{split}/{name}" for split in samples for name in ("a", "u")} if recorded is None else set(recorded)
    missing, unknown = names - set(arrays), set() if recorded is None else set(arrays) - names
    if missing or unknown or not set(samples) <= set(SPLITS):
        reason = "has no" if missing else "has an unexpected"
        which = min(missing or unknown or set(samples) - set(SPLITS))
        raise UserError(f"{path} is damaged: it {reason} array {which!r}; generate it again, or get it again")
    for split, count in samples.items():
        shape = arrays[f"{split}/u"].shape
        if shape[:1] != (count,):
            raise UserError(f"{path} is damaged: {split}/u has shape {shape}, but {count} pairs were recorded; get it again")


def _arrays(root: Path) -> dict[str, Any]:
    """Return the arrays of a store by name, such as "train/u".

    Raises:
        UserError: if one of them cannot be opened safely.
    """
    with user_errors(root):
        arrays = dict(open_arrays(root))
    for name, array in arrays.items():
        if isinstance(array, str):
            raise UserError(f"{root} is damaged: {name!r} {array}; generate it again, or get it again")
    return arrays


def _checksum(root: Path, name: str, array: Any) -> str:
    """Return the checksum of the metadata of an array and of the checksums of its chunks."""
    digest = blake2b((root / name / "zarr.json").read_bytes(), digest_size=8)
    for path in chunk_files(root, name, array):
        with path.open("rb") as chunk:
            chunk.seek(max(0, chunk.seek(0, os.SEEK_END) - CHECKSUM_BYTES))
            digest.update(chunk.read())
    return digest.hexdigest()


def check_free(path: Path) -> None:
    """Refuse a path at which a store cannot be written.

    Raises:
        UserError: with the reason.
    """
    if path.exists():
        raise UserError(f"{path} exists already and is never overwritten; choose another name")
    if path.suffix not in (".zarr", ""):
        raise UserError(f"a store is a Zarr folder, and {path.name} has the suffix of another format; call it {path.stem}.zarr")
    if not path.parent.is_dir():
        problem = "is not a folder" if path.parent.exists() else "does not exist; create it first"
        raise UserError(f"{path.parent}, where {path.name} is to be written, {problem}")
    if not os.access(path.parent, os.W_OK):
        raise UserError(f"the folder {path.parent} is not writable; choose another folder for {path.name}")


def _attributes(root: Path) -> dict[str, Any] | None:
    """Return the attributes of a store of pdno; None if it is not one, or its creation was interrupted."""
    try:
        attributes = dict(zarr.open_group(root, mode="r", zarr_format=3, use_consolidated=False).attrs)
        recorded: Any = attributes.get("pdno")
        recorded = json.loads(recorded) if isinstance(recorded, str) else recorded
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return {**attributes, "pdno": dict(recorded)} if isinstance(recorded, dict) else None


def _put_attributes(root: Path, layout: Layout, attributes: Mapping[str, Any]) -> None:
    """Write the attributes of a store; as text where xarray opens its root, so that it can write them to netCDF."""
    text = {key: json.dumps(value) if "" in layout.arrays else value for key, value in attributes.items()}
    zarr.open_group(root, mode="r+", zarr_format=3, use_consolidated=False).attrs.put(text)


def _clear(folder: Path) -> None:
    """Empty a folder in which the creation of a store was interrupted; a folder with anything else is refused."""
    entries = list(folder.iterdir())
    foreign = [entry.name for entry in entries if entry.name not in ("zarr.json", *SPLITS) and entry.suffix != ".partial"]
    if foreign or any(folder.glob("*/*/c/*/*")):
        raise UserError(f"{folder} exists already and is not an unfinished store; move it, or choose another name")
    for entry in entries:
        shutil.rmtree(entry) if entry.is_dir() else entry.unlink()


def _create(root: Path, layout: Layout) -> None:
    """Create a store without samples."""
    store = zarr.create_group(root, zarr_format=3)
    for split, arrays in layout.arrays.items():
        group = store.create_group(split) if split else store
        for name, nodes in layout.coordinates[split].items():
            dims = COORDINATES.get(name, (name,))
            with zarr.config.set(COMPLETE):
                attributes: Any = dict(layout.labels.get(name, {}))
                group.create_array(name, data=nodes, compressors=[CODEC], dimension_names=dims, attributes=attributes)
        for name, spec in arrays.items():
            group.create_array(
                name,
                shape=(layout.samples[split], *spec.shape),
                chunks=(layout.block, *spec.shape),
                dtype=spec.dtype,
                fill_value=np.nan if np.dtype(spec.dtype).kind == "f" else 0,
                compressors=[CODEC],
                dimension_names=spec.dims,
                attributes={k: v for k, v in (("long_name", spec.meaning), ("units", spec.units)) if v},
            )
    _put_attributes(root, layout, layout.attributes)  # last: a store with attributes was created completely
