r"""Eigenfunctions of −d²/dx² on (0, 1), and the fast transforms between their coefficients and values at grid nodes.

| condition | e_j, orthonormal in L²(0, 1)                          | wavenumber ω_j, −e'' = ω² e |
|-----------|-------------------------------------------------------|-----------------------------|
| neumann   | 1, √2 cos πx, √2 cos 2πx, …                           | πj                          |
| dirichlet | √2 sin πx, √2 sin 2πx, …                              | π(j + 1)                    |
| periodic  | 1, √2 cos 2πx, √2 sin 2πx, √2 cos 4πx, √2 sin 4πx, …  | 2π⌈j/2⌉                     |

Nodes of an axis with n points: "vertex" i/(n−1), both ends included; "cell" (i+½)/n; "periodic" and "left" i/n.

A function may have more modes than n nodes can tell apart. Its values are still exact: each surplus mode looks, on the
nodes, like a lower one (aliasing), and is folded onto it with its sign before the transform.
"""

from typing import Any, Literal

import numpy as np
import scipy.fft as fft
from numpy.typing import NDArray

from .errors import UserError

__all__ = ["Condition", "Kind", "analyze", "capacity", "fourier_values", "synthesize", "wavenumbers"]

Condition = Literal["neumann", "dirichlet", "periodic"]
Kind = Literal["vertex", "cell", "periodic", "left"]
Array = NDArray[np.float64]

ROOT2 = np.sqrt(2.0)


def wavenumbers(count: int, condition: Condition) -> Array:
    """ω_j of the first `count` modes, on an interval of length one."""
    j = np.arange(count, dtype=np.float64)
    if condition == "periodic":
        return 2 * np.pi * ((j + 1) // 2)
    return np.pi * (j + 1) if condition == "dirichlet" else np.pi * j


def capacity(points: int, kind: Kind, condition: Condition) -> int:
    """How many modes the nodes can tell apart."""
    _check(kind, condition)
    if condition == "dirichlet":
        return {"cell": points, "vertex": points - 2, "left": points - 1, "periodic": points - 1}[kind]
    return points


def synthesize(c: Array, points: int, kind: Kind, condition: Condition) -> Array:
    """Values Σ_j c_j e_j(x_i) at the nodes: (…, modes) → (…, points), for any number of modes."""
    _check(kind, condition)
    if condition == "periodic":
        return fourier_values(_fourier_series(c), points)
    cell = kind == "cell"
    intervals = points - 1 if kind == "vertex" else points
    w = _fold(c, intervals, condition, cell)
    w[..., 1:intervals] /= 2  # SciPy counts these modes twice, the lowest and the highest once
    if condition == "neumann":
        v: Array = fft.dct(w[..., :-1], type=3) if cell else fft.dct(w, type=1)
    elif cell:
        v = fft.dst(w[..., 1:], type=3)
    else:
        v = np.zeros_like(w)
        v[..., 1:-1] = fft.dst(w[..., 1:-1], type=1)
    return v[..., :points]


def analyze(v: Array, kind: Kind, condition: Condition) -> Array:
    """Coefficients of the `capacity` modes from values at the nodes: the exact inverse of `synthesize`."""
    _check(kind, condition)
    if condition == "periodic":
        return _fourier_coefficients(v)
    if condition == "neumann":
        if kind not in ("cell", "vertex"):
            raise UserError(f"cosine coefficients were asked for on a {kind} grid; use a vertex or cell-centred one")
        w: Array = fft.idct(v, type=3 if kind == "cell" else 1)
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
    if condition not in ("neumann", "dirichlet", "periodic"):
        raise UserError(f"boundary condition {condition!r} is unknown; choose neumann, dirichlet or periodic")
    if condition == "periodic" and kind in ("vertex", "cell"):
        raise UserError(f"a periodic field was asked for on a {kind} grid; use Grid.uniform(..., kind='periodic')")


def _pad(c: NDArray[Any], size: int) -> NDArray[Any]:
    padded = np.zeros((*c.shape[:-1], size), c.dtype)
    padded[..., : c.shape[-1]] = c
    return padded


def _wrap(w: NDArray[Any], period: int, alternate: bool = False) -> NDArray[Any]:
    """Σ_m (±1)^m w[k + m·period], k = 0 … period − 1, along the last axis."""
    turns = -(-w.shape[-1] // period)
    blocks = _pad(w, turns * period).reshape(*w.shape[:-1], turns, period)
    if alternate:
        blocks[..., 1::2, :] *= -1
    return np.asarray(blocks.sum(axis=-2))


def _fold(c: Array, intervals: int, condition: Condition, cell: bool) -> Array:
    """Amplitudes of cos or sin πkx, k = 0 … intervals, that look on the nodes like Σ_j c_j e_j.

    On vertices cos and sin of πkx have period 2·intervals in k, on cell centres they change sign over it; seen from the
    middle of the period, cos is even on vertices and odd on cell centres, and sin the other way round.
    """
    lowest, others = (c[..., :1], c[..., 1:]) if condition == "neumann" else (np.zeros_like(c[..., :1]), c)
    w = _wrap(np.concatenate([lowest, ROOT2 * others], axis=-1), 2 * intervals, alternate=cell)
    mirror = 1.0 if (condition == "neumann") != cell else -1.0
    w[..., 1:intervals] += mirror * w[..., :intervals:-1]
    return w[..., : intervals + 1]


def fourier_values(f: NDArray[np.complex128], points: int) -> Array:
    """Re Σ_k f_k e^{2πikx} on the nodes i/points: (…, modes) → (…, points), for any number of modes."""
    return np.asarray(fft.ifft(_wrap(f, points), norm="forward").real)


def _fourier_series(c: Array) -> NDArray[np.complex128]:
    """f with Re Σ_k f_k e^{2πikx} = Σ_j c_j e_j(x)."""
    pairs = _pad(c[..., 1:], 2 * (c.shape[-1] // 2))
    return np.concatenate([c[..., :1] + 0j, ROOT2 * (pairs[..., 0::2] - 1j * pairs[..., 1::2])], axis=-1)


def _fourier_coefficients(v: Array) -> Array:
    points = v.shape[-1]
    f = fft.rfft(v, norm="forward")
    c = np.empty(v.shape)
    c[..., 0] = f[..., 0].real
    c[..., 1::2] = ROOT2 * f[..., 1:].real
    c[..., 2::2] = -ROOT2 * f[..., 1 : (points + 1) // 2].imag
    if points % 2 == 0:
        c[..., -1] /= 2  # the highest cosine is ±√2 on every node
    return c
