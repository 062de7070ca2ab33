"""Read a file in a separate process: the parent's side; the other one is `child`.

scipy, torch and HDF5 crash, hang or exhaust the memory on some damaged files. They read in a child process with limited memory
and
time:

    parent: request = {format, path, name, rows, limits} → child: reply.json and values.npy in a temporary folder
"""

import json
import math
import os
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ..._typing import Array
from ...errors import UserError
from .entry import Listing

__all__ = ["fetch_from_child", "list_in_child", "request_listing"]

TIME_LIMIT = 60.0  # seconds that a child may take, beside those for reading
BYTES_PER_SECOND = 1e7  # that a child reads at least
COPIES = 3  # of the values that a child may hold in memory
SPARE_MEMORY = 2**30  # bytes that a child may need beside the file and the values


def list_in_child(listing: Listing, file_format: str) -> None:
    """List the arrays of a `.mat` (v5) or `.pt` file; the format is mat v5 or torch."""
    reply = request_listing(listing.path, file_format)
    listing.notes.extend(reply["notes"])
    for name, shape, dtype in reply["entries"]:
        plain = np.dtype(dtype)
        size = math.prod(shape) * plain.itemsize
        fetch = partial(fetch_from_child, listing.path, file_format, {"name": name}, size, 0)
        listing.add(name or listing.path.stem, tuple(shape), plain, fetch, least=size if file_format == "mat v5" else 0)


def request_listing(path: Path, file_format: str) -> dict[str, Any]:
    """Return the listing of a file by a child: its "entries" and "notes"."""
    with tempfile.TemporaryDirectory() as folder:
        return _request(Path(folder), path, file_format)


def fetch_from_child(path: Path, file_format: str, place: dict[str, Any], least: int, row: int, first: int, end: int) -> Array:
    """Return rows of an array, read by a child.

    Args:
        path: of the file.
        file_format: of the file.
        place: arguments that identify the array.
        least: bytes that the smallest read needs.
        row: bytes of a row.
        first, end: rows from the first to before the end.
    """
    with tempfile.TemporaryDirectory() as folder:
        _request(Path(folder), path, file_format, max(least, row * (end - first)), first=first, end=end, **place)
        return np.asarray(np.load(Path(folder, "values.npy"), allow_pickle=False))


def _request(folder: Path, path: Path, file_format: str, size: int = 0, **request: Any) -> dict[str, Any]:
    """Run a child, which writes values of `size` bytes into a folder if the request has a name, and return its reply."""
    seconds = TIME_LIMIT + size / BYTES_PER_SECOND
    memory = COPIES * size + path.stat().st_size + SPARE_MEMORY
    request |= {"format": file_format, "path": str(path.resolve()), "seconds": seconds, "memory": memory}
    packages = os.pathsep.join(filter(None, [str(Path(__file__).parents[3]), os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, "PYTHONPATH": packages, "OMP_NUM_THREADS": "1"}
    # -P: a file called numpy.py in the folder of the data must not be imported.
    command = [sys.executable, "-P", "-m", "pdno.data.formats.child", str(folder), json.dumps(request)]
    try:
        null = subprocess.DEVNULL
        child = subprocess.run(command, env=environment, timeout=seconds, stdin=null, stdout=null, stderr=null)
    except subprocess.TimeoutExpired:
        raise UserError(f"{path} took more than {seconds:.0f} s to read, it is probably damaged; get it again") from None
    reply = folder / "reply.json"
    if child.returncode or not reply.exists():
        raise UserError(f"{path} crashed its reader (exit code {child.returncode}), it is damaged; get it again")
    answer: dict[str, Any] = json.loads(reply.read_text())
    if "error" in answer:
        raise UserError(f"{path} {answer['error']}")
    return answer
