"""``compile_kernels``: compile the kernels for large matrices in advance.

It calls all functions with a small matrix of each dtype, with settings that make them use the kernels for large ones.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import dask
import dask.array as da
import numpy as np

from ..arrays import Array
from ..engine.run import count_progress
from ..kernels.dispatch import kernel_cache_folder, watch_compiling
from ..kernels.keys import check_dtype
from .breakdowns import breakdown
from .calibration.temperature import TemperatureScaling
from .comparison import compare
from .conformal.calibrate import calibrate
from .curves import error_curve, smallest_k
from .ensembles import ensemble
from .evaluate import evaluate
from .options import check_flag
from .probabilities import sigmoid, softmax
from .risks import best_threshold
from .sets import top_k_sets

#: The dtypes for which kernels are compiled. Scores of other dtypes are converted to one of these.
DTYPES = ("float32", "float16", "float64", "uint8", "int16", "int32", "int64")
#: Settings with which a small matrix takes each path of large matrices, compiled.
_ALWAYS = {"avgk.plain-scores": 0, "scheduler": "synchronous"}
_PILOT = {"avgk.small-scores": 0}
_EVENTS = {**_PILOT, "avgk.kept-bytes": 0}
_COUNTED = {**_EVENTS, "avgk.max-events": 0, "avgk.least-events": 0}


@dataclass(frozen=True)
class Compilation:
    """The result of ``compile_kernels``."""

    #: The number of compilations and the seconds they took; 0 if everything was in the cache.
    n_compiled: int
    seconds: float
    #: The folder of the cache.
    cache: str


def compile_kernels(*, dtypes: Iterable[str] = DTYPES, progress: bool | None = None) -> Compilation:
    """Compile the kernels for large matrices in advance: in an image, on each worker, before a demonstration.

    Otherwise the first large matrix of each dtype waits some seconds for the compiler. The compiled kernels are cached for
    all later processes. Matrices of up to ``avgk.plain-scores`` scores never wait.

    Parameters
    ----------
    dtypes
        The dtypes of the scores to evaluate. By default all, which takes a minute or two.
    progress
        Whether to show a progress bar on stderr. None logs one line per minute to ``avgk_dask`` instead.

    Returns
    -------
    Compilation
        The number of compilations, their seconds, and the folder of the cache.

    Raises
    ------
    DtypeError
        If scores cannot have one of the dtypes.

    Notes
    -----
    Cost: no reads. About 20 CPU seconds per dtype, or one second if everything is in the cache.

    The cache is numba's: ``NUMBA_CACHE_DIR`` if it is set, otherwise next to the package, or in the user's cache folder if
    that is not writable. On a cluster, ``client.run(avgk.compile_kernels)`` compiles on every worker.

    Examples
    --------
    >>> import avgk_dask as avgk
    >>> done = avgk.compile_kernels(dtypes=[])
    >>> done.n_compiled
    0
    """
    check_flag("progress", progress, or_none=True)
    calls = [(call, dtype) for dtype in map(check_dtype, dtypes) for call in _CALLS]
    with count_progress("compiling", "part", len(calls), progress) as advance, _record_times() as seconds:
        for call, dtype in calls:
            with dask.config.set(_ALWAYS), warnings.catch_warnings():
                warnings.simplefilter("ignore")  # the scores are arbitrary
                call(*_matrix(dtype))
            advance(1)
    return Compilation(len(seconds), sum(seconds), kernel_cache_folder())


@contextmanager
def _record_times() -> Iterator[list[float]]:
    """Yield a list to which the seconds of each compilation are appended."""
    seconds: list[float] = []
    start = 0.0

    def record(begins: bool) -> None:
        nonlocal start
        if begins:
            start = time.perf_counter()
        else:
            seconds.append(time.perf_counter() - start)

    with watch_compiling(record):
        yield seconds


def _matrix(dtype: np.dtype[Any]) -> tuple[Array, Array]:
    """Return some scores with ties, and labels."""
    rng = np.random.default_rng(0)
    rows = rng.dirichlet(np.full(40, 0.5), 64)
    scores = np.round(rows * 100).astype(dtype) if dtype.kind in "iu" else rows.astype(dtype)
    return scores, rng.integers(-1, 40, 64)


def _evaluate(scores: Array, labels: Array) -> None:
    soft = np.eye(40)[labels]
    split = da.from_array(scores, chunks=(32, 16))
    for settings in ({}, _PILOT, _EVENTS, _COUNTED):
        with dask.config.set(settings):
            evaluate(scores, labels, [1, 2, 3.5], progress=False)
            if settings in ({}, _EVENTS):
                evaluate(scores, soft, [2], progress=False)
                evaluate(split, labels, [2], progress=False)


def _compute_curves(scores: Array, labels: Array) -> None:
    error_curve(scores, labels, progress=False)
    smallest_k(scores, labels, max_error=0.5, progress=False)
    breakdown(scores, labels, [2], progress=False)
    for settings in ({}, _EVENTS):
        with dask.config.set(settings):
            breakdown(scores, labels, [2], thresholds="own", progress=False)
    best_threshold(scores, labels, cost=0.01, progress=False)


def _make_sets(scores: Array, labels: Array) -> None:
    top_k_sets(scores, 2).compute()
    compare({"a": scores, "b": scores}, labels, [1, 2], progress=False)
    calibrate(scores, labels, 0.3, progress=False)
    if scores.dtype.kind not in "iu":
        calibrate(scores, labels, 0.3, method="aps", progress=False)


def _evaluate_logits(scores: Array, labels: Array) -> None:
    if scores.dtype.kind not in "iu":
        evaluate(softmax(scores), labels, [2], progress=False)
        evaluate(ensemble([scores], of="logits"), labels, [2], progress=False)
        evaluate(sigmoid(scores), labels, [2], progress=False)
        TemperatureScaling().fit(scores, labels, progress=False)


_CALLS = (_evaluate, _compute_curves, _make_sets, _evaluate_logits)
