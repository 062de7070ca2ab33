"""Write a file completely or not at all, and let one process at a time write into a folder.

A file is written under the hidden name ``.NAME.partial`` and renamed when it is complete. A process that is killed at any
moment leaves the old file or the new one under NAME, never a part of one; the next write replaces the remains.
"""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ..errors import UserError

try:
    import fcntl
except ImportError:  # not a POSIX system: concurrent writers are not detected
    fcntl = None  # type: ignore[assignment]

__all__ = ["locked", "partial_path", "previous_path", "replacing"]


@contextmanager
def replacing(path: Path, sync: bool = False, previous: bool = False) -> Iterator[Path]:
    """Replace a file (or create a folder) by what the block writes; if the block raises, nothing is changed.

    One process at a time may write to a path.

    Args:
        path: of the file, or of a folder that does not exist yet.
        sync: flush the content to the disk before the file is renamed, and the folder's entry after it, so that the result also
            survives a power failure.
        previous: keep the replaced file as NAME.previous.

    Yields:
        The temporary path to write to.
    """
    partial = partial_path(path)
    _remove(partial)
    try:
        yield partial
        if sync:
            for file in sorted(partial.rglob("*")) if partial.is_dir() else [partial]:
                _sync(file)
        if previous and path.exists():
            os.replace(path, previous_path(path))
        os.replace(partial, path)
        if sync:
            _sync(path.parent)
    except BaseException:
        _remove(partial)
        raise


def partial_path(path: Path) -> Path:
    """Return the name under which a file is written until it is complete."""
    return path.with_name(f".{path.name}.partial")


def previous_path(path: Path) -> Path:
    """Return the name under which a replaced file is kept."""
    return path.with_name(f"{path.name}.previous")


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the exclusive lock of a folder; the system releases it when the process ends, for whatever reason.

    Raises:
        UserError: if another process holds the lock.
    """
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


def _sync(path: Path) -> None:
    """Flush a file, or the entries of a folder, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _remove(path: Path) -> None:
    """Delete a file or a folder if it exists; a failure to do so is ignored."""
    with suppress(OSError):
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
