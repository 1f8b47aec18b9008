"""Exponentials and logarithms: against mpmath, SciPy, and their plain twins, bit for bit."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import special

from avgk_dask.kernels import LANES
from avgk_dask.kernels.compiled import exponentials as compiled
from avgk_dask.kernels.numpy import exponentials as plain

TEMPERATURES = (1.0, 0.3, 1.7, 1e-3, 1e3)
HARD = [
    [0.0, 0.0], [-1e-300, 1e-300, 0.0], [700.0, 0.0, -700.0], [0.0, -103.9, -103.97, -104.0], [0.0, -745.1, -745.2, -708.5],
    [1e30, 1.0000001e30, -1e30], [88.7, 88.8, -88.7], [0.0, -np.inf, 1.0], [5.0], [1e-3 * c for c in range(257)],
    [-40.0 * c for c in range(30)], [(-1.0) ** c * c * 7 for c in range(99)], [3.0e38, -3.0e38],
]  # fmt: skip


def softmax_of(module, scores, temperature, dtype=None):
    """Return the softmax of rows with the kernels of a module in a dtype, and the row that was refused."""
    rows = np.ascontiguousarray(np.atleast_2d(scores))
    out, width = np.zeros(rows.shape, dtype or rows.dtype), -(-rows.shape[1] // LANES) * LANES
    if out.dtype == np.float32:
        return out, module.softmax_narrow(rows, temperature, out, np.empty(width))
    return out, module.softmax_wide(rows, temperature, out, np.empty((2, rows.shape[1])))


def softmax_in_parts(module, rows, temperature):
    """Return the same in float32, a few classes at a time."""
    out, norms = np.zeros(rows.shape, "f4"), np.zeros((len(rows), 2))
    stop = module.softmax_norms(rows, temperature, norms, np.empty(-(-rows.shape[1] // LANES) * LANES))
    good = len(rows) if stop < 0 else stop
    for first in range(0, rows.shape[1], 3):
        part = np.ascontiguousarray(rows[:good, first : first + 3])
        actual = np.empty(part.shape, "f4")
        module.softmax_part(part, temperature, norms[:good], actual)
        out[:good, first : first + 3] = actual
    return out, stop


def true_softmax(row, temperature):
    """Return the softmax of a row in 300 bits."""
    with mpmath.workprec(300):
        scaled = [mpmath.mpf(float(z)) / mpmath.mpf(temperature) for z in row]
        terms = [mpmath.exp(z - max(scaled)) for z in scaled]
        return [term / mpmath.fsum(terms) for term in terms]


def units_off(got, true):
    """Return how many units in its last place a float is from the true value."""
    with mpmath.workprec(300):
        nearest = abs(got.dtype.type(float(true)))
        unit = mpmath.mpf(float(np.spacing(max(nearest, np.finfo(got.dtype).smallest_subnormal))))
        return float(abs(mpmath.mpf(float(got)) - true) / unit)


@pytest.mark.sample(1)
@pytest.mark.parametrize("temperature", TEMPERATURES)
@pytest.mark.parametrize(("dtype", "to", "most"), [("f4", "f4", 1), ("f8", "f8", 4), ("f8", "f4", 1)])
def test_softmax__is_within_the_units_promised(dtype, to, most, temperature):
    rng = np.random.default_rng(7)
    drawn = [rng.standard_normal(rng.integers(1, 60)) * scale for scale in (1e-3, 1, 30, 300, 1e4) for _ in range(4)]
    for row in [np.array(row, dtype) for row in [*HARD, *drawn]]:
        actual, refused = softmax_of(compiled, row, temperature, to)
        assert refused == -1
        off = [units_off(*pair) for pair in zip(actual[0], true_softmax(row, temperature), strict=True)]
        assert max(off) <= most, row


def test_softmax__is_scipys_on_a_million_scores():
    scores = (np.random.default_rng(3).standard_normal((1000, 1000)) * 5).astype("f4")
    expected = special.softmax(scores.astype("f8"), axis=1)
    narrow, wide = softmax_of(compiled, scores, 1.0)[0], softmax_of(compiled, scores.astype("f8"), 1.0)[0]
    assert (np.abs(narrow.astype("f8") - expected) <= np.spacing(narrow)).all()
    np.testing.assert_allclose(wide, expected, rtol=1e-12)


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("temperature", TEMPERATURES)
def test_sigmoid__is_within_the_units_promised(dtype, temperature):
    values = np.concatenate([[0.0, -0.0, np.inf, -np.inf], np.linspace(-745, 745, 301), np.geomspace(1e-300, 1, 99)])
    scores = values.astype(dtype)[None]
    actual = np.empty_like(scores)
    if dtype == "f4":
        compiled.sigmoid_narrow(scores, temperature, actual, np.empty(scores.size))
    else:
        compiled.sigmoid_wide(scores, temperature, actual)
    with mpmath.workprec(300):
        exact = [1 / (1 + mpmath.exp(-mpmath.mpf(float(z)) / mpmath.mpf(temperature))) for z in scores[0]]
    assert max(units_off(*pair) for pair in zip(actual[0], exact, strict=True)) <= (1 if dtype == "f4" else 4)


def test_logarithms__are_within_a_unit():
    rng = np.random.default_rng(5)
    near = 1 + np.concatenate([2.0 ** -np.arange(1, 53), -(2.0 ** -np.arange(2, 53))])
    values = np.concatenate(
        [np.exp(rng.uniform(-700, 700, 900)), rng.uniform(0.5, 2, 900), near, [2.0**-1022, 1.7e308]]
    )
    actual = np.empty_like(values)
    compiled.logarithms(values, actual)
    with mpmath.workprec(300):
        exact = [mpmath.log(mpmath.mpf(float(x))) for x in values]
    assert max(units_off(*pair) for pair in zip(actual, exact, strict=True)) <= 1


def test_exponentials__are_within_a_unit():
    values = np.concatenate([np.linspace(-708, 709, 2001), np.geomspace(1e-300, 700, 99), [0.0]])
    actual = np.empty_like(values)
    compiled.exponentials(values, actual)
    with mpmath.workprec(300):
        exact = [mpmath.exp(mpmath.mpf(float(x))) for x in values]
    assert max(units_off(*pair) for pair in zip(actual, exact, strict=True)) <= 1


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_softmax__keeps_nan_refuses_infinite_rows(dtype):
    rows = np.array([[1, np.nan, 2], [np.nan] * 3, [np.nan, -np.inf, 0]], dtype)
    actual, refused = softmax_of(compiled, rows, 1.0)
    assert refused == -1
    assert np.isnan(actual).tolist() == [[False, True, False], [True] * 3, [True, False, False]]
    np.testing.assert_array_equal(actual[0, [0, 2]], softmax_of(compiled, rows[0, [0, 2]], 1.0)[0][0])
    assert actual[2, 1:].tolist() == [0, 1]
    for bad in (np.inf, -np.inf):
        assert softmax_of(compiled, np.array([[1, 2], [bad, bad], [0, 1]], dtype), 1.0)[1] == 1
    assert softmax_of(compiled, np.array([[np.nan, -np.inf]], dtype), 1.0)[1] == 0


scores_drawn = hnp.arrays(
    st.sampled_from(["f4", "f8"]),
    st.tuples(st.integers(1, 4), st.integers(1, 20)),
    elements=st.floats(-800, 800, width=32) | st.sampled_from([np.nan, np.inf, -np.inf, 1e30, -1e30]),
)


@pytest.mark.slow
@given(scores_drawn, st.sampled_from(TEMPERATURES))
def test_twins__give_the_same_bits(scores, temperature):
    actual, refused = softmax_of(compiled, scores, temperature)
    expected, stop = softmax_of(plain, scores, temperature)
    assert refused == stop
    rows = len(scores) if stop < 0 else stop
    np.testing.assert_array_equal(actual[:rows], expected[:rows])
    narrow = softmax_of(compiled, scores, temperature, "f4")[0][:rows]
    np.testing.assert_array_equal(softmax_of(plain, scores, temperature, "f4")[0][:rows], narrow)
    for module in (compiled, plain):  # and so do the parts of rows, one by one
        assert softmax_in_parts(module, scores, temperature)[1] == stop
        np.testing.assert_array_equal(softmax_in_parts(module, scores, temperature)[0][:rows], narrow)
    ours, theirs = np.empty_like(scores), np.empty_like(scores)
    for module, out in ((compiled, ours), (plain, theirs)):
        if scores.dtype == np.float32:
            module.sigmoid_narrow(scores, temperature, out, np.empty(scores.shape[1]))
        else:
            module.sigmoid_wide(scores, temperature, out)
    np.testing.assert_array_equal(ours, theirs)


@given(hnp.arrays("f8", st.integers(1, 30), elements=st.floats(-720, 720)))
def test_twins__of_the_functions_give_the_same_bits(values):
    actual = [np.empty_like(values) for _ in range(4)]
    compiled.exponentials(values, actual[0])
    plain.exponentials(values, actual[1])
    compiled.logarithms(actual[0], actual[2])
    plain.logarithms(actual[0], actual[3])
    np.testing.assert_array_equal(actual[0], actual[1])
    np.testing.assert_array_equal(actual[2], actual[3])


@pytest.mark.slow
@pytest.mark.parametrize(
    "features", ["+avx2,-avx512f,-fma", "+avx2,+fma,-avx512f", "-avx2,-avx,-avx512f,-fma,+sse4.2", ""]
)
def test_kernels__give_the_same_bits_with_any_instructions(features, tmp_path):
    code = (
        "import json, sys, hashlib\nimport numpy as np\nfrom avgk_dask.kernels.compiled import exponentials as e\n"
        "z = (np.random.default_rng(1).standard_normal((40, 1001)) * 30).astype('f4')\n"
        "actual = []\n"
        "for t in (1.0, 1.7):\n"
        "    out = np.empty_like(z); e.softmax_narrow(z, t, out, np.empty(1008)); actual.append(out)\n"
        "    out = np.empty_like(z); e.sigmoid_narrow(z, t, out, np.empty(1001)); actual.append(out)\n"
        "    wide = z.astype('f8'); out = np.empty_like(wide); e.softmax_wide(wide, t, out, np.empty((2, 1001)))\n"
        "    actual.append(out)\n"
        "print(json.dumps([hashlib.sha256(o.tobytes()).hexdigest() for o in actual]))\n"
    )
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)}
    if features:
        environment |= {"NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": features}
    done = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True,
        env=environment | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    here = []
    scores = (np.random.default_rng(1).standard_normal((40, 1001)) * 30).astype("f4")
    for temperature in (1.0, 1.7):
        here.append(softmax_of(plain, scores, temperature)[0])
        here.append(np.empty_like(scores))
        plain.sigmoid_narrow(scores, temperature, here[-1], np.empty(1001))
        here.append(softmax_of(plain, scores.astype("f8"), temperature)[0])
    assert json.loads(done.stdout) == [hashlib.sha256(actual.tobytes()).hexdigest() for actual in here]
