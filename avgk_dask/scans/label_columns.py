"""Labels and groups of samples in one column, as tasks are handed labels."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..arrays import Array, Ints

#: Values a label may have beside the classes: unlabelled, one too many, and further out of range.
_OTHERS = 3


def pack(labels: Array, groups: Ints, n_classes: int) -> Ints:
    """Return one number for each sample's label and group; labels out of range stay so.

    Examples
    --------
    >>> column = pack(np.array([2, -5, 0, 9]), np.array([0, 0, 1, 1]), 3)
    >>> tuple(part.tolist() for part in SampleGroups(3).split(column))
    ([2, -1, 0, 4], [0, 0, 1, 1])

    """
    wide = labels if labels.dtype.kind == "u" and labels.dtype.itemsize == 8 else labels.astype(np.int64)
    hard = np.minimum(wide, wide.dtype.type(n_classes + 1)).astype(np.int64)
    return np.asarray(groups * (n_classes + _OTHERS) + np.maximum(hard, -1) + 1, np.int64)


@dataclass(frozen=True)
class SampleGroups:
    """How a column tells the labels, and the groups where samples have some."""

    n_classes: int
    are_packed: bool = True

    def split(self, column: Array | None) -> tuple[Array | None, Ints | None]:
        """Return labels and groups; no groups where the column has labels alone."""
        if not self.are_packed or column is None:
            return column, None
        groups, labels = np.divmod(column.astype(np.int64), self.n_classes + _OTHERS)
        return labels - 1, groups
