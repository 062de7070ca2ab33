"""A progress bar on standard error, shown on terminals only."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

__all__ = ["progress_bar"]


@contextmanager
def progress_bar(title: str, unit: str) -> Iterator[Callable[..., None]]:
    """Show a bar with count, elapsed time, remaining time and a note.

    Args:
        title: text before the bar.
        unit: what is counted, in the plural.

    Yields:
        A function of (done, total, note="") that updates the bar.
    """
    console = Console(stderr=True)
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn(unit),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}"),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    ) as bar:
        task = bar.add_task(title, total=None, note="")
        yield lambda done, total, note="": bar.update(task, completed=done, total=total, note=note)
