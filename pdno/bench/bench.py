"""`pdno bench`: run parts of the paper's experiments, one by one, and keep their results.

OUT/SCALE/results/PART.json        rows of a part, and its errors by epoch; a part whose file exists is not run again
OUT/SCALE/runs/PART/               its model, and what an interrupted training resumes from
OUT/SCALE/data/                    pairs, for all methods
"""

from collections.abc import Callable, Iterable
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Protocol

from ..errors import UserError
from ..run import results
from .claims import CLAIMS
from .part import PARTS
from .scale import Scale, scale_of
from .training import file_name

__all__ = ["AnyPart", "listing", "run", "selected"]

Rows = list[dict[str, Any]]


class AnyPart(Protocol):
    """A part of the bench: a method on an experiment, or a claim."""

    @property
    def name(self) -> str:
        """As on the command line."""

    @property
    def names(self) -> tuple[str, ...]:
        """Names that select it, its own included."""

    def run(self, scale: Scale, folder: Path, **engine: Any) -> Rows:
        """Train, evaluate, and return rows of results."""

    def details(self, folder: Path) -> dict[str, Any]:
        """Return further keys of its file of results."""

    def forget(self, folder: Path) -> None:
        """Remove its models."""

    def listed(self, rows: Rows) -> str:
        """Return the columns of a list; there are no rows if it was not run."""

    def summary(self, rows: Rows) -> str:
        """Return the results in a line."""


ALL: dict[str, AnyPart] = {**PARTS, **CLAIMS}


def selected(names: Iterable[str]) -> list[AnyPart]:
    """Return the parts of these names: a part, an experiment, a test, a method or "claims"; all parts if there are no names.

    Raises:
        UserError: if a name is none of these.

    >>> [part.name for part in selected(["burgers-512"])][:2]
    ['burgers-512/diffusion', 'burgers-512/default']
    """
    chosen: dict[str, AnyPart] = {}
    for name in names:
        found = {part.name: part for part in ALL.values() if name in part.names}
        if not found:
            close = get_close_matches(name, {each for part in ALL.values() for each in part.names}, 1)
            hint = f"did you mean {close[0]!r}? " if close else ""
            raise UserError(f"the bench has no part {name!r}; {hint}`pdno bench --list` shows all parts")
        chosen |= found
    return list(chosen.values()) if chosen else list(ALL.values())


def run(
    names: Iterable[str],
    scale: str,
    out: Path,
    *,
    tell: Callable[[str], None],
    again: bool = False,
    minutes: float | None = None,
    **engine: Any,
) -> None:
    """Run parts that have no results yet.

    Args:
        names: as in `selected`.
        scale: "smoke", "cpu" or "paper".
        out: folder.
        again: run parts again that have results.
        minutes: shorter training time of each part.
        tell: called with messages for the user.
        engine: device, devices and precision.
    """
    size = scale_of(scale).within(minutes)
    parts = selected(names)
    if minutes is not None and any(part.name in CLAIMS for part in parts):
        raise UserError(f"--minutes {minutes:g}: claims train for a number of updates; name other parts, or omit --minutes")
    for part in parts if again else ():
        if _path(part, size, out).exists():  # all first, as claims share models
            part.forget(out / size.name)
    for number, part in enumerate(parts, start=1):
        path = _path(part, size, out)
        if path.exists() and not again:
            tell(f"[{number}/{len(parts)}] {part.name}: {path} exists")
            continue
        tell(f"[{number}/{len(parts)}] {part.name}")
        rows = part.run(size, out / size.name, **engine)
        path.parent.mkdir(parents=True, exist_ok=True)
        results.write(path, rows, machine=results.machine(), **part.details(out / size.name))
        tell(f"    {part.summary(rows)}")


def _path(part: AnyPart, scale: Scale, out: Path) -> Path:
    return out / scale.name / "results" / file_name(part.name)


def listing(scale: str, out: Path) -> list[str]:
    """Return a table of all parts: whether each was run, its MRLE beside that of the paper, and whether claims hold."""
    size = scale_of(scale)
    lines = [f"{'part':<44} {'MRLE':>9} {'paper':>9} {'minutes':>8}"]
    for part in ALL.values():
        path = _path(part, size, out)
        rows = results.read(path)["rows"] if path.exists() else []
        lines.append(f"{part.name:<44} {part.listed(rows)}")
    return lines
