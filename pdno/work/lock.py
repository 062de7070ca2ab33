"""One writer at a time in a folder."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..errors import UserError

try:
    import fcntl
except ImportError:  # not a POSIX system: two writers are not kept apart
    fcntl = None  # type: ignore[assignment]

__all__ = ["alone"]


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Hold the folder's lock. The system lets go of it when the process ends, however it ends."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        if fcntl is not None:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise UserError(f"another process is writing {folder}; wait for it, or choose another name") from None
        yield
    finally:
        os.close(descriptor)
