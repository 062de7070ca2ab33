"""Types of arrays."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Array", "Floats", "Ints", "Mask"]

Array = NDArray[Any]
Floats = NDArray[np.float64]
Ints = NDArray[np.integer[Any]]
Mask = NDArray[np.bool_]
