"""Losses of logits: against mpmath and finite differences, and the plain twins, bit for bit."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from avgk_dask.kernels.compiled import exponentials as compiled
from avgk_dask.kernels.numpy import exponentials as plain

SCALES = np.array([1e-3, 0.3, 1.0, 7.5, 1e3])


DIRECT = (-1, -1)


def losses_of(module, scores, labels, scales=SCALES, parents=None):
    out = np.full((3, scales.size, len(scores)), 9.0)
    parents = np.array([DIRECT] * scales.size if parents is None else parents)
    return out, module.scaled_losses(np.ascontiguousarray(scores), np.asarray(labels), scales, parents, *out)


def true_losses(row, label, scale):
    """Return -log p and its first two derivatives by the scale, in 300 bits."""
    with mpmath.workprec(300):
        z = [mpmath.mpf(float(value)) for value in row]
        terms = [mpmath.exp(value * scale - max(z) * scale) for value in z]
        total = mpmath.fsum(terms)
        mean = mpmath.fsum(t * value for t, value in zip(terms, z, strict=True)) / total
        spread = mpmath.fsum(t * (value - mean) ** 2 for t, value in zip(terms, z, strict=True)) / total
        return float(mpmath.log(total) + (max(z) - z[label]) * scale), float(mean - z[label]), float(spread)


@pytest.mark.sample(1)
@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("n_classes", [1, 2, 63, 64, 65, 200])
def test_scaled_losses__are_the_true_ones(dtype, n_classes):
    scores = (np.random.default_rng(n_classes).standard_normal((4, n_classes)) * 6).astype(dtype)
    labels = np.arange(4) % n_classes
    actual, refused = losses_of(compiled, scores, labels)
    assert refused == -1
    for i, row in enumerate(scores):
        for j, scale in enumerate(SCALES.tolist()):
            expected = true_losses(row, labels[i], scale)
            np.testing.assert_allclose(actual[:, j, i], expected, rtol=1e-12, atol=1e-13)


def test_scaled_losses__are_exact_where_probabilities_are_no_floats():
    actual, _ = losses_of(compiled, np.array([[0.0, -5000.0, -np.inf]]), [1], np.array([1.0]))
    assert actual[:, 0, 0].tolist() == [5000.0, 5000.0, 0.0]
    actual, _ = losses_of(compiled, np.array([[0.0, -5000.0, -np.inf]]), [2], np.array([1.0]))
    assert actual[0, 0, 0] == np.inf


def test_scaled_losses__of_sums_of_scales_are_nearly_those_of_their_own():
    scores, labels = np.random.default_rng(1).standard_normal((50, 90)) * 5, np.arange(50)
    scales, parents = np.array([0.25, 0.06, 0.5, 0.31, 1.0]), [DIRECT, DIRECT, (0, 0), (0, 1), (2, 2)]
    actual, own = (
        losses_of(compiled, scores, labels, scales, parents)[0],
        losses_of(compiled, scores, labels, scales)[0],
    )
    np.testing.assert_allclose(actual, own, rtol=1e-12, atol=1e-13)
    twin = losses_of(plain, scores, labels, scales, parents)[0]
    assert actual.tobytes() == twin.tobytes()
    assert (actual[:, 0] == own[:, 0]).all()


@given(
    scores=hnp.arrays(
        st.sampled_from([np.float32, np.float64]),
        hnp.array_shapes(min_dims=2, max_dims=2, max_side=70),
        elements=st.floats(-1e4, 1e4, width=32) | st.sampled_from([-np.inf, np.inf, np.nan, 0.0]),
    ),
    data=st.data(),
)
def test_scaled_losses__equal_their_twin(scores, data):
    labels = np.array(
        data.draw(st.lists(st.integers(-1, scores.shape[1] - 1), min_size=len(scores), max_size=len(scores)))
    )
    left, right = losses_of(compiled, scores, labels), losses_of(plain, scores, labels)
    assert left[1] == right[1]
    assert left[0].tobytes() == right[0].tobytes()


@settings(max_examples=settings().max_examples // 3)
@given(
    values=hnp.arrays(
        np.float64,
        hnp.array_shapes(min_dims=2, max_dims=2, max_side=150),
        elements=st.floats(0, 1e300) | st.just(np.inf),
    )
)
def test_row_sums__equal_their_twin_and_the_sum(values):
    actual = [np.empty(len(values)) for _ in range(2)]
    compiled.row_sums(values, actual[0])
    plain.row_sums(values, actual[1])
    assert actual[0].tobytes() == actual[1].tobytes()
    np.testing.assert_allclose(actual[0], values.sum(1), rtol=1e-13)
