"""Check the limits of evaluate, as ratios measured in one run; results are checked first.

    python benchmarks/limits.py [--samples 200000] [--classes 1000] [--repeat 5] [--folder FOLDER] [--only PART]

Best of the repeats, which alternate, on two threads. Takes some five minutes, 10 GB of disk and 5 GB of memory. Rows go to
stderr as they are measured, the table is printed at the end. ``!`` marks a limit that was not kept.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import sys
from collections.abc import Callable, Iterator
from typing import Any

import dask
import dask.array as da
import numpy as np
from measuring import (
    CODECS,
    bare_read,
    best_of,
    check_thresholds,
    in_own_process,
    make_logits,
    make_store,
    markdown,
    parser,
    peak_memory,
    scores_of,
    workplace,
)

import avgk_dask as avgk

Row = tuple[str, float, float | None]
#: Bytes of the chunks whose memory is measured.
_CHUNKS = (40_000_000, 160_000_000)
#: Memory of a process before it has read anything, in MB.
_PROCESS = 200


def topk_threshold(array: Any, budget: int) -> float:
    """Find one threshold with Dask alone."""
    return float(da.topk(da.from_zarr(array).ravel(), budget + 1).min().compute())


def listing(scores: Any, k: int) -> Any:
    """Return the sets of the paper's listing."""
    threshold = np.quantile(scores, q=1 - k / scores.shape[1], method="lower")
    sets = scores > threshold
    missing = scores.shape[0] * k - np.sum(sets)
    rows, classes = np.where(scores == threshold)
    sets[rows[:missing], classes[:missing]] = True
    return sets


def reading(options: Any, folder: pathlib.Path) -> Iterator[Row]:
    """Measure evaluate against a bare read and against Dask's topk, for each codec."""
    limits = {"blosc": 1.25, "raw": 1.6, "zstd": 1.15}
    budget = 5 * options.samples
    for codec in CODECS:
        path = make_store(folder, codec, options.samples, options.classes)
        scores = scores_of(path)
        result = avgk.evaluate(path, k=range(1, 11))
        check_thresholds(path, result)
        assert topk_threshold(scores, budget) == result.threshold.sel(k=5)
        best = best_of(
            {
                "read": lambda scores=scores: bare_read(scores),
                "all": lambda path=path: avgk.evaluate(path, k=range(1, 11)),
                "plain": lambda path=path: avgk.evaluate(path, k=range(1, 11), straddle=False),
                "topk": lambda scores=scores: topk_threshold(scores, budget),
            },
            options.repeat,
        )
        yield f"evaluate(k=1..10, straddle=True) / bare read, {codec}", best["all"] / best["read"], limits[codec]
        yield f"evaluate(k=1..10, straddle=False) / bare read, {codec}", best["plain"] / best["read"], None
        yield f"evaluate(k=1..10) / dask.array.topk for one k, {codec}", best["all"] / best["topk"], 0.65


def logits(options: Any, folder: pathlib.Path) -> Iterator[Row]:
    """Measure a softmax in addition to plain scores, and a fit of the temperature, in bare reads."""
    path = make_store(folder, "blosc", options.samples, options.classes)
    scores = scores_of(path)
    head = scores[:2_000].astype(np.float64)
    exponentials = np.exp(head - head.max(1, keepdims=True))
    expected = exponentials / exponentials.sum(1, keepdims=True)
    actual = np.asarray(avgk.softmax(scores).to_dask()[:2_000])
    assert np.all(np.abs(actual - expected) <= np.spacing(expected.astype(np.float32)))
    best = best_of(
        {
            "read": lambda: bare_read(scores),
            "scores": lambda: avgk.evaluate(path, k=range(1, 11)),
            "softmax": lambda: avgk.evaluate(avgk.softmax(path), k=range(1, 11)),
        },
        options.repeat,
    )
    yield (
        "(evaluate(softmax(store)) - evaluate(store)) / bare read",
        (best["softmax"] - best["scores"]) / best["read"],
        0.8,
    )
    own = make_logits(folder, options.samples, options.classes)
    fitted = avgk.calibration.TemperatureScaling().fit(own)
    assert fitted.nll_after == avgk.losses.nll(fitted.transform(own))
    best = best_of(
        {"read": lambda: bare_read(scores_of(own)), "fit": lambda: avgk.calibration.TemperatureScaling().fit(own)},
        options.repeat,
    )
    yield f"a fit of the temperature, {fitted.n_reads} reads / bare read", best["fit"] / best["read"], 8


