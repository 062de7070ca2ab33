"""Readers of other people's array files, which may be damaged or hostile.

Each reader lists a file's arrays by their headers alone. What an array takes is checked against a budget before memory is
asked for, nothing is unpickled, nothing outside the file is opened, and whatever a library raises becomes one `UserError`.
No handle outlives a call, so entries survive a fork and can be pickled.

scipy, torch and HDF5 crash, hang or swell on some damaged files. They read in a child process, this module run as a program,
whose memory and time are limited:

    parent: request = {kind, path, name, rows, limits} → child: reply.json and values.npy in a temporary folder
"""

import json
import math
import os
import struct
import subprocess
import sys
import tempfile
import warnings
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from .errors import UserError

__all__ = ["Entry", "Found", "hdf5", "honest", "in_child", "library", "netcdf3", "npy", "npz", "size_text", "zarr_folder"]

TIME_LIMIT = 60.0  # seconds that a child may take, and one more for every 10 MB that it reads
BLOCK = 2**20  # bytes of a streamed read
GIB = 2**30
KINDS = {"O": "Python objects", "U": "text", "S": "text", "T": "text", "c": "complex", "V": "a compound type"}
MATLAB = {
    "double": "f8",
    "single": "f4",
    "logical": "?",
    **{f"{sign}int{8 * size}": f"{sign or 'i'}{size}" for sign in ("", "u") for size in (1, 2, 4, 8)},
}
"""MATLAB's numeric classes and their dtypes."""
CODECS = {"blosc", "bytes", "bz2", "crc32c", "delta", "gzip", "lz4", "lzma", "sharding_indexed", "shuffle", "transpose"} | {
    *("zlib", "zstd", "adler32", "crc32", "endian")
}
"""Zarr codecs that only move or compress bytes; others (one is called pickle) are not run."""

Fetch = Callable[[int, int], NDArray[Any]]


@dataclass(frozen=True)
class Entry:
    """An array in a file, not yet read."""

    name: str  # 'group/name' inside groups
    shape: tuple[int, ...]
    dtype: np.dtype[Any]  # as stored
    dims: tuple[str, ...] | None  # names of the axes, where the file has them
    read: Callable[[slice], NDArray[Any]]  # rows of the first axis, slice(None) for all; a 0-d array ignores the slice


@dataclass
class Found:
    """What a reader finds: the arrays, and what was passed over and why."""

    path: Path
    budget: int
    entries: dict[str, Entry]
    notes: list[str]

    def add(
        self,
        name: str,
        shape: tuple[int, ...],
        dtype: np.dtype[Any],
        fetch: Fetch,
        dims: tuple[str, ...] | None = None,
        least: int = 0,
    ) -> None:
        """Take up an array; `least` is what the smallest read takes in bytes (a chunk, or all of it)."""
        if dtype.kind not in "biuf":
            self.pass_over(name, f"is {KINDS.get(dtype.kind, 'not numeric')}")
        elif len(shape) > 32 or any(n < 0 for n in shape):
            self.pass_over(name, f"has the impossible shape {shape}")
        else:
            read = partial(_read, self.path, name, shape, dtype, fetch, least, self.budget)
            self.entries[name] = Entry(name, shape, dtype, dims, read)

    def pass_over(self, name: str, reason: str) -> None:
        self.notes.append(f"{name!r} {reason}")


def _read(
    path: Path, name: str, shape: tuple[int, ...], dtype: np.dtype[Any], fetch: Fetch, least: int, budget: int, rows: slice
) -> NDArray[Any]:
    """The rows as a native C-ordered array, after a look at what they take."""
    span = range(shape[0])[rows] if shape else range(0)
    first, end = (min(span[0], span[-1]), max(span[0], span[-1]) + 1) if span else (0, 0)
    expected = (end - first, *shape[1:]) if shape else ()
    size = math.prod(expected) * dtype.itemsize
    if max(size, least if size else 0) > budget:
        raise UserError(
            f"{path}: reading {name!r} takes {size_text(max(size, least))}, the budget is {size_text(budget)}; "
            "read fewer rows, or give contents() a larger budget in bytes"
        )
    native = dtype.newbyteorder("=")
    with honest(path):
        values = np.asarray(fetch(first, end)) if size else np.empty(expected, native)
        if values.shape != expected:
            raise ValueError(f"{name!r} has shape {values.shape} where {expected} was declared")
        values = np.asarray(values, dtype=native, order="C")
        return np.asarray(values[:: span.step], order="C") if shape and span.step != 1 else values


