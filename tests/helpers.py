"""Functions that several test files share."""

import hashlib
from pathlib import Path


def digest(store: Path) -> str:
    """SHA-256 of every path and byte below a folder."""
    total = hashlib.sha256()
    for path in sorted(store.rglob("*")):
        total.update(str(path.relative_to(store)).encode() + b"\0")
        if path.is_file():
            total.update(path.read_bytes())
    return total.hexdigest()
