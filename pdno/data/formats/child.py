"""Read a file in a separate process: the child's side, a program that `parent` starts.

    python -P -m pdno.data.formats.child FOLDER REQUEST    writes reply.json and values.npy into the folder

The request is JSON: format, path and limits; for values also the name and the rows. Each reader imports its library, calls
`limit` and then opens the file.
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
    """Write the reply to a request, and the values that it asks for, into a folder."""
    file_format, path, memory, seconds = (request.pop(key) for key in ("format", "path", "memory", "seconds"))
    readers: dict[str, Callable[..., Any]] = {"torch": Torch, "mat v5": Matlab}
    try:
        file = readers.get(file_format, partial(Hdf5, file_format))(path, partial(set_limits, memory, seconds))
        if request:  # name and rows
            np.save(folder / "values.npy", file.values(**request), allow_pickle=False)
        reply = {} if request else file.listing()
    except MemoryError:
        reply = {"error": "asks for more memory than its arrays can need, it is damaged; get it again"}
    except UserError as error:
        reply = {"error": str(error)}
    except Exception as error:  # libraries raise nearly any exception for a damaged file
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        reply = {"error": f"cannot be read, it is damaged or of another format than its name says ({reason}); get it again"}
    (folder / "reply.json").write_text(json.dumps(reply))


def set_limits(memory: int, seconds: float) -> None:
    """Limit the further memory (bytes) and the time of this process; called after the (large) libraries are imported."""
    try:
        import resource

        pages = int(Path("/proc/self/statm").read_text().split()[0])
        limit = pages * resource.getpagesize() + memory
    except (ImportError, OSError):  # not Linux: only the parent's time limit applies
        return
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CPU, (int(seconds) + 10,) * 2)  # in case the parent has ended
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


if __name__ == "__main__":
    serve(Path(sys.argv[1]), json.loads(sys.argv[2]))
