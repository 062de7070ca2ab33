"""A checkpoint: tensors and metadata in one safetensors file that is whole or not there, and says when it is damaged.

    8 bytes              length of the header
    header               JSON: of each tensor its name, type, shape and place, and under "__metadata__" one key "pdno":
                         {"sha256": …, "version": 1, "kind": "model", "metadata": {…}}, itself JSON as a text
    data                 bytes of all tensors

The sha256 is that of the whole file, with zeros in the place of its own 64 digits: a flipped bit anywhere is noticed. The
same content makes the same bytes (safetensors writes several keys of metadata in random order, hence the one). Every future
version keeps this envelope, so that a damaged file and a newer one can be told apart.

A file comes to be under the name ``NAME.partial``, is brought to the disk and then gets its name: whoever is killed, whenever,
leaves a valid file under the name, or under ``NAME.previous`` if that one is kept.
"""

import json
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from glob import escape
from hashlib import sha256
from itertools import count
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors import torch as safetensors

from ..errors import UserError

__all__ = ["VERSION", "latest", "load", "save"]

VERSION = 1
HEADER_BYTES = 2**23  # at most
ZEROS = b"0" * 64

ENVELOPE = {"sha256": str, "version": int, "kind": str, "metadata": dict}

Bytes = bytes | memoryview
Content = tuple[dict[str, torch.Tensor], dict[str, Any]]


class Damaged(UserError):
    """The file is not what was written, or was never written by pdno."""


def save(
    path: Path, kind: str, tensors: Mapping[str, torch.Tensor], metadata: Mapping[str, Any], previous: bool = False
) -> None:
    """Write a checkpoint in the place of the one that is there, which stays whole if anything fails (OSError).

    One process at a time may write to a path.

    Args:
        path: of the file.
        kind: what it is, such as "model", so that `load` can tell it from others.
        tensors: by name, on any device.
        metadata: anything that JSON can hold.
        previous: keep the file that was there as NAME.previous.
    """
    parts = _sealed(kind, tensors, metadata)
    temporary = path.with_name(path.name + ".partial")
    try:
        with open(temporary, "wb") as file:
            file.writelines(parts)
            file.flush()
            os.fsync(file.fileno())
        if previous and path.exists():
            os.replace(path, _previous(path))
        os.replace(temporary, path)
        _sync_folder(path.parent)
    except BaseException:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise


def load(path: Path, kind: str) -> Content:
    """Tensors, on the CPU, and metadata of a checkpoint of this kind.

    No code in the file is run. What it declares is compared with its length first, so memory stays below twice that length.
    """
    if not path.exists():
        raise UserError(f"{path} does not exist, expected a file written by pdno that holds a {kind!r}; check the name")
    if not path.is_file():
        raise UserError(f"{path} is not a file, expected one written by pdno that holds a {kind!r}; check the name")
    data, envelope = _read(path)
    if envelope["version"] > VERSION:
        raise UserError(f"{path} has format version {envelope['version']}, this version reads {VERSION}; update pdno")
    if envelope["kind"] != kind:
        raise UserError(f"{path} holds a {envelope['kind'][:50]!r}, expected a {kind!r}; give the path of a {kind!r}")
    try:
        return safetensors.load(data), envelope["metadata"]
    except (SafetensorError, KeyError, TypeError, RuntimeError) as error:  # somebody sealed what safetensors did not write
        raise _damaged(path, "its tensors are not described correctly") from error


def latest(path: Path, kind: str, tell: Callable[[str], None]) -> Content | None:
    """The newest valid checkpoint to go on from: NAME, or else NAME.previous; None if neither is there.

    A damaged one is set aside as NAME.damaged, and `tell` is told. A file of another kind or of a newer version is not damaged,
    and refused. If all are damaged, going on is refused until somebody has looked at them and deleted them.
    """
    for candidate in filter(Path.exists, (path, _previous(path))):
        try:
            return load(candidate, kind)
        except Damaged as error:
            tell(f"{error} (set aside as {_set_aside(candidate).name})")
    damaged = [bad for name in (path, _previous(path)) for bad in sorted(path.parent.glob(f"{escape(name.name)}.damaged*"))]
    if damaged:
        names = ", ".join(bad.name for bad in damaged)
        raise UserError(f"no checkpoint at {path} is valid, {names} are damaged; delete them to start anew")
    return None


def _previous(path: Path) -> Path:
    return path.with_name(path.name + ".previous")


def _set_aside(path: Path) -> Path:
    """Rename to the first of NAME.damaged, NAME.damaged.2, … that is free."""
    names = (path.name + ".damaged" + ("" if i == 1 else f".{i}") for i in count(1))
    free = next(path.with_name(name) for name in names if not path.with_name(name).exists())
    return path.rename(free)


def _sync_folder(folder: Path) -> None:
    """Bring the folder's entries to the disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sealed(kind: str, tensors: Mapping[str, torch.Tensor], metadata: Mapping[str, Any]) -> tuple[Bytes, Bytes, Bytes]:
    """The file's bytes: what comes before the digest, the digest, and what comes after."""
    copies = {  # dense and apart from each other, as safetensors wants them
        name: tensor.detach().to("cpu", copy=True, memory_format=torch.contiguous_format) for name, tensor in tensors.items()
    }
    ordered = json.loads(json.dumps(metadata, sort_keys=True))
    # The digest comes first, so that nothing in the metadata can be taken for it.
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
    """What comes before the digest and what comes after it."""
    place = data.index(digest)
    return memoryview(data)[:place], memoryview(data)[place + len(digest) :]


def _read(path: Path) -> tuple[bytes, dict[str, Any]]:
    """The file's bytes, which are those that were written, and its envelope."""
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if size < 9 or length > HEADER_BYTES or file.read(1) != b"{":
            raise _foreign(path, "it is empty" if size == 0 else "it does not begin like a safetensors file")
        file.seek(8)
        text = file.read(length)
        if len(text) < length:
            raise _damaged(path, f"it is cut off, at {size:,} bytes")
        end, envelope = _understood(path, text)
        if size != 8 + length + end:
            raise _damaged(path, f"it is {'cut off' if size < 8 + length + end else 'too long'}, at {size:,} bytes")
        file.seek(0)
        data = file.read(size)
    digest = envelope["sha256"].encode("ascii", "replace")
    if digest not in data or _digest(data, digest) != digest:
        raise _damaged(path, "its bytes are not those that were written")
    return data, envelope


def _understood(path: Path, text: bytes) -> tuple[int, dict[str, Any]]:
    """Of a header: where its last tensor ends in the data, and the envelope."""
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
    """The sha256 of the file with zeros in the place of the declared one."""
    before, after = _around(data, declared)
    digest = sha256(before)
    digest.update(ZEROS)
    digest.update(after)
    return digest.hexdigest().encode()


def _foreign(path: Path, reason: str) -> Damaged:
    return Damaged(f"{path} is not a checkpoint of pdno, or damaged: {reason}; choose a file that pdno wrote")


def _damaged(path: Path, reason: str) -> Damaged:
    return Damaged(f"{path} is damaged: {reason}; copy or make it again")
