"""Files that are whole or not there: a file is written under the name ``NAME.partial`` and then gets its own."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["replacing"]


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """The path to write to; when the block ends well it takes the place of `path`, else it is removed."""
    partial = path.with_name(f"{path.name}.partial")
    try:
        yield partial
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)
