"""The user's arrays, checked and arranged as pairs."""

from typing import Any

import numpy as np
import xarray as xr

from ..errors import UserError
from .pairs import Pairs, to_numpy
from .parameters import PARAMETER, is_table, read_parameters
from .selection import CHANNEL, SAMPLE, Selection

__all__ = ["arranged", "check_alike", "check_finite", "check_real"]

ROWS = 256  # samples that are checked at a time, so that arrays mapped from files are never read as a whole

Dims = tuple[str, ...] | None


def arranged(a: Any, u: Any, scalars: Any, mask: Any, group: Any, dims: str | None) -> tuple[Pairs, bool]:
    """Check the user's arrays and arrange them as pairs; arguments as in `Surrogate.fit`.

    Returns:
        The pairs, and whether the user's u has a channel axis.

    Raises:
        UserError: if arrays are not real, ambiguous, of different lengths, or NaN outside the mask.
    """
    if u is None:
        raise UserError("there are no outputs to train on; call fit(a, u), or fit([(a1, u1), (a2, u2)]) for several grids")
    if scalars is None and np.ndim(a) == 2 and np.ndim(u) > 3 and not _is_field(a, dims):
        a, scalars = None, a
    if is_table(scalars):
        scalars = read_parameters(scalars)
    for name, values in (("a", a), ("u", u), ("scalars", scalars)):
        check_real(name, values)
    if isinstance(mask, str) and mask != "nan":
        raise UserError(f"mask = {mask!r}: expected an array, or 'nan', which marks NaN in u as missing")
    _check_ambiguous(a, u, scalars, dims)
    names = Selection("a", "u", dims) if dims else None
    a_dims, u_dims = (None, None) if names is None else (names.dims_of("a"), names.dims_of("u"))
    if a is None:
        a, a_dims = _zero_input(u, u_dims), None
    if scalars is not None and len(scalars) != (count := _samples(u, u_dims)):
        raise UserError(f"numbers of samples differ: {count} of u, {len(scalars)} of scalars")
    pairs = Pairs.of(a, u, dims=(a_dims, u_dims), mask=mask, scalars=scalars, group=group)
    check_finite(pairs)
    return pairs, np.ndim(u) == pairs.u.ndim


def check_real(name: str, values: Any) -> None:
    """Refuse an array that is not of real numbers, before NumPy drops imaginary parts or parses texts.

    Raises:
        UserError: with the name of the array.
    """
    if values is not None and (plain := to_numpy(values)).dtype.kind not in "biuf":
        raise UserError(f"{name} has type {plain.dtype}; expected real numbers")


def check_finite(pairs: Pairs) -> None:
    """Refuse NaN and infinite values outside the mask.

    Raises:
        UserError: with the name of the array and the first such sample.
    """
    for name, values, mask in (("a", pairs.a, None), ("u", pairs.u, pairs.mask), ("scalars", pairs.scalars, None)):
        if values is None:
            continue
        for first in range(0, len(values), ROWS):
            bad = ~np.isfinite(values[first : first + ROWS])
            bad = bad if mask is None else bad & mask[first : first + ROWS]
            if bad.any():
                row = first + int(np.argwhere(bad)[0][0])
                hint = '; missing outputs can be masked with mask="nan"' if name == "u" else ""
                raise UserError(f"{name} has NaN or infinite values, first in sample {row}; correct or remove them{hint}")


def check_alike(pairs: Pairs, validation: Pairs) -> None:
    """Raise UserError unless validation and training pairs have the same shapes."""
    got, expected = (
        f"a {p.a.shape[1:]}, u {p.u.shape[1:]}, {0 if p.scalars is None else p.scalars.shape[1]} scalars"
        for p in (validation, pairs)
    )
    if got != expected:
        raise UserError(
            f"validation pairs have {got}, expected {expected} as training pairs; pass the same shapes, or a fraction"
        )


def _check_ambiguous(a: Any, u: Any, scalars: Any, dims: str | None) -> None:
    """Refuse a table of inputs (sample, number) that may be a field on another grid or scalar parameters."""
    table = scalars is None and np.ndim(a) == 2 and not isinstance(a, xr.DataArray)
    if not dims and table and np.shape(a)[-1] != np.shape(u)[-1]:
        raise UserError(
            f"a has shape {np.shape(a)} and u {np.shape(u)}: a may be a field on another grid (then give "
            'dims="sample,x:sample,x") or a table of parameters (then give it as scalars=)'
        )


def _is_field(a: Any, dims: str | None) -> bool:
    """Return whether a table (sample, number) has a name for its second axis, of a grid: it is not a table of scalars then."""
    if isinstance(a, xr.DataArray):
        return not set(map(str, a.dims)) <= {SAMPLE, CHANNEL, PARAMETER}
    return dims is not None and ":" in dims


def _samples(values: Any, dims: Dims) -> int:
    """Return the number of samples of an array."""
    names = tuple(values.dims) if dims is None and isinstance(values, xr.DataArray) else dims
    return int(np.shape(values)[names.index(SAMPLE) if names and SAMPLE in names else 0])


def _zero_input(u: Any, dims: Dims) -> xr.DataArray:
    """Return an input of zeros on the grid of u, for outputs that depend on scalars alone."""
    pairs = Pairs.of(u, u, dims=(dims, dims))
    shape = pairs.u.shape
    return xr.DataArray(np.zeros((shape[0], 1, *shape[2:])), dims=(SAMPLE, CHANNEL, *pairs.xarray["u"].dims[2:]))
