"""Small matrices use no compiled kernels: the same results, to the bit, and no numba in the process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings

import dask
import dask.array as da
import ml_dtypes
import numpy as np
import pytest
import xarray as xr
from hypothesis import given
from hypothesis import strategies as st

import avgk_dask as avgk

DTYPES = ("float16", "bfloat16", "float32", "float64", "uint8", "int8", "uint32", "int64")
PLAIN, COMPILED = {"avgk.plain-scores": 1 << 40}, {"avgk.plain-scores": 0}
WAYS = [
    {},
    {"avgk.small-scores": 0},
    {"avgk.small-scores": 0, "avgk.kept-bytes": 0},
    {"avgk.small-scores": 0, "avgk.kept-bytes": 0, "avgk.least-events": 4, "avgk.max-events": 4},
    {"avgk.ranked-bytes": 0, "avgk.task-bytes": 1, "avgk.slab-bytes": 64, "avgk.tile-scores": 16},
]


@st.composite
def cases(draw):
    """Draw scores with ties, in chunks or not, their labels, and settings of the engine."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n, c = draw(st.integers(1, 60)), draw(st.integers(2, 40))
    name = draw(st.sampled_from(DTYPES))
    dtype = np.dtype(ml_dtypes.bfloat16) if name == "bfloat16" else np.dtype(name)
    raw = np.round(rng.dirichlet(np.full(c, 0.5), n), draw(st.integers(1, 4)))
    scores = (raw * 100).astype(dtype) if dtype.kind in "iu" else raw.astype(dtype)
    array = scores
    if draw(st.booleans()):
        array = da.from_array(scores, chunks=(draw(st.integers(1, n)), draw(st.integers(1, c))), asarray=False)
    labels = rng.integers(-1, c, n)
    labels[0] = 0
    return array, scores, labels, draw(st.sampled_from(WAYS))


def bits_of(result):
    """Return a result as text that shows every bit."""
    if isinstance(result, xr.Dataset):
        return {str(name): bits_of(value.values) for name, value in sorted(result.variables.items())}
    if isinstance(result, xr.DataArray | da.Array):
        return bits_of(np.asarray(result))
    if isinstance(result, np.ndarray) and result.dtype != object:
        return str(result.dtype), result.shape, np.ascontiguousarray(result).tobytes().hex()
    return repr(result)


def assert_same_bits(call, way):
    result = []
    for side in (PLAIN, COMPILED):
        with dask.config.set({**way, **side, "scheduler": "synchronous"}), warnings.catch_warnings():
            warnings.simplefilter("ignore", avgk.ResultWarning)
            try:
                result.append(bits_of(call()))
            except avgk.AvgkError as error:
                result.append(repr(error))
    assert result[0] == result[1]


def evaluated(scores, labels, n):
    evaluator = avgk.Evaluator(scores.shape[1], [1, 1.5], straddle=True)
    for first in range(0, len(scores), n):
        evaluator.update(scores[first : first + n], labels[first : first + n])
    return evaluator.result()


