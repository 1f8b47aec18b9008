"""The kinds of arrays there are, by name."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

#: Of any dtype: scores as they come, and what is made of them.
Array = NDArray[Any]
Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Dtype = np.dtype[Any]
