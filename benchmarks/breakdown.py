"""Measure the parts of evaluate: opening, pilot, reading, checking, decoding, kernels, merging, read-out.

    python benchmarks/breakdown.py [--samples 200000] [--classes 1000] [--repeat 3] [--folder FOLDER] [--only WORD]

Each row changes one setting: the codec, the classes (for the same number of scores), the dtype, the budgets or
straddle. The parts are measured on one thread, on which they do not overlap, in milliseconds per hundred million
scores. The last columns are the times of two threads, of two worker processes and of a bare read by two threads, in
the same unit. ``--only`` selects the rows whose name contains a word.
"""

from __future__ import annotations

import contextlib
import pathlib
import resource
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import dask
from measuring import bare_read, best_of, make_store, markdown, parser, scores_of, workplace

import avgk_dask as avgk
from avgk_dask.api import evaluate as evaluation
from avgk_dask.engine import pilot, scan
from avgk_dask.engine import search as threshold_search
from avgk_dask.engine.search import ThresholdSearch
from avgk_dask.records import State
from avgk_dask.store.read import direct
from avgk_dask.store.read.checked import CheckedStore

#: For each part of a run, the owner of its function and the function's name. Inner ones come first.
PARTS = {
    "read": (direct, "_read_file"),
    "check": (CheckedStore, "problem"),
    "decode": (direct.ChunkFiles, "_chunk"),
    "kernel": (scan, "hold_rows"),
    "kernel, events": (scan, "scan_rows"),
    "rest of a band": (threshold_search, "scan_band"),
    "merge": (State, "merge"),
    "pilot": (pilot, "sample_block"),
    "open": (evaluation, "as_source"),
    "settle": (ThresholdSearch, "advance"),
    "straddle": (evaluation, "analyse"),
}
COLUMNS = (
    "open",
    "pilot",
    "read",
    "check",
    "decode",
    "kernel",
    "rest of a band",
    "merge",
    "settle",
    "straddle",
    "scheduler and rest",
)


@dataclass(frozen=True)
class Case:
    """The store and the options of one row."""

    name: str
    codec: str = "blosc"
    classes: int = 1000
    dtype: str = "float32"
    k: int = 10
    straddle: bool = True


CASES = [
    Case("base: blosc, C = 1,000, float32, k = 1..10, straddle"),
    Case("raw", codec="raw"),
    Case("zstd", codec="zstd"),
    *(Case(f"C = {c:,}", classes=c) for c in (10, 100, 20_000, 200_000)),
    *(Case(dtype, dtype=dtype) for dtype in ("float16", "float64", "uint8")),
    Case("k = 1", k=1),
    Case("k = 1..100, no straddle", k=100, straddle=False),
    Case("no straddle", straddle=False),
]


class Clock:
    """Adds up the time spent in functions, without that of other timed functions called inside."""

    def __init__(self) -> None:
        self.times: dict[str, float] = dict.fromkeys(PARTS, 0.0)
        self._inner = [0.0]

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Time the parts while this runs."""
        saved = {name: vars(home)[attribute] for name, (home, attribute) in PARTS.items()}
        for name, (home, attribute) in PARTS.items():
            setattr(home, attribute, self._timed(name, saved[name]))
        try:
            yield
        finally:
            for name, (home, attribute) in PARTS.items():
                setattr(home, attribute, saved[name])

    def _timed(self, name: str, function: Any) -> Any:
        plain = function.__func__ if isinstance(function, classmethod) else function

        def timed(*arguments: Any, **options: Any) -> Any:
            start = time.perf_counter()
            self._inner.append(0.0)
            try:
                return plain(*arguments, **options)
            finally:
                taken = time.perf_counter() - start
                self.times[name] += taken - self._inner.pop()
                self._inner[-1] += taken

        return classmethod(timed) if isinstance(function, classmethod) else timed


def parts_of(path: pathlib.Path, options: dict[str, Any], repeat: int) -> tuple[dict[str, float], float]:
    """Return the time of each part on one thread, and the page faults, of the fastest run."""
    best: tuple[float, dict[str, float], int] = (float("inf"), {}, 0)
    for _ in range(repeat):
        clock, faults = Clock(), resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        with clock.running(), dask.config.set(scheduler="synchronous"):
            start = time.perf_counter()
            avgk.evaluate(path, **options)
            seconds = time.perf_counter() - start
        faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - faults
        best = min(best, (seconds, clock.times, faults), key=lambda run: run[0])
    seconds, times, faults = best
    times["kernel"] += times.pop("kernel, events")
    times["scheduler and rest"] = seconds - sum(times.values())
    return times, faults


def measure(case: Case, samples: int, folder: pathlib.Path, repeat: int, client: Any) -> list[Any]:
    """Return the row of a case."""
    path = make_store(folder, case.codec, samples, case.classes, case.dtype)
    options: dict[str, Any] = {"k": range(1, min(case.k, case.classes) + 1), "straddle": case.straddle}
    unit = 1e-3 * samples * case.classes / 1e8
    times, faults = parts_of(path, options, repeat)
    scores = scores_of(path)
    with_threads = best_of(
        {"threads": lambda: avgk.evaluate(path, **options), "bare": lambda: bare_read(scores)}, repeat
    )
    with dask.config.set(scheduler=client):
        processes = best_of({"processes": lambda: avgk.evaluate(path, **options)}, repeat)["processes"]
    ends = (with_threads["threads"], processes, with_threads["bare"])
    return [case.name, *(round(times[c] / unit) for c in COLUMNS), faults, *(round(t / unit) for t in ends)]


def main() -> None:
    from distributed import Client

    options = parser(__doc__)
    options.set_defaults(repeat=3)
    options.add_argument("--only", default="", help="select the rows whose name contains this word")
    arguments = options.parse_args()
    rows = []
    with workplace(arguments.folder) as folder:
        address = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": None, "host": "127.0.0.1"}
        with Client(**address, set_as_default=False) as client:
            for case in CASES:
                if arguments.only in case.name:
                    samples = max(1, arguments.samples * arguments.classes // case.classes)
                    rows.append(measure(case, samples, folder, arguments.repeat, client))
                    print(*rows[-1], file=sys.stderr, flush=True)
    print(markdown(("", *COLUMNS, "page faults", "two threads", "two processes", "bare read"), rows))


if __name__ == "__main__":
    main()
