"""The pilot's sample holds numbers only."""

from __future__ import annotations

import numpy as np
import pytest

from avgk_dask.engine.pilot import plan_from_pilot, sample_block
from avgk_dask.engine.plan import ScanShape
from avgk_dask.kernels.keys import encode, key_range
from avgk_dask.testing import strategies


@pytest.mark.parametrize("name", ["float16", "bfloat16", "float32", "float64"])
def test_pilot_sample__leaves_nan_out_for_every_float(name):
    dtype = strategies.as_dtype(name)
    block = np.array([[0.5, np.nan, 0.25], [np.nan] * 3, [-1.0, np.nan, np.inf]]).astype(dtype)
    sample = sample_block(block, 0, 1.0)
    assert sorted(sample.keys.tolist()) == encode(np.array([-1, 0.25, 0.5, np.inf]).astype(dtype)).tolist()
    low, high = (int(key) for key in encode(np.array([-1, np.inf]).astype(dtype)))
    assert (sample.lowest, sample.highest) == (low, high)
    shape = ScanShape(30, 3, dtype, 0, 10, 1000, 1000, 64)
    plan = plan_from_pilot(shape, sample, [(90, 90)])  # the last of all: the lowest key there can be
    assert plan.floor == key_range(dtype)[0]
    assert sample_block(np.full((2, 2), np.nan).astype(dtype), 0, 1.0).keys.size == 0
