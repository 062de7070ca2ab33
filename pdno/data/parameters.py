"""Parameters of runs in a table: a row for each run, a column for each parameter, in a file or as a pandas DataFrame.

    runs.csv                 all columns; the first line has their names
    runs.csv[speed,angle]    these columns, in this order

A first column without a name that numbers the rows, as pandas writes it, is not a parameter.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from .._typing import Floats
from ..errors import UserError, nearest

__all__ = ["PARAMETER", "is_table", "names_of", "ordered", "read_parameters", "resolved"]

SEPARATORS = (",", ";", "\t")  # of cells; that which is most frequent in the first line
PARAMETER = "parameter"  # dimension of scalars, and the coordinate with their names


def read_parameters(source: "str | Path | pd.DataFrame") -> xr.DataArray:
    """Read a table of parameters.

    Args:
        source: a file, ``FILE[NAME,NAME]`` for some of its columns, or a DataFrame.

    Returns:
        Numbers (sample, parameter) with the names of the parameters as coordinate.

    Raises:
        UserError: if there is no such table, it is empty, or a value is missing or no number; with the name of the column.
    """
    if isinstance(source, pd.DataFrame):
        return _checked(source, "the table of parameters", "row")
    file, columns = _parts(str(source))
    frame = _read(Path(file))
    if columns is not None:
        for name in columns:
            if name not in frame.columns:
                raise UserError(f"{file} has no column {name!r}; {nearest(name, list(frame.columns))}")
        frame = frame[columns]
    return _checked(frame, file, "row (below the header)")


def is_table(source: Any) -> bool:
    """Return whether this is a DataFrame, or the name of a file of parameters, with or without columns."""
    return isinstance(source, pd.DataFrame) or Path(_parts(str(source))[0]).suffix.lower() in (".csv", ".tsv", ".txt")


def names_of(scalars: Any) -> tuple[str, ...]:
    """Return the names of parameters (sample, parameter), if they have any: the columns of a table, or a coordinate."""
    if isinstance(scalars, pd.DataFrame):
        return tuple(map(str, scalars.columns))
    if isinstance(scalars, xr.DataArray) and PARAMETER in scalars.coords:
        return tuple(map(str, scalars.coords[PARAMETER].values))
    return ()


def ordered(scalars: Any, names: Sequence[str]) -> Any:
    """Return parameters in the order of these names, if both have names; a table as numbers.

    Raises:
        UserError: if one of the names is missing, or a value of a table is.
    """
    given = names_of(scalars)
    if not given or not names:
        return scalars
    if missing := [name for name in names if name not in given]:
        raise UserError(f"parameter {missing[0]!r} is missing; got {', '.join(given)}, this model needs {', '.join(names)}")
    columns = [given.index(name) for name in names]
    return read_parameters(scalars.iloc[:, columns]) if isinstance(scalars, pd.DataFrame) else scalars[:, columns]


def resolved(source: str) -> str:
    """Return the expression with an absolute path."""
    file, _ = _parts(source)
    return f"{Path(file).resolve()}{source[len(file) :]}"


def _parts(source: str) -> tuple[str, list[str] | None]:
    """Return file and columns of ``FILE`` or ``FILE[NAME,NAME]``."""
    match = re.fullmatch(r"(.+?)\[(.+)\]", source)
    return (source, None) if match is None else (match[1], [name.strip() for name in match[2].split(",")])


def _read(path: Path) -> pd.DataFrame:
    """Return the cells of a file as texts, missing ones as NaN."""
    if not path.is_file():
        raise UserError(f"{path} does not exist or is not a file; expected a table with a row for each run")
    options: dict[str, Any] = {"dtype": str, "encoding": "utf-8-sig", "skipinitialspace": True, "index_col": False}
    options |= {"keep_default_na": False, "na_values": ["", "NA", "N/A", "nan", "NaN", "NAN", "null", "None"]}
    try:
        with path.open(encoding="utf-8-sig") as stream:
            first = stream.readline()
        options["sep"] = max(SEPARATORS, key=first.count)
        frame = pd.read_csv(path, **options)
        if len(frame.columns) and not np.isnan(pd.to_numeric(pd.Series(list(frame.columns)), errors="coerce")).any():
            frame = pd.read_csv(path, header=None, names=[f"p{i}" for i in range(1, len(frame.columns) + 1)], **options)
    except (pd.errors.ParserError, pd.errors.EmptyDataError, UnicodeDecodeError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise UserError(
            f"{path} is not a table: {reason}; expected a line of names, and a line of numbers for each run"
        ) from None
    frame.columns = [str(name).strip() for name in frame.columns]
    return frame


def _checked(frame: pd.DataFrame, origin: str, row: str) -> xr.DataArray:
    """Return the table as numbers; `origin` and `row` are the words for it and for its rows in messages."""
    if isinstance(frame.columns[0] if len(frame.columns) else "", str) and _is_index(frame):
        frame = frame.iloc[:, 1:]
    if not frame.size:
        raise UserError(f"{origin} has {len(frame)} rows and {len(frame.columns)} parameters; expected at least one of each")
    names = [str(name) for name in frame.columns]
    if twice := {name for name in names if names.count(name) > 1}:
        raise UserError(f"{origin} has two columns of the name {min(twice)!r}; give each parameter its own name")
    values = np.stack([_numbers(frame.iloc[:, i], name, origin, row) for i, name in enumerate(names)], axis=1)
    return xr.DataArray(values, dims=("sample", PARAMETER), coords={PARAMETER: np.array(names)})


def _is_index(frame: pd.DataFrame) -> bool:
    """Return whether the first column has no name and numbers the rows."""
    if not re.fullmatch(r"(Unnamed: 0)?", str(frame.columns[0])) or len(frame.columns) < 2:
        return False
    numbers = pd.to_numeric(frame.iloc[:, 0], errors="coerce").to_numpy(dtype=np.float64)
    return bool(np.isin(numbers[:1], (0, 1)).all() and (np.diff(numbers) == 1).all())


def _numbers(column: "pd.Series[Any]", name: str, origin: str, row: str) -> Floats:
    """Return a column as finite numbers."""
    missing = column.isna().to_numpy()
    numbers = pd.to_numeric(column, errors="coerce")
    if numbers.dtype.kind == "c":
        raise UserError(f"column {name!r} of {origin} has complex numbers; give real and imaginary part as two parameters")
    values: Floats = numbers.to_numpy(dtype=np.float64, na_value=np.nan)
    text = ~np.isfinite(values) & ~missing
    for bad, problem, advice in (
        (text, "is no finite number", f"write numbers, or name the columns to use: {_named_columns(origin)}"),
        (missing, "is missing", "complete it, or remove this run from the table and from the fields"),
    ):
        if bad.any():
            first = int(np.flatnonzero(bad)[0])
            value = "a value" if problem == "is missing" else f"{str(column.iloc[first])!r}"
            several = f" ({bad.sum()} such rows)" if bad.sum() > 1 else ""
            raise UserError(f"column {name!r} of {origin}: {value} in {row} {first + 1} {problem}{several}; {advice}")
    return values


def _named_columns(origin: str) -> str:
    return f"'{origin}[NAME,NAME]'" if is_table(origin) else "table[[name, name]]"
