r"""Eigenfunctions of the Laplacian, and fast transforms between their coefficients and values at grid nodes.

**Eigenfunctions of −d²/dx² on (0, 1)**, for `synthesize` and `analyze`:

| condition | e_j, orthonormal in L²(0, 1)                          | wavenumber ω_j, −e'' = ω² e |
|-----------|-------------------------------------------------------|-----------------------------|
| neumann   | 1, √2 cos πx, √2 cos 2πx, …                           | πj                          |
| dirichlet | √2 sin πx, √2 sin 2πx, …                              | π(j + 1)                    |
| periodic  | 1, √2 cos 2πx, √2 sin 2πx, √2 cos 4πx, √2 sin 4πx, …  | 2π⌈j/2⌉                     |

Nodes of an axis with n points: "vertex" i/(n−1), both ends included; "cell" (i+½)/n; "periodic" and "left" i/n.

A function may have more modes than n nodes can resolve. Its values are still exact: at the nodes each surplus mode
vanishes or equals ± a lower mode (aliasing), to whose coefficient it is added before the transform.

**Real orthonormal modes of arrays**, the columns of an orthogonal matrix B, for `modes` and `fields`: cosines (DCT-II) along
bounded axes, (cos + sin)(k·x) (Hartley) along periodic axes, in any number of dimensions; along an axis that numbers the nodes
of a mesh, the values themselves. `low_modes` has the lowest ones of an
axis, cosines and sines apart.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Literal

import numpy as np
import scipy.fft as fft
from numpy.typing import NDArray

from ._typing import Array, Floats
from .errors import UserError

__all__ = [
    "Condition",
    "Kind",
    "Waves",
    "analyze",
    "capacity",
    "diagonal",
    "fields",
    "fourier_values",
    "low_modes",
    "mirror",
    "modes",
    "squared_waves",
    "synthesize",
    "wavenumbers",
    "waves_of",
]

Condition = Literal["neumann", "dirichlet", "periodic"]
Kind = Literal["vertex", "cell", "periodic", "left", "node"]
Waves = Sequence[bool | None]  # for each of the last axes, whether it is periodic; None for nodes of a mesh, without modes

ROOT2 = np.sqrt(2.0)


def waves_of(kinds: Sequence[Kind]) -> tuple[bool | None, ...]:
    """Return whether each axis is periodic, None for an axis that numbers the nodes of a mesh.

    >>> waves_of(("cell", "periodic", "node"))
    (False, True, None)
    """
    return tuple(None if kind == "node" else kind == "periodic" for kind in kinds)


def wavenumbers(count: int, condition: Condition) -> Floats:
    """Return ω_j of the first `count` modes on an interval of length one: (count,)."""
    j = np.arange(count, dtype=np.float64)
    if condition == "periodic":
        return 2 * np.pi * ((j + 1) // 2)
    return np.pi * (j + 1) if condition == "dirichlet" else np.pi * j


def capacity(points: int, kind: Kind, condition: Condition) -> int:
    """Return the number of modes that are linearly independent at the nodes."""
    _check(kind, condition)
    if condition == "dirichlet":
        return {"cell": points, "vertex": points - 2, "left": points - 1, "periodic": points - 1}[kind]
    return points


def synthesize(c: Floats, points: int, kind: Kind, condition: Condition) -> Floats:
    """Return the values Σ_j c_j e_j(x_i) at the nodes.

    Args:
        c: coefficients, (…, modes), of any number of modes.

    Returns:
        (…, points).
    """
    _check(kind, condition)
    if condition == "periodic":
        return fourier_values(_fourier_series(c), points)
    cell = kind == "cell"
    intervals = points - 1 if kind == "vertex" else points
    w = _fold(c, intervals, condition, cell)
    w[..., 1:intervals] /= 2  # SciPy counts these modes twice, but the lowest and the highest once
    if condition == "neumann":
        v: Floats = fft.dct(w[..., :-1], type=3) if cell else fft.dct(w, type=1)
    elif cell:
        v = fft.dst(w[..., 1:], type=3)
    else:
        v = np.zeros_like(w)
        v[..., 1:-1] = fft.dst(w[..., 1:-1], type=1)
    return v[..., :points]


def analyze(v: Floats, kind: Kind, condition: Condition) -> Floats:
    """Return the coefficients of a function from its values at the nodes: the exact inverse of `synthesize`.

    Args:
        v: values, (…, points).

    Returns:
        (…, capacity(points, kind, condition)).
    """
    _check(kind, condition)
    if condition == "periodic":
        return _fourier_coefficients(v)
    if condition == "neumann":
        if kind not in ("cell", "vertex"):
            raise UserError(f"cosine coefficients do not exist on a {kind} grid; use a vertex or cell-centred one")
        w: Floats = fft.idct(v, type=3 if kind == "cell" else 1)
        w[..., 1:] *= ROOT2
        if kind == "vertex":
            w[..., -1] /= 2
    elif kind == "cell":
        w = fft.idst(v, type=3) * ROOT2
        w[..., -1] /= 2
    else:
        w = fft.idst(v[..., 1:-1] if kind == "vertex" else v[..., 1:], type=1) * ROOT2
    return w


def _check(kind: Kind, condition: Condition) -> None:
    """Raise UserError unless functions with this boundary condition exist on nodes of this kind."""
    if condition not in ("neumann", "dirichlet", "periodic"):
        raise UserError(f"boundary condition {condition!r} is unknown; choose neumann, dirichlet or periodic")
    if condition == "periodic" and kind in ("vertex", "cell"):
        raise UserError(f"a periodic field needs a periodic grid, not a {kind} one; use Grid.uniform(..., kind='periodic')")


def _pad(c: Array, size: int) -> Array:
    """Append zeros along the last axis: (…, n) → (…, size)."""
    padded = np.zeros((*c.shape[:-1], size), c.dtype)
    padded[..., : c.shape[-1]] = c
    return padded


def _wrap(w: Array, period: int, alternate: bool = False) -> Array:
    """Return Σ_m (±1)^m w[k + m·period] for k = 0 … period − 1: (…, n) → (…, period)."""
    periods = -(-w.shape[-1] // period)
    blocks = _pad(w, periods * period).reshape(*w.shape[:-1], periods, period)
    if alternate:
        blocks[..., 1::2, :] *= -1
    return np.asarray(blocks.sum(axis=-2))


def _fold(c: Floats, intervals: int, condition: Condition, cell: bool) -> Floats:
    """Return the amplitudes of cos πkx or sin πkx, k = 0 … intervals, that equal Σ_j c_j e_j at the nodes.

    As functions of k, cos πkx and sin πkx have the period 2·intervals at vertices and change sign over this period at cell
    centres. About the middle of the period, cos is even at vertices and odd at cell centres; sin is odd and even.
    """
    lowest, others = (c[..., :1], c[..., 1:]) if condition == "neumann" else (np.zeros_like(c[..., :1]), c)
    w = _wrap(np.concatenate([lowest, ROOT2 * others], axis=-1), 2 * intervals, alternate=cell)
    mirror = 1.0 if (condition == "neumann") != cell else -1.0
    w[..., 1:intervals] += mirror * w[..., :intervals:-1]
    return w[..., : intervals + 1]


def fourier_values(f: NDArray[np.complex128], points: int) -> Floats:
    """Return Re Σ_k f_k e^{2πikx} at the nodes i/points: (…, modes) → (…, points), for any number of modes."""
    return np.asarray(fft.ifft(_wrap(f, points), norm="forward").real)


def _fourier_series(c: Floats) -> NDArray[np.complex128]:
    """Return f with Re Σ_k f_k e^{2πikx} = Σ_j c_j e_j(x)."""
    pairs = _pad(c[..., 1:], 2 * (c.shape[-1] // 2))
    return np.concatenate([c[..., :1] + 0j, ROOT2 * (pairs[..., 0::2] - 1j * pairs[..., 1::2])], axis=-1)


def _fourier_coefficients(v: Floats) -> Floats:
    """Return c with Σ_j c_j e_j(i/points) = v_i, periodic modes: (…, points) → (…, points)."""
    points = v.shape[-1]
    f = fft.rfft(v, norm="forward")
    c = np.empty(v.shape)
    c[..., 0] = f[..., 0].real
    c[..., 1::2] = ROOT2 * f[..., 1:].real
    c[..., 2::2] = -ROOT2 * f[..., 1 : (points + 1) // 2].imag
    if points % 2 == 0:
        c[..., -1] /= 2  # the highest cosine is ±√2 on every node
    return c


def modes(x: Array, periodic: Waves) -> Floats:
    """Return Bᵀ x, the coefficients of fields, along the last axes: (…, *grid) → (…, *grid)."""
    waves, bounded = _split_axes(periodic)
    x = np.asarray(x, dtype=np.float64)
    return _hartley(np.asarray(fft.dctn(x, axes=bounded, norm="ortho")) if bounded else x, waves)


def fields(c: Floats, periodic: Waves) -> Floats:
    """Return B c, the fields with these coefficients, along the last axes: (…, *grid) → (…, *grid)."""
    waves, bounded = _split_axes(periodic)
    c = _hartley(c, waves)
    return np.asarray(fft.idctn(c, axes=bounded, norm="ortho")) if bounded else c


def squared_waves(grid: Sequence[int], periodic: Waves) -> Floats:
    """Return |k|² of each mode in row-major order, with k in half wavelengths per axis: (nodes,)."""
    total = np.zeros(tuple(grid))
    for n, k, wave in zip(grid, np.indices(tuple(grid)), periodic, strict=True):
        if wave is not None:
            total += np.square(2 * np.minimum(k, n - k) if wave else k)
    return total.ravel()


def mirror(x: Array, periodic: Waves) -> Array:
    """Return x(−k) for x(k), (channel, *grid): along periodic axes the modes k and −k have the same wavelength."""
    axes = tuple(axis for axis, wave in enumerate(periodic, start=1) if wave)
    return np.roll(np.flip(x, axes), 1, axes) if axes else x


def diagonal(s: Floats, periodic: Waves) -> Floats:
    """Return the diagonal of B diag(s²) Bᵀ for s = s(−k): (channel, *grid) → (channel, *grid).

    Along a periodic axis the average of B_k(x)² over ±k is 1/n. Along a bounded axis B_k(x)² is 1/n for k = 0 and
    (1 + cos 2πk(i + ½)/n)/n otherwise.
    """
    x = np.square(s)
    for axis, (n, wave) in enumerate(zip(s.shape[1:], periodic, strict=True), start=1):
        if wave is None:
            continue
        mean, k = x.mean(axis=axis, keepdims=True), np.arange(n).reshape(-1, *(1,) * (s.ndim - axis - 1))
        cosines = 0.0 if wave else fft.ifft(np.where(k > 0, np.exp(1j * np.pi * k / n), 0.0) * x, axis=axis).real
        x = np.broadcast_to(mean + cosines, s.shape)
    return np.maximum(x, 0.0)


def _split_axes(periodic: Waves) -> tuple[list[int], list[int]]:
    """Return the periodic and the bounded axes, counted from the end."""
    axes = [(axis - len(periodic), wave) for axis, wave in enumerate(periodic)]
    return [axis for axis, wave in axes if wave], [axis for axis, wave in axes if wave is False]


def _hartley(x: Floats, axes: list[int]) -> Floats:
    """Apply the orthonormal Hartley transform, which is its own inverse."""
    if not axes:
        return x
    f = fft.fftn(x, axes=axes, norm="ortho")
    return np.asarray(f.real - f.imag)


@lru_cache(maxsize=64)
def low_modes(points: int, count: int, periodic: bool) -> Floats:
    """Return the lowest modes of an axis, orthonormal for averages over the nodes: cosines, Fourier modes if it is periodic.

    Returns:
        (mode, node), with `count` modes, or as many as there are nodes.

    >>> low_modes(2, 5, False).round(3).tolist()
    [[1.0, 1.0], [1.0, -1.0]]
    """
    count, i = min(count, points), np.arange(points)
    if not periodic:
        waves = np.cos(np.pi * np.arange(count)[:, None] * (i + 0.5) / points)
        return np.asarray(waves * np.where(np.arange(count) > 0, ROOT2, 1.0)[:, None])
    rows = [np.ones(points)]
    for k in range(1, count // 2 + 1):
        size = 1.0 if 2 * k == points else ROOT2
        rows += [size * np.cos(2 * np.pi * k * i / points), size * np.sin(2 * np.pi * k * i / points)]
    return np.stack(rows[:count])