CALLS = {
    "evaluate": lambda array, scores, labels: avgk.evaluate(array, labels, [1, 1.5, 2]),
    "evaluate, spread ties": lambda array, scores, labels: avgk.evaluate(array, labels, [0.3, 2], ties="spread"),
    "evaluate, soft labels": lambda array, scores, labels: avgk.evaluate(
        array, np.eye(scores.shape[1])[labels], [1, 2]
    ),
    "threshold": lambda array, scores, labels: avgk.threshold(array, [0.5, 1, 2]),
    "breakdown": lambda array, scores, labels: avgk.breakdown(array, labels, [1, 1.5]),
    "error_curve": lambda array, scores, labels: avgk.error_curve(array, labels),
    "average_k_sets": lambda array, scores, labels: avgk.average_k_sets(array, 1.5),
    "top_k_sets": lambda array, scores, labels: avgk.top_k_sets(array, 2),
    "smallest_k": lambda array, scores, labels: avgk.smallest_k(array, labels, max_error=0.3),
    "best_threshold": lambda array, scores, labels: avgk.best_threshold(array, labels, cost=0.05),
    "compare": lambda array, scores, labels: avgk.compare({"a": array, "b": scores[:, ::-1]}, labels, [1, 2]),
    "lac": lambda array, scores, labels: avgk.conformal.calibrate(array, labels, 0.2).evaluate(scores, labels),
    "aps": lambda array, scores, labels: avgk.conformal.calibrate(array, labels, 0.2, "aps").evaluate(scores, labels),
    "softmax": lambda array, scores, labels: avgk.evaluate(avgk.softmax(array, temperature=0.7), labels, [1, 2]),
    "sigmoid": lambda array, scores, labels: avgk.evaluate(avgk.sigmoid(array), labels, [1, 2]),
    "temperature": lambda array, scores, labels: avgk.calibration.TemperatureScaling().fit(array, labels),
    "Evaluator": lambda array, scores, labels: evaluated(scores, labels, 7),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CALLS)
@given(case=cases())
def test_results__are_the_same_without_compiled_kernels(name, case):
    array, scores, labels, way = case
    assert_same_bits(lambda: CALLS[name](array, scores, labels), way)


@pytest.mark.parametrize("shape", [(20_000, 2), (3, 10_000), (300, 100)])
def test_results__are_the_same_for_long_and_for_wide_matrices(shape):
    rng = np.random.default_rng(5)
    scores = np.round(rng.random(shape), 2).astype(np.float32)
    labels = rng.integers(0, shape[1], shape[0])
    assert_same_bits(lambda: avgk.evaluate(scores, labels, [1, 1.5]), {})


SMALL = """
import sys, warnings
import numpy as np
import avgk_dask as avgk
warnings.simplefilter("ignore")
rng = np.random.default_rng(0)
scores, labels = rng.random((1000, 10), dtype=np.float32), rng.integers(0, 10, 1000)
avgk.evaluate(scores, labels)
avgk.threshold(scores, 2)
avgk.error_curve(scores, labels)
avgk.breakdown(scores, labels, 2)
avgk.conformal.calibrate(scores, labels)
evaluator = avgk.Evaluator(10, [2])
evaluator.update(scores, labels)
evaluator.result()
"""
SETS = "avgk.average_k_sets(scores, 2).compute()\navgk.top_k_sets(scores, 2).compute()\n"
LOADED = "print(sorted({'numba', 'llvmlite', 'distributed', 'matplotlib', 'pyarrow.parquet'} & set(sys.modules)))"


def fresh(*arguments, **environment):
    """Return the output of a fresh process with the default settings."""
    kept = {name: value for name, value in os.environ.items() if name != "DASK_AVGK__PLAIN_SCORES"}
    done = subprocess.run(arguments, check=True, capture_output=True, text=True, env={**kept, **environment})
    return done.stdout


@pytest.mark.slow
def test_small_matrices__need_neither_numba_nor_distributed():
    assert fresh(sys.executable, "-c", SMALL + LOADED).strip() == "[]"


@pytest.mark.slow
def test_small_sets__need_no_numba():
    assert "numba" not in fresh(sys.executable, "-c", SMALL + SETS + LOADED)


@pytest.mark.slow
def test_avgk_evaluate__needs_no_numba_for_a_small_store(tmp_path):
    path = str(tmp_path / "small.zarr")
    rng = np.random.default_rng(0)
    with avgk.ScoreWriter(path, 10) as writer:
        writer.append(rng.random((1000, 10), dtype=np.float32), rng.integers(0, 10, 1000))
    code = f"import sys\nfrom avgk_dask.cli.main import main\ntry:\n    main(['evaluate', {path!r}, '--json'])\nexcept SystemExit:\n    pass\nprint()\n"
    *lines, loaded = fresh(sys.executable, "-c", code + LOADED).strip().splitlines()
    assert loaded == "[]"
    assert json.loads("".join(lines))
