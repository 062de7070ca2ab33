"""A checkpoint: tensors and metadata in one safetensors file that is complete or absent, and in which any damage is detected.

    8 bytes              length of the header
    header               JSON: name, type, shape and position of each tensor, and under "__metadata__" one key "pdno":
                         {"sha256": …, "version": 2, "kind": "model", "metadata": {…}}, itself a string with JSON
    data                 bytes of all tensors

The sha256 is that of the whole file, with zeros in place of its own 64 digits, so that a flipped bit anywhere is detected.
Equal content gives equal bytes: safetensors writes several keys of metadata in random order, hence the single key. Every future
version keeps this envelope, so that a damaged file can be distinguished from a newer one.

Files are written by `pdno.work.files.replacing`: a process that is killed at any moment leaves a valid file under NAME, or
under NAME.previous if the previous file is kept.
"""

import json
from collections.abc import Callable, Mapping
from glob import escape
from hashlib import sha256
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors import torch as safetensors

from ..errors import UserError
from .files import previous_path, replacing
from .state import State, flatten, unflatten

__all__ = ["VERSION", "latest", "load", "load_state", "save", "save_state"]

VERSION = 2  # of the format; files of any other version are refused
HEADER_BYTES = 2**23  # longest header that is read: a forged length must not fill the memory
ZEROS = b"0" * 64  # in place of the digest while it is computed

ENVELOPE = {"sha256": str, "version": int, "kind": str, "metadata": dict}

Bytes = bytes | memoryview
Content = tuple[dict[str, torch.Tensor], dict[str, Any]]


class Damaged(UserError):
    """The file is not what was written, or was never written by pdno."""


def save(
    path: Path, kind: str, tensors: Mapping[str, torch.Tensor], metadata: Mapping[str, Any], previous: bool = False
) -> None:
    """Write a checkpoint; the file that it replaces stays intact if anything fails.

    One process at a time may write to a path.

    Args:
        path: of the file.
        kind: what the file holds, such as "model"; `load` compares it.
        tensors: by name, on any device.
        metadata: anything that JSON can represent.
        previous: keep the replaced file as NAME.previous.

    Raises:
        OSError: if the file cannot be written.
    """
    parts = _sealed(kind, tensors, metadata)
    with replacing(path, sync=True, previous=previous) as partial, open(partial, "wb") as file:
        file.writelines(parts)


def load(path: Path, kind: str) -> Content:
    """Read a checkpoint of this kind.

    No code in the file is run. The lengths that it declares are compared with the file's own first, so that memory stays below
    twice that length.

    Returns:
        Tensors by name, on the CPU, and metadata.

    Raises:
        UserError: if there is no such file, or it is damaged, of another kind or of another version.
    """
    if not path.exists():
        raise UserError(f"{path} does not exist, expected a file written by pdno that holds a {kind!r}; check the name")
    if not path.is_file():
        raise UserError(f"{path} is not a file, expected one written by pdno that holds a {kind!r}; check the name")
    data, envelope = _read(path)
    if envelope["version"] > VERSION:
        raise UserError(f"{path} has format version {envelope['version']}, this version reads {VERSION}; update pdno")
    if envelope["version"] < VERSION:
        raise UserError(
            f"{path} has format version {envelope['version']}, written by an earlier development version of pdno; this version "
            f"reads {VERSION}: train it again, into a new folder"
        )
    if envelope["kind"] != kind:
        raise UserError(f"{path} holds a {envelope['kind'][:50]!r}, expected a {kind!r}; give the path of a {kind!r}")
    try:
        return safetensors.load(data), envelope["metadata"]
    except (SafetensorError, KeyError, TypeError, RuntimeError) as error:  # a valid digest, but not written by safetensors
        raise _damaged(path, "its tensors are not described correctly") from error


def save_state(path: Path, kind: str, state: State, previous: bool = False) -> None:
    """Write a tree of settings and arrays; arguments as in `save`."""
    arrays, metadata = flatten(state)
    tensors = {name: torch.from_numpy(np.array(values, order="C")) for name, values in arrays.items()}
    save(path, kind, tensors, metadata, previous)


def load_state(path: Path, kind: str) -> State:
    """Read what `save_state` wrote; exceptions as in `load`."""
    tensors, metadata = load(path, kind)
    try:
        return unflatten({name: tensor.numpy() for name, tensor in tensors.items()}, metadata)
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise _damaged(path, "its content is not described correctly") from error


