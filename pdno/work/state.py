"""The saved state of a model or of a part of it: a tree of settings and arrays.

    State(settings, arrays, parts)     plain JSON settings, NumPy arrays, and the states of its own parts

A tree is stored in one flat file. The names of its arrays are dotted paths, ``mean.kernel.weights`` for the array "weights" of
the part "kernel" of the part "mean"; settings keep the shape of the tree. Names of arrays may contain dots (weights of networks
do), names of parts may not: an array belongs to a part exactly if its name begins with that part's name and a dot.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from .._typing import Array
from ..errors import UserError

__all__ = ["State", "flatten", "unflatten"]


@dataclass(frozen=True, eq=False)
class State:
    """The saved state of a part of a model.

    Args:
        settings: plain JSON types: dicts with strings as keys, lists, strings, numbers, booleans and None.
        arrays: by name.
        parts: the states of its own parts, by name.
    """

    settings: dict[str, Any]
    arrays: dict[str, Array] = field(default_factory=dict)
    parts: dict[str, "State"] = field(default_factory=dict)


def flatten(state: State) -> tuple[dict[str, Array], dict[str, Any]]:
    """Return the arrays of a tree by dotted names, and its settings as nested JSON metadata.

    Raises:
        UserError: if a part's name contains a dot, or if an array's name begins like the path of a part.

    >>> import numpy as np
    >>> arrays, metadata = flatten(State({"name": "sum"}, parts={"linear": State({}, {"map": np.zeros((2, 3))})}))
    >>> {name: values.shape for name, values in arrays.items()}
    {'linear.map': (2, 3)}
    >>> metadata
    {'settings': {'name': 'sum'}, 'parts': {'linear': {'settings': {}, 'parts': {}}}}
    """
    for name in state.parts:
        if "." in name:
            raise UserError(f"the part {name!r} of a model has a dot in its name, which separates parts in files; rename it")
    for name in state.arrays:
        head, dot, _ = name.partition(".")
        if dot and head in state.parts:
            raise UserError(f"the array {name!r} has the name of an array of the part {head!r}; rename one of them")
    arrays, parts = dict(state.arrays), {}
    for name, part in state.parts.items():
        below, parts[name] = flatten(part)
        arrays |= {f"{name}.{key}": values for key, values in below.items()}
    return arrays, {"settings": state.settings, "parts": parts}


def unflatten(arrays: Mapping[str, Array], metadata: Mapping[str, Any]) -> State:
    """Return the tree from which `flatten` made these arrays and metadata.

    Raises:
        KeyError, TypeError, AttributeError: if the metadata are not those of a tree.
    """
    own: dict[str, Array] = {}
    below: dict[str, dict[str, Array]] = {name: {} for name in metadata["parts"]}
    for name, values in arrays.items():
        head, dot, rest = name.partition(".")
        if dot and head in below:
            below[head][rest] = values
        else:
            own[name] = values
    parts = {name: unflatten(below[name], part) for name, part in metadata["parts"].items()}
    return State(dict(metadata["settings"]), own, parts)
