"""Labels and groups in one column."""

from __future__ import annotations

import numpy as np

from avgk_dask.bands.passes import SampleGroups, pack


def test_pack__keeps_groups_and_whether_labels_are_in_range():
    column = pack(np.array([2, -5, 0, 9]), np.array([0, 0, 1, 1]), 3)
    labels, groups = SampleGroups(3).split(column)
    assert (labels.tolist(), groups.tolist()) == ([2, -1, 0, 4], [0, 0, 1, 1])