def decisions(options: Any, folder: pathlib.Path) -> Iterator[Row]:
    """Measure breakdowns and comparisons against bare reads of the same stores."""
    path = make_store(folder, "blosc", options.samples, options.classes)
    scores, ks = scores_of(path), range(1, 11)
    clusters = np.arange(options.samples) // 10
    whole, parts = avgk.evaluate(path, k=ks, straddle=False), avgk.breakdown(path, k=ks)
    shares = parts.n_labelled / parts.n_labelled.sum()
    assert np.allclose((parts.average_k_error.fillna(0) * shares).sum("group"), whole.average_k_error)
    assert (avgk.compare({"a": path, "b": path}, k=ks, straddle=False).difference == 0).all()
    best = best_of(
        {
            "read": lambda: bare_read(scores),
            "plain": lambda: avgk.evaluate(path, k=ks, straddle=False),
            "clusters": lambda: avgk.evaluate(path, k=ks, straddle=False, clusters=clusters),
            "breakdown": lambda: avgk.breakdown(path, k=ks),
            "own": lambda: avgk.breakdown(path, k=ks, thresholds="own"),
            "compare": lambda: avgk.compare({"a": path, "b": path}, k=ks, straddle=False),
        },
        options.repeat,
    )
    yield f"breakdown(k=1..10, by class) / bare read, C = {options.classes}", best["breakdown"] / best["read"], 1.3
    reads = avgk.breakdown(path, k=ks, thresholds="own").attrs["reads"]
    name = f"breakdown(k=1..10, by class, own thresholds), {reads} read{'s' * (reads > 1)} / bare read, C = {options.classes}"
    yield name, best["own"] / best["read"], None
    yield "evaluate(k=1..10) with clusters of 10 / without", best["clusters"] / best["plain"], None
    yield "compare of two models / two bare reads", best["compare"] / (2 * best["read"]), None


def against_listing(options: Any, folder: pathlib.Path) -> Iterator[Row]:
    """Measure evaluate from disk against the paper's listing in memory."""
    path = make_store(folder, "blosc", options.samples, options.classes)
    scores = scores_of(path)[:]
    sets = avgk.average_k_sets(path, 5).compute()
    assert sets.sum() == 5 * options.samples
    assert np.array_equal(sets, listing(scores, 5))
    best = best_of({"evaluate": lambda: avgk.evaluate(path, k=range(1, 11))}, options.repeat)
    best |= best_of({"listing": lambda: [listing(scores, k) for k in range(1, 11)]}, 1)
    yield "evaluate(k=1..10) from disk / the paper's listing in memory", best["evaluate"] / best["listing"], 0.03


