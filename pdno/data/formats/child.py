"""Reading in a process of its own: the child's side, a program that `process` starts.

    python -P -m pdno.data.formats.child FOLDER REQUEST    leaves reply.json and values.npy in the folder

The request is JSON: kind, path and limits; for values also the name and the rows. Each reader loads its library, calls `limit`
and then opens the file.
"""

import json
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import UserError
from .hdf5 import Hdf5
from .matlab import Matlab
from .torch_files import Torch

__all__ = ["serve", "set_limits"]


def serve(folder: Path, request: dict[str, Any]) -> None:
    """Answer a request."""
    kind, place, room, seconds = (request.pop(key) for key in ("kind", "path", "room", "seconds"))
    readers: dict[str, Callable[..., Any]] = {"torch": Torch, "mat v5": Matlab}
    try:
        file = readers.get(kind, partial(Hdf5, kind))(place, partial(set_limits, room, seconds))
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


def set_limits(room: int, seconds: float) -> None:
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


if __name__ == "__main__":
    serve(Path(sys.argv[1]), json.loads(sys.argv[2]))
