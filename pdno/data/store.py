"""The native store: a Zarr v3 directory that xarray opens, written block by block by any number of processes.

    darcy.zarr/            attributes: grid and full provenance, nothing that depends on time, machine or process count
      train/a, train/u     (sample, channel, *grid), named dimensions, coordinates x, y
      test/a, test/u, test/u_eta

A block of samples is one chunk of each array, so writers never touch the same file. Chunks carry a checksum, the fill
value is NaN. A store grows under the name ``darcy.zarr.partial`` and gets its own name when it is whole: a store that
exists is complete, and the same command run again goes on with a partial one.
"""

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from numpy.typing import NDArray
from zarr.codecs import ZstdCodec

from ..errors import UserError
from ..work.lock import alone

__all__ = ["Layout", "Spec", "blocks", "building", "check", "check_free", "is_store", "is_whole", "write"]

CHUNK_BYTES = 2**21  # of the largest array; a power-of-two number of samples that fits
BLOCK_SAMPLES = 128  # at most, so that small samples too make blocks enough for many workers and a steady bar
SPLITS = ("train", "validation", "test")
NOT_STORES = (".npz", ".npy", ".mat", ".h5", ".hdf5", ".nc", ".pt", ".pth")
Array = NDArray[Any]


@dataclass(frozen=True)
class Spec:
    """An array of a store: shape of a sample, type, names of all dimensions."""

    shape: tuple[int, ...]
    dtype: str
    dims: tuple[str, ...]
    meaning: str = ""

    @property
    def bytes(self) -> int:
        return int(np.prod(self.shape)) * np.dtype(self.dtype).itemsize