@contextmanager
def honest(path: Path) -> Iterator[None]:
    """Turn whatever a library raises for a bad file into one sentence."""
    try:
        yield
    except UserError:
        raise
    except MemoryError:
        raise UserError(f"{path} does not fit into memory; read fewer rows, or use a machine with more") from None
    except Exception as error:  # the libraries raise nearly every type there is
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise UserError(f"{path} cannot be read, it is damaged or not what its name says ({reason}); get it again") from None


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the warnings that libraries give about odd files."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def library(name: str) -> Any:
    """An optional package, loaded when a file needs it."""
    try:
        return import_module(name)
    except ImportError:
        raise UserError(f"files of this kind need the package {name}; install it with `pip install {name}`") from None


def size_text(size: float) -> str:
    """
    >>> size_text(3 * 2**30)
    '3 GiB'
    """
    units = ("bytes", "KiB", "MiB", "GiB", "TiB", "PiB")
    power = min(len(units) - 1, max(0, int(size).bit_length() - 1) // 10)
    return f"{size / 1024**power:.3g} {units[power]}"


# NumPy's own formats: a header, then the bytes. An .npz is a zip of them.


def npy(found: Found) -> None:
    path = found.path
    with path.open("rb") as stream:
        shape, fortran, dtype = _npy_header(stream)
        offset = stream.tell()
    declared, there = math.prod(shape) * dtype.itemsize, path.stat().st_size - offset
    if dtype.kind != "O" and declared > there:
        raise UserError(f"{path} is cut short: it declares {size_text(declared)} and has {size_text(there)}; get it again")
    found.add(path.stem, shape, dtype, partial(_fetch_npy, path, shape, dtype, fortran, offset))


def npz(found: Found) -> None:
    with zipfile.ZipFile(found.path) as archive:
        for member in archive.infolist():
            name = member.filename.removesuffix(".npy")
            with archive.open(member) as stream:
                if name == member.filename or stream.read(6) != b"\x93NUMPY":
                    found.pass_over(name, "is not an array")
                    continue
                stream.seek(0)
                shape, fortran, dtype = _npy_header(stream)
                size = math.prod(shape) * dtype.itemsize
                if dtype.kind != "O" and size != member.file_size - stream.tell():
                    found.pass_over(name, "is cut short or damaged")
                    continue
            found.add(name, shape, dtype, partial(_fetch_npz, found.path, member.filename), least=size if fortran else 0)


def _npy_header(stream: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    version = np.lib.format.read_magic(stream)
    with _quiet():
        if version == (1, 0):
            return np.lib.format.read_array_header_1_0(stream)
        return np.lib.format.read_array_header_2_0(stream)  # 3.0 differs in the names of compound types only


def _fetch_npy(
    path: Path, shape: tuple[int, ...], dtype: np.dtype[Any], fortran: bool, offset: int, first: int, end: int
) -> NDArray[Any]:
    values = np.memmap(path, dtype, "r", offset, shape, "F" if fortran else "C")
    return np.array(values[first:end] if shape else values, order="C", subok=False)


def _fetch_npz(path: Path, member: str, first: int, end: int) -> NDArray[Any]:
    with zipfile.ZipFile(path) as archive, archive.open(member) as stream:
        shape, fortran, dtype = _npy_header(stream)
        if fortran or not shape:
            values = _stream(stream, shape[::-1], dtype).T
            return values[first:end] if shape else values
        stream.seek(first * math.prod(shape[1:]) * dtype.itemsize, os.SEEK_CUR)
        values = _stream(stream, (end - first, *shape[1:]), dtype)
        if end == shape[0]:
            stream.read(1)  # the end of the member is where its checksum is compared
        return values


def _stream(stream: IO[bytes], shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    values = np.empty(shape, dtype)
    view, done = values.reshape(-1).view(np.uint8), 0
    while done < len(view):
        part = stream.read(min(BLOCK, len(view) - done))
        if not part:
            raise ValueError("it is cut short")
        view[done : done + len(part)] = np.frombuffer(part, np.uint8)
        done += len(part)
    return values


# HDF5 and what is built on it: netCDF-4 and MATLAB v7.3, whose axes come in reverse.


def hdf5(found: Found, kind: str = "hdf5") -> None:
    """Arrays of an HDF5 file; `kind` is hdf5, netcdf or mat v7.3.

    A damaged file can hang or crash HDF5, so that a child makes the list and reads what lies in chunks. What it survived,
    opening a contiguous array, is then safe to do here, where it is fast.
    """
    listing, _ = _ask(found.path, kind)
    found.notes.extend(listing["notes"])
    for item in listing["entries"]:
        shape, dtype = tuple(item["shape"]), np.dtype(item["dtype"])
        place = {"name": item["target"], "fill": item["fill"]}
        if item["chunked"]:
            fetch = partial(_fetch_child, found.path, kind, place, item["chunk"], math.prod(shape[1:]) * dtype.itemsize)
        else:
            fetch = partial(_fetch_hdf5, found.path, kind, item["target"], item["fill"])
        found.add(item["name"], shape, dtype, fetch, item["dims"] and tuple(item["dims"]), item["chunk"])


class _Hdf5:
    def __init__(self, kind: str, path: str, limit: Callable[[], None]) -> None:
        self.h5py, self.kind, self.path = library("h5py"), kind, Path(path)
        limit()

    def listing(self) -> dict[str, Any]:
        found, items = Found(self.path, 0, {}, []), list[dict[str, Any]]()
        with self.h5py.File(self.path, "r", locking=False) as file:
            for name, target in _targets(self.h5py, file, found, self.kind):
                item = _describe(self.kind, file[target])
                if not isinstance(item, str):
                    items.append({**item, "name": name, "target": target})
                elif item:
                    found.pass_over(name, item)
        return {"entries": items, "notes": found.notes}

    def values(self, name: str, first: int, end: int, fill: list[float]) -> NDArray[Any]:
        return _fetch_hdf5(self.path, self.kind, name, fill, first, end)


def _targets(h5py: Any, file: Any, found: Found, kind: str) -> Iterator[tuple[str, str]]:
    """Name and place of each dataset, without leaving the file and without going round in circles."""
    seen, stack = set(), [("", file)]
    while stack:
        prefix, group = stack.pop()
        for child in group:
            name, link = prefix + child, group.get(child, getlink=True)
            if kind == "mat v7.3" and name.startswith("#"):  # what cells and objects refer to
                continue
            target = f"/{name}" if isinstance(link, h5py.HardLink) else _resolve(h5py, file, f"/{name}")
            if target is None:
                found.pass_over(name, "is a link to another file or to nothing")
                continue
            item = file[target]
            if isinstance(item, h5py.Dataset):
                yield name, target
            elif isinstance(item, h5py.Group) and isinstance(link, h5py.HardLink):
                place = h5py.h5o.get_info(item.id)
                if kind == "mat v7.3" and "MATLAB_class" in item.attrs:
                    found.pass_over(name, f"is of MATLAB class {_text(item.attrs['MATLAB_class'])}, stored as a group")
                elif place.addr not in seen:
                    seen.add(place.addr)
                    stack.append((f"{name}/", item))


def _resolve(h5py: Any, file: Any, path: str, jumps: int = 16) -> str | None:
    """Where a path with soft links leads inside the file. HDF5 itself would follow external links on the way."""
    here, parts = "", [part for part in path.split("/") if part not in ("", ".")]
    for i, part in enumerate(parts):
        group = file[here or "/"]
        link = group.get(part, getlink=True) if isinstance(group, h5py.Group) else None
        if isinstance(link, h5py.SoftLink) and jumps:
            onward = link.path if link.path.startswith("/") else f"{here}/{link.path}"
            return _resolve(h5py, file, "/".join([onward, *parts[i + 1 :]]), jumps - 1)
        if not isinstance(link, h5py.HardLink):
            return None
        here = f"{here}/{part}"
    return here


def _describe(kind: str, dataset: Any) -> dict[str, Any] | str:
    """What there is to know of a dataset without reading it, or why it is passed over (empty: not worth a note)."""
    if dataset.is_virtual or dataset.external:
        return "keeps its values in other files, which are not opened"
    if dataset.shape is None:
        return "is empty"
    try:
        dtype = np.dtype(dataset.dtype)
    except TypeError:
        return "has a type that NumPy does not know"
    shape, dims, attrs = tuple(int(n) for n in dataset.shape), _dims(dataset), dataset.attrs
    if kind == "mat v7.3":
        mclass = _text(attrs.get("MATLAB_class", ""))
        if mclass and mclass not in MATLAB:
            return f"is of MATLAB class {mclass}"
        if attrs.get("MATLAB_empty") and dataset.size <= 32:  # the values are the shape
            shape = tuple(int(n) for n in dataset[()])[::-1]
            if math.prod(shape):
                return "is declared empty and has a size"
            dtype = np.dtype(MATLAB.get(mclass, "f8"))
        shape, dims = shape[::-1], dims and dims[::-1]
        dtype = np.dtype(bool) if mclass == "logical" and dtype.kind in "biu" else dtype
    fill: tuple[float, ...] = ()
    if kind == "netcdf":
        if _text(attrs.get("NAME", "")).startswith("This is a netCDF dimension but not a netCDF variable"):
            return ""
        fill = _fill(attrs, dtype)
        dtype = np.dtype(bool) if _is_bool(attrs, dtype) else dtype
    if dtype.kind not in "biuf":
        return f"is {KINDS.get(dtype.kind, 'not numeric')}"
    chunked = dataset.chunks is not None
    chunk = math.prod(dataset.chunks) * dtype.itemsize if chunked else 0
    return {"shape": shape, "dtype": dtype.str, "dims": dims, "fill": fill, "chunked": chunked, "chunk": chunk}


def _fetch_hdf5(path: Path, kind: str, target: str, fill: Sequence[float], first: int, end: int) -> NDArray[Any]:
    with library("h5py").File(path, "r", locking=False) as file:
        dataset = file[target]
        if not dataset.shape:
            return _filled(np.asarray(dataset[()]), fill)
        return np.asarray(dataset[..., first:end].T if kind == "mat v7.3" else _filled(dataset[first:end], fill))


def _dims(dataset: Any) -> tuple[str, ...] | None:
    """Names of the axes: a label, else the name of a dimension scale; a coordinate is its own."""
    if dataset.ndim == 1 and dataset.attrs.get("CLASS") == b"DIMENSION_SCALE":
        return (dataset.name.rsplit("/", 1)[-1],)
    names = [axis.label or (axis[0].name.rsplit("/", 1)[-1] if len(axis) else "") for axis in dataset.dims]
    return tuple(names) if all(names) else None


def _text(attribute: Any) -> str:
    return attribute.decode("latin1") if isinstance(attribute, bytes) else str(attribute)


def _is_bool(attrs: Mapping[str, Any], dtype: np.dtype[Any]) -> bool:
    """netCDF has no bool; xarray, and `write`, store bytes and say so in an attribute."""
    return dtype.kind in "iu" and dtype.itemsize == 1 and _text(attrs.get("dtype", "")) == "bool"


def _fill(attrs: Mapping[str, Any], dtype: np.dtype[Any]) -> tuple[float, ...]:
    """The values that stand for "missing" in a float variable."""
    marks = [np.ravel(attrs[key]) for key in ("_FillValue", "missing_value") if dtype.kind == "f" and key in attrs]
    return tuple(float(x) for mark in marks if mark.dtype.kind in "iuf" for x in mark)


def _filled(values: NDArray[Any], fill: Sequence[float]) -> NDArray[Any]:
    if not fill:
        return values
    return np.where(np.isin(values, np.array(fill, values.dtype)), values.dtype.type(np.nan), values)


# netCDF-3 is mapped into memory, so that only what is copied is read.


@contextmanager
def _netcdf3(path: Path) -> Iterator[Any]:
    from scipy.io import netcdf_file

    with _quiet(), netcdf_file(path, "r", mmap=True) as file:
        yield file


def netcdf3(found: Found) -> None:
    with _netcdf3(found.path) as file:
        for name, variable in file.variables.items():
            attrs, shape, dtype = dict(variable._attributes), tuple(variable.shape), variable.data.dtype
            fill = _fill(attrs, dtype)
            dtype = np.dtype(bool) if _is_bool(attrs, dtype) else dtype
            found.add(name, shape, dtype, partial(_fetch_netcdf3, found.path, name, fill), tuple(variable.dimensions))
            del variable  # the map cannot be closed while anything looks into it


def _fetch_netcdf3(path: Path, name: str, fill: tuple[float, ...], first: int, end: int) -> NDArray[Any]:
    with _netcdf3(path) as file:
        data = file.variables[name].data
        values = np.array(data[first:end] if data.ndim else data)
        del data
    return _filled(values, fill)


# Zarr is a folder of chunks: no link may lead out of it, and a missing chunk must not read as the fill value.


def zarr_folder(found: Found) -> None:
    root = found.path.resolve()
    for path in root.rglob("*"):
        _check_inside(root, path)
    for file in sorted((*root.rglob("zarr.json"), *root.rglob(".zarray"))):
        metadata = json.loads(file.read_bytes())
        if file.name == ".zarray" or metadata.get("node_type") == "array":
            _add_zarr(found, root, file.parent.relative_to(root).as_posix().removeprefix("."), metadata)


def _check_inside(root: Path, path: Path) -> None:
    link = path.is_symlink()
    if link and (path.is_dir() or not path.resolve().is_relative_to(root)):
        raise UserError(f"{root}: {path.relative_to(root)} is a link out of the folder or to a folder; copy what it points to")
    if not link and not path.is_dir() and not path.is_file():
        raise UserError(f"{root}: {path.relative_to(root)} is neither a file nor a folder; remove it")


def _codec_names(metadata: Any) -> Iterator[str]:
    """Names of all codecs of an array, also of those inside shards."""
    configurations = [*(metadata.get("codecs") or []), *(metadata.get("index_codecs") or []), metadata.get("compressor")]
    for codec in (*configurations, *(metadata.get("filters") or []), *(metadata.get("storage_transformers") or [])):
        if codec is not None:
            yield codec if isinstance(codec, str) else str(codec.get("name") or codec.get("id"))
            yield from _codec_names(codec.get("configuration") or {}) if isinstance(codec, dict) else ()


def _add_zarr(found: Found, root: Path, place: str, metadata: Any) -> None:
    import zarr

    name = place or found.path.stem
    strange = [codec for codec in _codec_names(metadata) if codec.removeprefix("numcodecs.") not in CODECS]
    if strange:
        return found.pass_over(name, f"is stored by the codec {strange[0]!r}, which is not run")
    with _quiet():
        try:
            array = zarr.open_array(root, path=place, mode="r")
            dtype = np.dtype(array.dtype)
        except Exception as error:  # zarr raises nearly every type there is
            return found.pass_over(name, f"cannot be read ({' '.join(str(error).split())[:100]})")
    names: Any = getattr(array.metadata, "dimension_names", None) or array.attrs.get("_ARRAY_DIMENSIONS") or ()
    dims = tuple(map(str, names)) if len(names) == array.ndim and None not in names else None
    outer = array.shards or array.chunks
    expected = math.prod(-(-n // step) for n, step in zip(array.shape, outer, strict=True))
    files = (path for path in (root / place).rglob("*") if path.is_file())
    missing = expected - sum(1 for path in files if path.name != "zarr.json" and not path.name.startswith("."))
    fetch = partial(_fetch_zarr, root, place, missing)
    found.add(name, tuple(array.shape), dtype, fetch, dims, math.prod(outer) * dtype.itemsize)
    return None


def _fetch_zarr(root: Path, place: str, missing: int, first: int, end: int) -> NDArray[Any]:
    import zarr

    if missing > 0:
        raise UserError(
            f"{root}: {missing} chunks of {place or 'the array'} are missing; get them, or write it again with all its chunks "
            "(zarr leaves out chunks that hold the fill value only, unless write_empty_chunks is set)"
        )
    with _quiet():
        array = zarr.open_array(root, path=place, mode="r")
        return np.asarray(array[first:end] if array.ndim else array[()])


# MATLAB v5 and torch, in a child.


def in_child(found: Found, kind: str) -> None:
    """Arrays of a `.mat` (v5) or `.pt` file; `kind` is mat v5 or torch."""
    listing, _ = _ask(found.path, kind)
    found.notes.extend(listing["notes"])
    for name, shape, dtype in listing["entries"]:
        plain = np.dtype(dtype)
        size = math.prod(shape) * plain.itemsize
        fetch = partial(_fetch_child, found.path, kind, {"name": name}, size, 0)
        found.add(name or found.path.stem, tuple(shape), plain, fetch, least=size if kind == "mat v5" else 0)


def _fetch_child(path: Path, kind: str, place: dict[str, Any], least: int, row: int, first: int, end: int) -> NDArray[Any]:
    """Rows read by a child, which may take `least` bytes or what the rows take, whichever is more."""
    _, values = _ask(path, kind, max(least, row * (end - first)), first=first, end=end, **place)
    assert values is not None
    return values


def _ask(path: Path, kind: str, size: int = 0, **request: Any) -> tuple[dict[str, Any], NDArray[Any] | None]:
    """What the child answers: a listing, or the values of one array of `size` bytes."""
    seconds = TIME_LIMIT + size / 1e7
    request |= {"kind": kind, "path": str(path.resolve()), "seconds": seconds, "room": 3 * size + path.stat().st_size + GIB}
    home = os.pathsep.join(filter(None, [str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, "PYTHONPATH": home, "OMP_NUM_THREADS": "1"}
    with tempfile.TemporaryDirectory() as folder:
        # -P: a file that lies beside the data and is called numpy.py must not be imported.
        command = [sys.executable, "-P", "-m", "pdno.guarded", folder, json.dumps(request)]
        try:
            nothing = subprocess.DEVNULL
            code = subprocess.run(command, env=environment, timeout=seconds, stdin=nothing, stdout=nothing, stderr=nothing)
        except subprocess.TimeoutExpired:
            raise UserError(f"{path} took more than {seconds:.0f} s to read, it is probably damaged; get it again") from None
        reply = Path(folder, "reply.json")
        if code.returncode or not reply.exists():
            raise UserError(f"{path} crashed its reader (exit code {code.returncode}), it is damaged; get it again")
        answer = json.loads(reply.read_text())
        if "error" in answer:
            raise UserError(f"{path} {answer['error']}")
        values = Path(folder, "values.npy")
        return answer, np.load(values, allow_pickle=False) if values.exists() else None


def _child(folder: Path, request: dict[str, Any]) -> None:
    """Answer a request; runs in the child."""
    kind, place, room, seconds = (request.pop(key) for key in ("kind", "path", "room", "seconds"))
    readers: dict[str, Callable[..., Any]] = {"torch": _Torch, "mat v5": _Matlab}
    try:
        file = readers.get(kind, partial(_Hdf5, kind))(place, partial(_limit, room, seconds))
        if request:  # name and rows
            np.save(folder / "values.npy", file.values(**request), allow_pickle=False)
        answer = {} if request else file.listing()
    except MemoryError:
        answer = {"error": "asks for more memory than its arrays can need, it is damaged; get it again"}
    except UserError as error:
        answer = {"error": str(error)}
    except Exception as error:  # the libraries raise nearly every type there is
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        answer = {"error": f"cannot be read, it is damaged or not what its name says ({reason}); get it again"}
    (folder / "reply.json").write_text(json.dumps(answer))


def _limit(room: int, seconds: float) -> None:
    """From here on no more than `room` bytes and `seconds` of work; called when the (large) libraries are loaded."""
    try:
        import resource

        pages = int(Path("/proc/self/statm").read_text().split()[0])
        limit = pages * resource.getpagesize() + room
    except (ImportError, OSError):  # not Linux: the time limit must do
        return
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CPU, (int(seconds) + 10,) * 2)  # should the parent be gone
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


class _Matlab:
    def __init__(self, path: str, limit: Callable[[], None]) -> None:
        import scipy.io

        self.io: Any = scipy.io
        self.path = path
        limit()

    def listing(self) -> dict[str, Any]:
        entries, notes = [], []
        variables = self.io.whosmat(self.path, appendmat=False)
        for (name, shape, mclass), is_complex in zip(variables, self._complex(), strict=True):
            if mclass not in MATLAB or is_complex:
                notes.append(f"{name!r} is {'complex' if is_complex else f'of MATLAB class {mclass}'}")
            else:
                entries.append((name, [int(n) for n in shape], MATLAB[mclass]))
        return {"entries": entries, "notes": notes}

    def values(self, name: str, first: int, end: int) -> NDArray[Any]:
        values = self.io.loadmat(self.path, appendmat=False, variable_names=[name], mat_dtype=True)[name]
        return np.asarray(values[first:end], order="C")

    def _complex(self) -> Iterator[bool]:
        """Whether each variable is complex, which whosmat does not say: the flags are the first thing of an element."""
        with open(self.path, "rb") as stream:
            order = "<" if stream.read(128)[126:] == b"IM" else ">"
            while len(tag := stream.read(8)) == 8:
                (kind, size), place = struct.unpack(f"{order}II", tag), stream.tell()
                start = stream.read(min(size, 4096))
                if kind == 15:  # compressed, with a tag of its own inside
                    start = zlib.decompressobj().decompress(start, 64)[8:]
                yield bool(struct.unpack(f"{order}I", start[8:12])[0] & 0x800)
                stream.seek(place + size)


class _Torch:
    def __init__(self, path: str, limit: Callable[[], None]) -> None:
        torch = library("torch")
        if tuple(int(part) for part in torch.__version__.split(".")[:2]) < (2, 6):
            raise UserError(f"needs torch 2.6 to be read safely, {torch.__version__} is installed; update it")
        self.torch, self.found, self.notes = torch, dict[str, Any](), list[str]()
        torch.set_num_threads(1)
        limit()
        import pickle

        try:  # mapped: headers only. Files of torch before 1.6 are no zip and cannot be mapped.
            content = torch.load(path, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(path))
        except pickle.UnpicklingError:
            raise UserError("holds Python objects besides tensors, which are not loaded; save a dict of tensors") from None
        self._collect("", content, set())

    def _collect(self, name: str, item: Any, seen: set[int]) -> None:
        if isinstance(item, self.torch.Tensor):
            self.found.setdefault(name, item)
        elif isinstance(item, dict | list | tuple):
            if id(item) in seen:  # a container inside itself, or named twice: a few bytes could make up billions of names
                return
            seen.add(id(item))
            for key, value in item.items() if isinstance(item, dict) else enumerate(item):
                self._collect(f"{name}/{key}" if name else str(key), value, seen)
        else:
            self.notes.append(f"{name!r} is of type {type(item).__name__}")

    def listing(self) -> dict[str, Any]:
        entries, notes = [], self.notes
        for name, tensor in self.found.items():
            dtype = str(tensor.dtype).removeprefix("torch.").replace("bfloat16", "float32")
            if tensor.layout != self.torch.strided or dtype not in np.sctypeDict or tensor.is_quantized or tensor.is_meta:
                notes.append(f"{name!r} is a tensor of {tensor.dtype}, {tensor.layout}")
            else:
                entries.append((name, list(tensor.shape), dtype))
        return {"entries": entries, "notes": notes}

    def values(self, name: str, first: int, end: int) -> NDArray[Any]:
        tensor = self.found[name].detach().resolve_neg()
        tensor = tensor[first:end] if tensor.ndim else tensor
        tensor = tensor.float() if tensor.dtype == self.torch.bfloat16 else tensor
        return np.asarray(tensor.contiguous().numpy())


if __name__ == "__main__":
    _child(Path(sys.argv[1]), json.loads(sys.argv[2]))
