"""`pdno suggest`: write the inputs to run next into a table for the solver."""

from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import UserError
from .options import Run, Seed

if TYPE_CHECKING:
    import pandas as pd

    from ..model.design.suggest import Design

__all__ = ["SUGGEST_EXAMPLES", "suggest"]

SUGGEST_EXAMPLES = """\b
Examples:
  pdno suggest run -n 10 --out next.csv                          # within the ranges of the training parameters
  pdno suggest run --box speed=0,2 --box angle=0,1.5 -n 10       # within these ranges
  pdno suggest run --pool candidates.csv -n 10                   # rows of a table, or inputs in another file
"""


def suggest(
    run: Run,
    count: Annotated[int, typer.Option("-n", "--count", help="Number of inputs.")] = 10,
    pool: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Inputs to select from: a table or a file of fields.")
    ] = None,
    box: Annotated[
        list[str] | None,
        typer.Option(metavar="[NAME=]LOW,HIGH", help="Range of a parameter, by name or in order; default: that of training."),
    ] = None,
    out: Annotated[Path, typer.Option(metavar="CSV", help="Table to write; an existing one is never overwritten.")] = Path(
        "next.csv"
    ),
    seed: Seed = 0,
) -> None:
    """Suggest where to run next.

    Selects the inputs whose outputs would reduce the expected error most, over the pool or box, in a batch that does not repeat
    itself, and writes a table with a row for each.
    """
    from ..model.design import suggest as design
    from ..model.saving import load
    from .folder import data_of
    from .inputs import inputs_of

    if out.exists():
        raise UserError(f"{out} exists already and is never overwritten; choose another name with --out")
    model, data = load(run), data_of(run)
    candidates = None if pool is None else inputs_of(run, model.spaces, pool)
    chosen = design.suggest(model, candidates, count, box=None if box is None else _ranges(box), data=data, seed=seed)
    table = _table(chosen)
    table.to_csv(out, index=False)
    typer.echo(table.assign(**{"expected error": chosen.std}).to_string(index=False, float_format=lambda x: f"{x:.4g}"))
    before = model.provenance.get("pairs", len(data.train))
    typer.echo(
        f"{out}: {count} inputs, the most useful first. The expected squared error of the mean, now from {before} runs, would "
        f"fall to {100 * chosen.remaining[-1]:.2g} % of its present value."
    )
    typer.echo(f"Next:  run the solver for the rows of {quote(str(out))}, add them to table and fields, and train again")


def _ranges(box: list[str]) -> dict[str, tuple[float, float]] | list[tuple[float, float]]:
    """Return ranges by name, or in the order of the parameters if none has a name."""
    named, plain = {}, []
    for text in box:
        name, _, pair = text.rpartition("=")
        try:
            low, high = (float(part) for part in pair.split(","))
        except ValueError:
            raise UserError(f"--box {text}: expected two numbers, such as 0,1 or NAME=0,1") from None
        if name:
            named[name] = (low, high)
        else:
            plain.append((low, high))
    if named and plain:
        raise UserError("some ranges of --box have names and others do not; name all of them, or none")
    return named or plain


def _table(design: "Design") -> "pd.DataFrame":
    """Return the parameters; for fields of a pool also, or only, the numbers of their rows."""
    if design.rows is None or len(design.parameters.columns):
        return design.parameters
    return design.parameters.assign(row=design.rows)
