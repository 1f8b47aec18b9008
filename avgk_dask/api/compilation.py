"""``compile_kernels``: compile ahead what large matrices need.

Small matrices of each dtype go through all functions, with settings that send them the way of large ones.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import dask
import dask.array as da
import numpy as np

from ..arrays import Array
from ..engine.run import counting
from ..kernels.dispatch import kept_in, watching
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

#: One of each kind that kernels are compiled for; the others are turned into these.
DTYPES = ("float32", "float16", "float64", "uint8", "int16", "int32", "int64")
#: Settings that send a small matrix through all that large ones go through, compiled.
_ALWAYS = {"avgk.plain-scores": 0, "scheduler": "synchronous"}
_PILOT = {"avgk.small-scores": 0}
_EVENTS = {**_PILOT, "avgk.kept-bytes": 0}
_COUNTED = {**_EVENTS, "avgk.max-events": 0, "avgk.least-events": 0}


@dataclass(frozen=True)
class Compilation:
    """What ``compile_kernels`` did."""

    #: How often something had to be compiled, and the seconds that took; 0 where all was there.
    n_compiled: int
    seconds: float
    #: The folder that keeps it.
    cache: str


def compile_kernels(*, dtypes: Iterable[str] = DTYPES, progress: bool | None = None) -> Compilation:
    """Compile ahead what evaluating large matrices needs: in an image, on each worker, before a demonstration.

    Without it, the first large matrix of each dtype waits for the compiler, some seconds; what is compiled is kept for
    all later processes. Matrices up to ``avgk.plain-scores`` scores never wait.

    Parameters
    ----------
    dtypes
        Those of the scores that will come. By default all there are, which takes a minute or two.
    progress
        Whether to show a progress bar on stderr. None logs one line per minute to ``avgk_dask`` instead.

    Returns
    -------
    Compilation
        How much was compiled, how long that took, and the folder that keeps it.

    Raises
    ------
    DtypeError
        For a dtype that scores cannot have.

    Notes
    -----
    Cost: no reads. Some 20 CPU seconds for each dtype, and a second where all is there.

    The folder is numba's: ``NUMBA_CACHE_DIR`` where that is set, else next to the package, or the user's own where that
    may not be written. On a cluster, ``client.run(avgk.compile_kernels)`` compiles on every worker.

    Examples
    --------
    >>> import avgk_dask as avgk
    >>> done = avgk.compile_kernels(dtypes=[])
    >>> done.n_compiled
    0

    """
    check_flag("progress", progress, or_none=True)
    kinds = [check_dtype(dtype) for dtype in dtypes]
    works = [(work, dtype) for dtype in kinds for work in _WORKS]
    with counting("compiling", "part", len(works), progress) as advance, _timing() as spans:
        for work, dtype in works:
            with dask.config.set(_ALWAYS), warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of scores that mean nothing
                work(*_matrix(dtype))
            advance(1)
    return Compilation(len(spans), sum(spans), kept_in())


@contextmanager
def _timing() -> Iterator[list[float]]:
    """Lend a list of the seconds of each compilation, which grows."""
    spans: list[float] = []
    begun = [0.0]

    def watch(begins: bool) -> None:
        if begins:
            begun[0] = time.perf_counter()
        else:
            spans.append(time.perf_counter() - begun[0])

    with watching(watch):
        yield spans


def _matrix(dtype: np.dtype[Any]) -> tuple[Array, Array]:
    """Return some scores with ties, and labels."""
    rng = np.random.default_rng(0)
    raw = rng.dirichlet(np.full(40, 0.5), 64)
    scores = np.round(raw * 100).astype(dtype) if dtype.kind in "iu" else raw.astype(dtype)
    return scores, rng.integers(-1, 40, 64)


def _evaluated(scores: Array, labels: Array) -> None:
    for settings in ({}, _PILOT, _EVENTS, _COUNTED):
        with dask.config.set(settings):
            evaluate(scores, labels, [1, 2, 3.5], progress=False)


def _soft(scores: Array, labels: Array) -> None:
    soft = np.eye(40)[labels]
    split = da.from_array(scores, chunks=(32, 16))
    for settings in ({}, _EVENTS):
        with dask.config.set(settings):
            evaluate(scores, soft, [2], progress=False)
            evaluate(split, labels, [2], progress=False)


def _curves(scores: Array, labels: Array) -> None:
    error_curve(scores, labels, progress=False)
    smallest_k(scores, labels, max_error=0.5, progress=False)
    breakdown(scores, labels, [2], progress=False)
    for settings in ({}, _EVENTS):
        with dask.config.set(settings):
            breakdown(scores, labels, [2], thresholds="own", progress=False)
    best_threshold(scores, labels, cost=0.01, progress=False)


def _sets(scores: Array, labels: Array) -> None:
    top_k_sets(scores, 2).compute()
    compare({"a": scores, "b": scores}, labels, [1, 2], progress=False)
    calibrate(scores, labels, 0.3, progress=False)
    if scores.dtype.kind not in "iu":
        calibrate(scores, labels, 0.3, method="aps", progress=False)


def _logits(scores: Array, labels: Array) -> None:
    if scores.dtype.kind not in "iu":
        evaluate(softmax(scores), labels, [2], progress=False)
        evaluate(ensemble([scores], of="logits"), labels, [2], progress=False)
        evaluate(sigmoid(scores), labels, [2], progress=False)
        TemperatureScaling().fit(scores, labels, progress=False)


_WORKS: tuple[Callable[[Array, Array], None], ...] = (_evaluated, _soft, _curves, _sets, _logits)
