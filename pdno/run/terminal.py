"""Tables in the terminal."""

from collections.abc import Iterable, Sequence

from rich.box import SIMPLE
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

__all__ = ["text_table"]


def text_table(
    columns: Sequence[str],
    rows: Iterable[Sequence[RenderableType]],
    *,
    left: int = 1,
    title: Text | None = None,
    tight: bool = False,
) -> Table:
    """Return a table of numbers after some columns of text, which may be wrapped.

    Args:
        columns: headings.
        rows: cells.
        left: number of the columns of text.
        title: above the table.
        tight: whether columns are as near to each other as possible.
    """
    table = Table(box=SIMPLE, pad_edge=False, collapse_padding=tight, title=title, title_justify="left")
    for k, name in enumerate(columns):
        table.add_column(name, justify="left" if k < left else "right", no_wrap=k >= left)
    for row in rows:
        table.add_row(*row)
    return table
