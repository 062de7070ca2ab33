"""Channels of different units: parts of pairs and ensembles by channel, and all channels in standard units.

    unit_c = std of u_c over test inputs and points;  its size, if outputs are constant;  1, if there is a single channel

A channel that varies by 10⁻³ beside one of 300 counts as much as that. Channels in which all members are equal to all
observations, such as constant ones, have nothing to judge and are left out of what is common to all channels.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from .._typing import Array, Floats, Mask
from ..data.dataset import Dataset
from ..data.pairs import Pairs
from .ensemble import ROUNDING, EnsembleSummary, channel_rms

__all__ = ["channel_names", "channel_units", "in_units", "live_channels"]

DIM = "u_channel"


def channel_names(pairs: Pairs) -> tuple[str, ...]:
    """Return names of the channels of u: those of the data, else "channel 1", "channel 2", …"""
    count = pairs.u.shape[1]
    if DIM in pairs.xarray.coords:
        return tuple(map(str, pairs.xarray.coords[DIM].values))
    return tuple(f"channel {i}" for i in range(1, count + 1))


def channel_units(values: Array, mask: Mask | None) -> Floats:
    """Return the standard deviation of each channel of outputs (sample, channel, *grid), (channel,); 1 for a single channel."""
    if values.shape[1] == 1:
        return np.ones(1)
    axes = (0, *range(2, values.ndim))
    observed = np.broadcast_to(True if mask is None else mask, values.shape)
    filled = np.where(observed, values, 0.0)
    mean = filled.sum(axis=axes, keepdims=True) / np.maximum(observed.sum(axis=axes, keepdims=True), 1)
    std, size = channel_rms(filled - mean, mask), channel_rms(filled, mask)
    return np.where(std > ROUNDING * size, std, np.where(size > 0, size, 1.0))


def live_channels(e: EnsembleSummary) -> list[int]:
    """Return the channels that have something to judge; all of them if none has."""
    live = np.flatnonzero(e.judged.any(axis=(0, *range(2, e.pit.ndim))))
    return live.tolist() or list(range(e.pit.shape[1]))


def in_units(
    e: EnsembleSummary, data: Dataset, channels: Sequence[int], units: Floats
) -> tuple[EnsembleSummary, Pairs, Dataset]:
    """Return ensembles, test pairs and data set of some channels, divided by their units (of the selected channels).

    What is known of a whole output only, as its equation, is dropped, and the noise, if units are not 1.
    """
    if e.pit.shape[1] == 1:
        return e, data.test, data
    kept = ("name", "noise") if (units == 1).all() else ("name",)
    provenance = {key: data.provenance[key] for key in kept if key in data.provenance}
    train, test = (_scaled(pairs, channels, units) for pairs in (data.train, data.test))
    return e.in_units(channels, units), test, replace(data, train=train, test=test, provenance=provenance, validation=None)


def _scaled(pairs: Pairs, channels: Sequence[int], units: Floats) -> Pairs:
    """Return pairs with some channels of u, divided by units."""
    some = pairs.xarray.isel({DIM: list(channels)})
    scaled = {
        name: (some[name].dims, some[name].values / units.reshape(1, -1, *(1,) * (some[name].ndim - 2)))
        for name in ("u", "u_eta")
        if name in some
    }
    return Pairs(some.assign(scaled))
