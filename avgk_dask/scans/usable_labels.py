"""Labels as a band's tally takes them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..arrays import Array, Floats, Ints
from ..masks import SoftFaults
from ..states.checks import NOWHERE
from .label_columns import SampleGroups

#: No label: larger than any.
_NO_LABEL = 2**64 - 1
_NO_FAULTS = SoftFaults(np.zeros(0, np.int64), np.zeros(0, np.int64))


@dataclass(frozen=True)
class UsableLabels:
    """The hard or the soft labels of a band, with the bad ones blanked, the rows of those, and the range of hard ones.

    ``least`` is the least label that is not negative, ``most`` the largest bad one (-1 where there is none).
    """

    hard: Ints | None = None
    soft: Floats | None = None
    bad: Ints | tuple[int, ...] = ()
    least: int = _NO_LABEL
    most: int = -1
    #: What is wrong with soft labels.
    soft_faults: SoftFaults = _NO_FAULTS
    #: The groups of the rows, where they came with the labels.
    groups: Array | None = None

    @classmethod
    def of(cls, labels: Array | None, n_classes: int) -> UsableLabels:
        """Return what is usable of labels as they came."""
        if labels is None:
            return cls()
        if labels.ndim == 2:
            soft = labels.astype(np.float64)
            faults = SoftFaults.find(soft)
            soft[faults.outside] = 0
            return cls(soft=soft, bad=faults.outside, soft_faults=faults)
        bad = np.flatnonzero(labels >= n_classes)
        hard = labels.astype(np.int64)
        least = int(hard.view(np.uint64).min(initial=_NO_LABEL))  # negative ones are large there
        most = int(labels[bad].max(initial=0)) if bad.size else -1
        hard[bad] = -1
        hard[hard < 0] = -1  # which stands for any negative one
        return cls(hard, None, bad, least, most)

    @classmethod
    def of_column(cls, column: Array | None, n_classes: int, *, are_packed: bool) -> UsableLabels:
        """Return what is usable of labels, and the groups where both are in one column."""
        labels, groups = SampleGroups(n_classes, are_packed).split(column)
        return replace(cls.of(labels, n_classes), groups=None if groups is None else groups.astype(np.int32))

    @property
    def given(self) -> Array | None:
        """The labels, of whichever kind."""
        return self.hard if self.soft is None else self.soft

    def strata(self, kind: str, n_rows: int) -> Array:
        """Return what each row is counted by: its class, 0 for none and each one higher; its group; or 0 for all."""
        if kind == "groups":
            assert self.groups is not None
            return self.groups
        if kind == "classes" and self.hard is not None:
            return (self.hard + 1).astype(np.int32)
        return np.zeros(n_rows, np.int8)

    def faults(self, band: int) -> dict[str, Any]:
        """Return what a tally keeps of bad labels, by the names of its fields."""
        first = (band, int(self.bad[0]), 0) if len(self.bad) else NOWHERE
        off = self.soft_faults.off
        return {
            "n_bad_labels": len(self.bad), "first_bad_label": first, "least_label": self.least, "most_label": self.most,
            "n_bad_sums": off.size, "n_multi_hot": self.soft_faults.n_multi_hot,
            "first_bad_sum": (band, int(off[0]), self.soft_faults.first_sum) if off.size else NOWHERE,
        }  # fmt: skip