def latest(path: Path, kind: str, report: Callable[[str], None]) -> Content | None:
    """Read the newest valid checkpoint, from which a run resumes: NAME, else NAME.previous.

    A damaged file is renamed to NAME.damaged, and `report` is called with a message. A file of another kind or another version
    is not damaged, and refused.

    Returns:
        Tensors and metadata; None if neither file exists.

    Raises:
        UserError: if all files are damaged. They must be deleted before training can start again.
    """
    for candidate in filter(Path.exists, (path, previous_path(path))):
        try:
            return load(candidate, kind)
        except Damaged as error:
            report(f"{error} (renamed to {_rename_damaged(candidate).name})")
    damaged = [bad for name in (path, previous_path(path)) for bad in sorted(path.parent.glob(f"{escape(name.name)}.damaged*"))]
    if damaged:
        names = ", ".join(bad.name for bad in damaged)
        raise UserError(f"no checkpoint at {path} is valid, {names} are damaged; delete them to start again from the beginning")
    return None


def _rename_damaged(path: Path) -> Path:
    """Rename to the first of NAME.damaged, NAME.damaged.2, … that does not exist."""
    names = (path.name + ".damaged" + ("" if i == 1 else f".{i}") for i in count(1))
    free = next(path.with_name(name) for name in names if not path.with_name(name).exists())
    return path.rename(free)


def _sealed(kind: str, tensors: Mapping[str, torch.Tensor], metadata: Mapping[str, Any]) -> tuple[Bytes, Bytes, Bytes]:
    """Return the file's bytes: those before the digest, the digest, and those after it."""
    copies = {  # dense and without shared memory, as safetensors requires
        name: tensor.detach().to("cpu", copy=True, memory_format=torch.contiguous_format) for name, tensor in tensors.items()
    }
    ordered = json.loads(json.dumps(metadata, sort_keys=True))
    # The digest comes first, so that nothing in the metadata can be mistaken for it.
    envelope = {"sha256": ZEROS.decode(), "version": VERSION, "kind": kind, "metadata": ordered}
    data = safetensors.save(copies, {"pdno": json.dumps(envelope, separators=(",", ":"))})
    if (length := int.from_bytes(data[:8], "little")) > HEADER_BYTES:
        raise UserError(
            f"the header of a checkpoint would have {length:,} bytes, at most {HEADER_BYTES:,} are read; "
            "put long metadata into a tensor"
        )
    before, after = _around(data, ZEROS)
    return before, sha256(data).hexdigest().encode(), after


def _around(data: bytes, digest: bytes) -> tuple[memoryview, memoryview]:
    """Return the bytes before the digest and those after it."""
    place = data.index(digest)
    return memoryview(data)[:place], memoryview(data)[place + len(digest) :]


def _read(path: Path) -> tuple[bytes, dict[str, Any]]:
    """Return the file's bytes, whose digest is correct, and its envelope."""
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if size < 9 or length > HEADER_BYTES or file.read(1) != b"{":
            raise _foreign(path, "it is empty" if size == 0 else "it does not begin like a safetensors file")
        file.seek(8)
        text = file.read(length)
        if len(text) < length:
            raise _damaged(path, f"it is truncated, at {size:,} bytes")
        end, envelope = _parsed(path, text)
        if size != 8 + length + end:
            raise _damaged(path, f"it is {'truncated' if size < 8 + length + end else 'too long'}, at {size:,} bytes")
        file.seek(0)
        data = file.read(size)
    digest = envelope["sha256"].encode("ascii", "replace")
    if digest not in data or _digest(data, digest) != digest:
        raise _damaged(path, "its bytes are not those that were written")
    return data, envelope


def _parsed(path: Path, text: bytes) -> tuple[int, dict[str, Any]]:
    """Return, from a header, the position in the data where the last tensor ends, and the envelope."""
    try:
        header = json.loads(text)
        envelope = json.loads(header.pop("__metadata__")["pdno"])
        end = max((int(entry["data_offsets"][1]) for entry in header.values()), default=0)
        types = {key: type(envelope[key]) for key in ENVELOPE}
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, OverflowError, RecursionError) as error:
        raise _foreign(path, "its header is not one of pdno") from error
    if types != ENVELOPE:
        raise _foreign(path, "its header is not one of pdno")
    return end, envelope


def _digest(data: bytes, declared: bytes) -> bytes:
    """Return the sha256 of the file with zeros in place of the declared one."""
    before, after = _around(data, declared)
    digest = sha256(before)
    digest.update(ZEROS)
    digest.update(after)
    return digest.hexdigest().encode()


def _foreign(path: Path, reason: str) -> Damaged:
    return Damaged(f"{path} is not a checkpoint of pdno, or damaged: {reason}; choose a file that pdno wrote")


def _damaged(path: Path, reason: str) -> Damaged:
    return Damaged(f"{path} is damaged: {reason}; copy or create it again")