@dataclass(frozen=True)
class Layout:
    """What a store will hold: samples, arrays and coordinates of each split, and attributes."""

    samples: Mapping[str, int]
    arrays: Mapping[str, Mapping[str, Spec]]
    coordinates: Mapping[str, Mapping[str, Array]]
    attributes: Mapping[str, Any]
    most: int = BLOCK_SAMPLES  # samples of a block

    @property
    def block(self) -> int:
        """Samples of a block."""
        largest = max(spec.bytes for arrays in self.arrays.values() for spec in arrays.values())
        return min(self.most, 1 << max(0, (CHUNK_BYTES // largest).bit_length() - 1))


def blocks(layout: Layout) -> list[tuple[str, int, int]]:
    """The blocks (split, first, end) that make up the store."""
    return [
        (split, first, min(first + layout.block, count))
        for split, count in layout.samples.items()
        for first in range(0, count, layout.block)
    ]


@contextmanager
def building(path: Path, layout: Layout) -> Iterator[Path]:
    """The folder in which the store at `path` grows, begun or gone on with; when the block ends it gets its name."""
    check_free(path)
    partial = path.with_name(path.name + ".partial")
    partial.mkdir(exist_ok=True)
    with alone(partial):
        begun = _attributes(partial)
        if begun is None:
            _clear(partial)
            _create(partial, layout)
        elif begun != json.loads(json.dumps(layout.attributes)):
            raise UserError(f"{partial} was begun with other settings or software; delete it, or choose another name")
        _sweep(partial)
        try:
            yield partial
        except BaseException:
            names = [partial / split / name / "c" for split, arrays in layout.arrays.items() for name in arrays]
            if not any(folder.exists() for folder in names):  # nothing was made yet that is worth going on with
                shutil.rmtree(partial)
            raise
        _sweep(partial)
        check_free(path)
        partial.rename(path)


def _sweep(partial: Path) -> None:
    """Remove what writers that were killed left behind."""
    for leftover in partial.rglob("*.partial"):
        leftover.unlink()


def write(root: Path, split: str, first: int, arrays: Mapping[str, Array]) -> None:
    """Write the block of `split` that starts at sample `first`."""
    group = zarr.open_group(root, path=split, mode="r+")
    for name, values in arrays.items():
        target = group[name]
        assert isinstance(target, zarr.Array)
        target[first : first + len(values)] = values


def is_whole(root: Path, split: str, first: int, end: int) -> bool:
    """Whether the block is there, undamaged and full."""
    group = zarr.open_group(root, path=split, mode="r")
    try:
        return all(np.isfinite(np.asarray(array[first:end])).all() for name, array in group.arrays() if array.ndim > 1)
    except Exception:  # zarr raises whatever its codecs raise for a damaged chunk
        return False


def is_store(path: Path) -> bool:
    """Whether this is a store of ours, or was meant to be one (nothing is there, but an unfinished one is)."""
    if path.exists():
        return (path / "zarr.json").exists() and _attributes(path) is not None
    return path.with_name(path.name + ".partial").is_dir()


def check(path: Path) -> dict[str, Any]:
    """The store's attributes, after a look that every chunk is there (Zarr would read a missing one as NaN without a word)."""
    if not path.exists():
        partial = path.with_name(path.name + ".partial")
        unfinished = (
            f"; {partial.name} is unfinished: run the same `pdno generate` again to finish it" if partial.exists() else ""
        )
        raise UserError(f"{path} does not exist{unfinished}")
    attributes = _attributes(path)
    if attributes is None:
        raise UserError(f"{path} is not a store written by pdno; `pdno generate` and Dataset.save write them")
    if "samples" not in attributes["pdno"]:
        raise UserError(f"{path} holds predictions, not pairs; open it with xarray.open_zarr")
    if attributes["pdno"]["schema"] != 1:
        raise UserError(f"{path} has schema {attributes['pdno']['schema']}, this version reads schema 1; update pdno")
    try:
        for split in attributes["pdno"]["samples"]:
            for name, array in zarr.open_group(path, path=split, mode="r").arrays():
                expected = _chunks(array)
                missing = sum(not (path / split / name / chunk).is_file() for chunk in expected)
                if missing:
                    raise UserError(
                        f"{path}: {missing} of {len(expected)} chunks of {split}/{name} are missing; generate it again"
                    )
    except (OSError, KeyError, TypeError, json.JSONDecodeError) as error:
        raise UserError(f"{path} is damaged; generate it again ({error})") from error
    return attributes


def _chunks(array: zarr.Array[Any]) -> list[str]:
    """Names of the files that an array must have, below its folder."""
    counts = [-(-n // c) for n, c in zip(array.shape, array.chunks, strict=True)]
    return ["/".join(("c", *map(str, index))) for index in np.ndindex(*counts)]


def check_free(path: Path) -> None:
    """Refuse a place where a store cannot be written."""
    if path.exists():
        raise UserError(f"{path} exists already and is never overwritten; choose another name")
    if path.suffix in NOT_STORES:
        raise UserError(
            f"a store is a Zarr folder, and {path.name} would look like another kind of file; call it {path.stem}.zarr"
        )
    if not path.parent.is_dir():
        what = "is not a folder" if path.parent.exists() else "does not exist; create it first"
        raise UserError(f"{path.parent}, where {path.name} is to be written, {what}")
    if not os.access(path.parent, os.W_OK):
        raise UserError(f"the folder {path.parent} is not writable; choose another place for {path.name}")


def _attributes(root: Path) -> dict[str, Any] | None:
    """Attributes of a store of ours, None if it is none (or its beginning was cut short)."""
    try:
        attributes = dict(zarr.open_group(root, mode="r").attrs)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return attributes if "pdno" in attributes else None


def _clear(folder: Path) -> None:
    """Empty a folder in which a store was begun but not more; anything that is not ours is left alone."""
    entries = list(folder.iterdir())
    strange = [entry.name for entry in entries if entry.name not in ("zarr.json", *SPLITS) and entry.suffix != ".partial"]
    if strange or any(folder.glob("*/*/c/*/*")):
        raise UserError(f"{folder} is in the way and not a store that was just begun; move it, or choose another name")
    for entry in entries:
        shutil.rmtree(entry) if entry.is_dir() else entry.unlink()


def _create(root: Path, layout: Layout) -> None:
    store = zarr.create_group(root, zarr_format=3)
    for split, arrays in layout.arrays.items():
        group = store.create_group(split) if split else store
        for name, nodes in layout.coordinates[split].items():
            group.create_array(name, data=nodes, dimension_names=(name,))
        for name, spec in arrays.items():
            group.create_array(
                name,
                shape=(layout.samples[split], *spec.shape),
                chunks=(layout.block, *spec.shape),
                dtype=spec.dtype,
                fill_value=np.nan if np.dtype(spec.dtype).kind == "f" else 0,
                compressors=[ZstdCodec(level=3, checksum=True)],
                dimension_names=spec.dims,
                config={"write_empty_chunks": True},  # every chunk is a file, so that a missing one is noticed
                attributes={"long_name": spec.meaning} if spec.meaning else None,
            )
    store.attrs.put(dict(layout.attributes))  # last: a store with attributes was begun in full
