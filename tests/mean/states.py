"""Functions that the tests of means share."""

import json

import numpy as np
from safetensors.numpy import load, save

from pdno.work.state import State, flatten, unflatten


def from_file(state: State) -> State:
    """Return a state as it is read back from a file: arrays by their bytes, settings by their JSON text."""
    arrays, metadata = flatten(state)
    return unflatten(
        load(save({name: np.ascontiguousarray(x) for name, x in arrays.items()})), json.loads(json.dumps(metadata))
    )


def same_state(x: State, y: State) -> bool:
    """Return whether settings and arrays are equal, bitwise."""
    (ours, settings), (theirs, others) = flatten(x), flatten(y)
    equal = all(
        np.array_equal(ours[name], theirs[name]) and ours[name].dtype == theirs[name].dtype for name in ours if name in theirs
    )
    return settings == others and ours.keys() == theirs.keys() and equal
