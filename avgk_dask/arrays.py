"""The kinds of arrays there are, by name; integers of Python or NumPy."""

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


def whole_number(value: object) -> int:
    """Return an integer of Python or NumPy as one of Python; -1, which no count is, of anything else.

    Examples
    --------
    >>> whole_number(np.int64(3)), whole_number(3.0), whole_number(True)
    (3, -1, -1)

    """
    return int(value) if isinstance(value, (int, np.integer)) and not isinstance(value, bool) else -1
