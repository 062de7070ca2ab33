"""Real orthonormal modes of fields: cosines (DCT-II) along bounded axes, (cos + sin)(k·x) (Hartley) along periodic ones."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.fft as fft
from numpy.typing import NDArray

__all__ = ["Waves", "diagonal", "fields", "mirror", "modes", "squared_waves"]

Array = NDArray[np.float64]
Waves = Sequence[bool]  # which of the last axes are periodic


def modes(x: NDArray[Any], periodic: Waves) -> Array:
    """Bᵀ x: coefficients of fields, along the last axes."""
    waves, bounded = _axes(periodic)
    x = np.asarray(x, dtype=np.float64)
    return _hartley(np.asarray(fft.dctn(x, axes=bounded, norm="ortho")) if bounded else x, waves)


def fields(c: Array, periodic: Waves) -> Array:
    """B c: fields of coefficients, along the last axes."""
    waves, bounded = _axes(periodic)
    c = _hartley(c, waves)
    return np.asarray(fft.idctn(c, axes=bounded, norm="ortho")) if bounded else c


def squared_waves(grid: Sequence[int], periodic: Waves) -> Array:
    """|k|² of each mode in row-major order, k counted in half waves."""
    total = np.zeros(tuple(grid))
    for n, k, wave in zip(grid, np.indices(tuple(grid)), periodic, strict=True):
        total += np.square(2 * np.minimum(k, n - k) if wave else k)
    return total.ravel()


def mirror(x: NDArray[Any], periodic: Waves) -> NDArray[Any]:
    """x(−k) of (channel, *grid): of the mode with the same waves, moved."""
    axes = tuple(axis for axis, wave in enumerate(periodic, start=1) if wave)
    return np.roll(np.flip(x, axes), 1, axes) if axes else x


def diagonal(s: Array, periodic: Waves) -> Array:
    """Of B diag(s²) Bᵀ: B_k(x)² is 1/n for k = 0 and, over ±k, for waves; (1 + cos 2πk(i + ½)/n)/n for cosines."""
    x = np.square(s)
    for axis, (n, wave) in enumerate(zip(s.shape[1:], periodic, strict=True), start=1):
        mean, k = x.mean(axis=axis, keepdims=True), np.arange(n).reshape(-1, *(1,) * (s.ndim - axis - 1))
        turns = 0.0 if wave else fft.ifft(np.where(k > 0, np.exp(1j * np.pi * k / n), 0.0) * x, axis=axis).real
        x = np.broadcast_to(mean + turns, s.shape)
    return np.maximum(x, 0.0)


def _axes(periodic: Waves) -> tuple[list[int], list[int]]:
    """Periodic and bounded ones, counted from the end."""
    axes = [(axis - len(periodic), wave) for axis, wave in enumerate(periodic)]
    return [axis for axis, wave in axes if wave], [axis for axis, wave in axes if not wave]


def _hartley(x: Array, axes: list[int]) -> Array:
    """Orthonormal, and its own inverse."""
    if not axes:
        return x
    f = fft.fftn(x, axes=axes, norm="ortho")
    return np.asarray(f.real - f.imag)