def classes(options: Any, folder: pathlib.Path) -> Iterator[Row]:
    """Measure the calls that look at every score, from few classes to many, for a quarter of the usual number of scores."""
    n_scores = options.samples * options.classes // 4
    for n_classes in (10, 100, 1_000, 20_000):
        path = make_store(folder, "blosc", n_scores // n_classes, n_classes)
        ks = range(1, min(n_classes, 11))
        check_thresholds(path, avgk.evaluate(path, k=ks, straddle=False))
        calls: dict[str, Callable[[], Any]] = {
            "evaluate(k=1..10, straddle=False)": lambda path=path, ks=ks: avgk.evaluate(path, k=ks, straddle=False),
            "evaluate(k=1..10)": lambda path=path, ks=ks: avgk.evaluate(path, k=ks),
            "error_curve": lambda path=path: avgk.error_curve(path),
            "best_threshold": lambda path=path: avgk.best_threshold(path, cost=0.05),
            "threshold(5)": lambda path=path: avgk.threshold(path, 5),
            "smallest_k": lambda path=path: avgk.smallest_k(path, max_error=0.05),
            "conformal APS": lambda path=path: avgk.conformal.calibrate(path, method="aps"),
        }
        if n_classes > 1_000:
            calls.pop("error_curve")
        scores = scores_of(path)
        best = best_of({"read": lambda scores=scores: bare_read(scores), **calls}, min(options.repeat, 3))
        for name in calls:
            yield f"{name} / bare read, C = {n_classes}", best[name] / best["read"], None


def budgets(options: Any, folder: pathlib.Path) -> Iterator[Row]:
    """Measure a hundred budgets against ten."""
    path = make_store(folder, "blosc", options.samples, options.classes)
    check_thresholds(path, avgk.evaluate(path, k=range(1, 101), straddle=False))
    for straddle, limit, repeat in ((False, 1.5, options.repeat), (True, None, 1)):
        best = best_of(
            {
                "many": lambda s=straddle: avgk.evaluate(path, k=range(1, 101), straddle=s),
                "ten": lambda s=straddle: avgk.evaluate(path, k=range(1, 11), straddle=s),
            },
            repeat,
        )
        yield f"k=1..100 / k=1..10, straddle={straddle}", best["many"] / best["ten"], limit


def sizes(options: Any, folder: pathlib.Path) -> Iterator[Row]:
    """Measure wide rows against ordinary ones with the same number of scores, and four times the rows."""
    n = options.samples * options.classes
    ordinary = make_store(folder, "blosc", options.samples, options.classes)
    wide = make_store(folder, "blosc", n // 200_000, 200_000)
    many = make_store(folder, "blosc", 4 * options.samples, options.classes)
    check_thresholds(wide, avgk.evaluate(wide, k=range(1, 11)))
    best = best_of(
        {str(path): lambda path=path: avgk.evaluate(path, k=range(1, 11)) for path in (ordinary, wide, many)},
        options.repeat,
    )
    yield "time per score at C = 200,000 / at C = 1,000", best[str(wide)] / best[str(ordinary)], 1.2
    yield "time for 4x the rows / for 1x", best[str(many)] / best[str(ordinary)], 4.2


def memory(options: Any, folder: pathlib.Path) -> Iterator[Row]:
    """Measure the memory of workers with one thread, and of one process with two threads, relative to the bytes of a chunk."""
    for n_bytes in _CHUNKS:
        for codec in CODECS:
            path = make_store(folder, codec, options.samples, options.classes, chunk_bytes=n_bytes)
            name = f"(peak memory - {_PROCESS} MB) / bytes of a chunk of {n_bytes // 10**6} MB, {codec}"
            taken = in_own_process("limits.py", "--memory-of", path)
            yield f"{name}: a worker of one thread", (taken["worker"] - _PROCESS) * 1e6 / n_bytes, 4
            yield f"{name}: all in one process of two threads", (taken["process"] - _PROCESS) * 1e6 / n_bytes, None


def measure_memory(path: str) -> None:
    """Evaluate on two workers and in this process, and print the peak memory of both."""
    from distributed import Client

    with Client(n_workers=2, threads_per_worker=1, dashboard_address=None, host="127.0.0.1") as client:
        avgk.evaluate(path, k=range(1, 11))
        worker = max(client.run(peak_memory).values())
    with dask.config.set(scheduler="threads", num_workers=2):
        avgk.evaluate(path, k=range(1, 11))
    print(json.dumps({"worker": worker, "process": peak_memory()}))


PARTS: list[Callable[[Any, pathlib.Path], Iterator[Row]]] = [
    reading,
    logits,
    decisions,
    against_listing,
    classes,
    budgets,
    sizes,
    memory,
]


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--only", choices=[part.__name__ for part in PARTS], help="measure one part of the table")
    options.add_argument("--memory-of", help=argparse.SUPPRESS)
    arguments = options.parse_args()
    if arguments.memory_of:
        measure_memory(arguments.memory_of)
        return
    rows = []
    with workplace(arguments.folder) as folder:
        for part in PARTS:
            if arguments.only in (None, part.__name__):
                for name, ratio, limit in part(arguments, folder):
                    mark = " !" if limit is not None and ratio > limit else ""
                    rows.append((name, (f"{ratio:.2f}" if ratio > 0.1 else f"{ratio:.4f}") + mark, limit or ""))
                    print(*rows[-1], sep="   ", file=sys.stderr, flush=True)
    print(markdown(("measurement", "ratio", "limit"), rows))


if __name__ == "__main__":
    main()
