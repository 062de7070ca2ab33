"""Reading in a process of its own: the parent's side, of which `child` is the other.

scipy, torch and HDF5 crash, hang or swell on some damaged files. They read in a child process, whose memory and time are
limited:

    parent: request = {kind, path, name, rows, limits} → child: reply.json and values.npy in a temporary folder
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
from numpy.typing import NDArray

from ...errors import UserError
from .entry import Found

__all__ = ["ask", "fetch_from_child", "list_in_child"]

TIME_LIMIT = 60.0  # seconds that a child may take, and one more for every 10 MB that it reads
GIB = 2**30


def list_in_child(found: Found, kind: str) -> None:
    """Arrays of a `.mat` (v5) or `.pt` file; `kind` is mat v5 or torch."""
    listing, _ = ask(found.path, kind)
    found.notes.extend(listing["notes"])
    for name, shape, dtype in listing["entries"]:
        plain = np.dtype(dtype)
        size = math.prod(shape) * plain.itemsize
        fetch = partial(fetch_from_child, found.path, kind, {"name": name}, size, 0)
        found.add(name or found.path.stem, tuple(shape), plain, fetch, least=size if kind == "mat v5" else 0)


def fetch_from_child(path: Path, kind: str, place: dict[str, Any], least: int, row: int, first: int, end: int) -> NDArray[Any]:
    """Rows read by a child, which may take `least` bytes or what the rows take, whichever is more."""
    _, values = ask(path, kind, max(least, row * (end - first)), first=first, end=end, **place)
    assert values is not None
    return values


def ask(path: Path, kind: str, size: int = 0, **request: Any) -> tuple[dict[str, Any], NDArray[Any] | None]:
    """What the child answers: a listing, or the values of one array of `size` bytes."""
    seconds = TIME_LIMIT + size / 1e7
    request |= {"kind": kind, "path": str(path.resolve()), "seconds": seconds, "room": 3 * size + path.stat().st_size + GIB}
    home = os.pathsep.join(filter(None, [str(Path(__file__).parents[3]), os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, "PYTHONPATH": home, "OMP_NUM_THREADS": "1"}
    with tempfile.TemporaryDirectory() as folder:
        # -P: a file that lies beside the data and is called numpy.py must not be imported.
        command = [sys.executable, "-P", "-m", "pdno.data.formats.child", folder, json.dumps(request)]
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
