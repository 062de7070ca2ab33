"""`pdno bench`: run parts of the paper's experiments, one by one, and keep their results.

OUT/SCALE/results/PART.json        rows of a part; a part whose file exists is not run again
OUT/SCALE/runs/PART/               its model, and what an interrupted training resumes from
OUT/SCALE/data/                    pairs, for all methods
"""

from collections.abc import Callable, Iterable
from difflib import get_close_matches
from pathlib import Path
from shutil import rmtree
from typing import Any

from ..errors import UserError
from ..run import results
from .part import PARTS, Part
from .scale import Scale, scale_of

__all__ = ["listing", "run", "selected"]


def selected(names: Iterable[str]) -> list[Part]:
    """Return the parts of these names: a part, an experiment, a test or a method; all parts if there are no names.

    Raises:
        UserError: if a name is none of these.

    >>> [part.name for part in selected(["burgers-512"])][:2]
    ['burgers-512/diffusion', 'burgers-512/default']
    """
    chosen: dict[str, Part] = {}
    for name in names:
        found = {part.name: part for part in PARTS.values() if name in _names(part)}
        if not found:
            close = get_close_matches(name, {each for part in PARTS.values() for each in _names(part)}, 1)
            hint = f"did you mean {close[0]!r}? " if close else ""
            raise UserError(f"the bench has no part {name!r}; {hint}`pdno bench --list` shows all parts")
        chosen |= found
    return list(chosen.values()) if chosen else list(PARTS.values())


def _names(part: Part) -> tuple[str, ...]:
    return part.name, part.setting.name, part.setting.test, part.method.name


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
    for number, part in enumerate(parts, start=1):
        path = _path(part, size, out)
        if path.exists() and not again:
            tell(f"[{number}/{len(parts)}] {part.name}: {path} exists")
            continue
        tell(f"[{number}/{len(parts)}] {part.name}")
        if path.exists():
            rmtree(part.run_folder(out / size.name), ignore_errors=True)
        rows = part.run(size, out / size.name, **engine)
        path.parent.mkdir(parents=True, exist_ok=True)
        results.write(path, rows, machine=results.machine())
        tell(f"    {_summary(rows)}")


def _path(part: Part, scale: Scale, out: Path) -> Path:
    return out / scale.name / "results" / part.file


def _summary(rows: list[dict[str, Any]]) -> str:
    values = {row["metric"]: row["value"] for row in rows}
    return ", ".join(f"{name} {values[name]:.3g}" for name in ("mrle", "mean_std", "crps") if values.get(name) is not None)


def listing(scale: str, out: Path) -> list[str]:
    """Return a table of all parts: whether each was run, and its MRLE beside that of the paper."""
    size = scale_of(scale)
    lines = [f"{'part':<44} {'MRLE':>9} {'paper':>9} {'minutes':>8}"]
    for part in PARTS.values():
        path = _path(part, size, out)
        rows = {row["metric"]: row for row in results.read(path)["rows"]} if path.exists() else {}
        setting = part.setting
        paper = results.paper(setting.test, setting.grid, setting.noise, "mrle", part.method.name)
        mrle = f"{rows['mrle']['value']:.2g}" if "mrle" in rows else "not run"
        minutes = f"{rows['mrle']['train_seconds'] / 60:.1f}" if "mrle" in rows else ""
        lines.append(f"{part.name:<44} {mrle:>9} {'' if paper is None else f'{paper:.4f}':>9} {minutes:>8}")
    return lines
