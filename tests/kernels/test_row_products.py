"""The product of matrices in a fixed order: its twin, bit for bit, and the same whatever the rows."""

from __future__ import annotations

import numpy as np
import pytest

from avgk_dask.kernels.compiled import exponentials as compiled
from avgk_dask.kernels.numpy import exponentials as plain


@pytest.mark.sample(2)
@pytest.mark.parametrize("n_rows, n_classes", [(1, 1), (3, 2), (17, 5), (33, 130), (16, 257)])
def test_mix_rows__equals_its_twin_and_the_product(n_rows, n_classes):
    rng = np.random.default_rng(n_rows)
    rows, weights, bias = (rng.standard_normal(shape) for shape in ((n_rows, n_classes), (n_classes,) * 2, n_classes))
    actual = [np.empty(rows.shape) for _ in range(2)]
    compiled.mix_rows(rows, weights, bias, actual[0])
    plain.mix_rows(rows, weights, bias, actual[1])
    assert actual[0].tobytes() == actual[1].tobytes()
    np.testing.assert_allclose(actual[0], rows @ weights + bias, rtol=1e-10, atol=1e-12)
    alone = np.empty((1, n_classes))
    compiled.mix_rows(rows[-1:].copy(), weights, bias, alone)
    assert alone.tobytes() == actual[0][-1:].tobytes()
