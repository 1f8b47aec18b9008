"""Compare evaluate with other tools that compute one threshold or top-K errors: time and memory, each in its own process.

    python benchmarks/peers.py [--samples 200000] [--classes 1000] [--repeat 3] [--folder FOLDER] [--chart FILE.png]

All use the same store. Tools that need the scores in memory get them before the clock starts, which favours them. Every result is
checked: thresholds against a NumPy partition of all scores, errors against ``evaluate``; for approximations, the error is printed.
Tools that are not installed are skipped and listed (``pip install torch duckdb polars scikit-learn matplotlib``).
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import pathlib
from collections.abc import Callable
from typing import Any

import dask
import dask.array as da
import numpy as np
import zarr
from limits import listing, topk_threshold
from measuring import (
    bare_read,
    best_of,
    in_own_process,
    make_store,
    markdown,
    parser,
    peak_memory,
    scores_of,
    workplace,
)

import avgk_dask as avgk

K = 5


class Run:
    """The store in the forms that the peers need."""

    def __init__(self, path: pathlib.Path) -> None:
        self.path, self.array = path, scores_of(path)
        self.n_samples, self.n_classes = self.array.shape
        self.budget = K * self.n_samples

    def scores(self) -> Any:
        """Return all scores in memory."""
        return self.array[:]

    def labels(self) -> Any:
        """Return the labels."""
        return zarr.open_group(self.path, mode="r")["labels"][:]

    def lazy(self) -> da.Array:
        """Return all scores as one flat Dask array."""
        return da.from_zarr(self.array).ravel()

    @property
    def q(self) -> float:
        """The quantile of the scores at the threshold."""
        return 1 - K / self.n_classes


def _read(run: Run) -> Callable[[], Any]:
    return lambda: bare_read(run.array)


def _evaluate(run: Run) -> Callable[[], Any]:
    return lambda: float(avgk.evaluate(run.path, k=range(1, 11)).threshold.sel(k=K))


def _threshold(run: Run) -> Callable[[], Any]:
    return lambda: avgk.threshold(run.path, K).value


def _dask_topk(run: Run) -> Callable[[], Any]:
    return lambda: topk_threshold(run.array, run.budget)


def _dask_percentile(run: Run) -> Callable[[], Any]:
    return lambda: float(da.percentile(run.lazy(), 100 * run.q, internal_method="dask").compute())


def _dask_quantile(run: Run) -> Callable[[], Any]:
    return lambda: float(da.quantile(run.lazy().rechunk(-1), run.q, method="lower").compute())


def _numpy_partition(run: Run) -> Callable[[], Any]:
    flat = run.scores().reshape(-1)
    place = flat.size - 1 - run.budget
    return lambda: float(np.partition(flat, place)[place])


def _listing(run: Run) -> Callable[[], Any]:
    scores = run.scores()
    return lambda: float(scores[listing(scores, K)].min())


def _torch_kthvalue(run: Run) -> Callable[[], Any]:
    import torch

    torch.set_num_threads(2)
    flat = torch.from_numpy(run.scores().reshape(-1))
    return lambda: float(flat.kthvalue(flat.numel() - run.budget).values)


def _duckdb_quantile(run: Run) -> Callable[[], Any]:
    import duckdb

    connection = duckdb.connect(config={"threads": 2})
    x = run.scores().reshape(-1)
    connection.register("scores", {"x": x})
    share = (x.size - 1 - run.budget + 0.5) / x.size
    return lambda: float(connection.execute(f"select quantile_disc(x, {share!r}) from scores").fetchone()[0])  # type: ignore[index]


def _polars_top_k(run: Run) -> Callable[[], Any]:
    import polars

    series = polars.Series(run.scores().reshape(-1))
    return lambda: float(series.top_k(run.budget + 1).min())


def _sklearn_error(run: Run) -> Callable[[], Any]:
    from sklearn.metrics import top_k_accuracy_score

    scores, labels, names = run.scores(), run.labels(), np.arange(run.n_classes)
    return lambda: 1 - float(top_k_accuracy_score(labels, scores, k=K, labels=names))


def _torch_error(run: Run) -> Callable[[], Any]:
    import torch

    torch.set_num_threads(2)
    scores, labels = torch.from_numpy(run.scores()), torch.from_numpy(run.labels())

    def loop() -> float:
        hits = 0
        for first in range(0, run.n_samples, 4096):
            rows = slice(first, first + 4096)
            hits += int((scores[rows].topk(10).indices[:, :K] == labels[rows, None]).any(1).sum())
        return 1 - hits / run.n_samples

    return loop


#: Name: (factory, library it needs, its result, place of the scores).
PEERS: dict[str, tuple[Callable[[Run], Callable[[], Any]], str, str, str]] = {
    "bare read with zarr": (_read, "zarr", "nothing", "store"),
    "avgk evaluate(k=1..10)": (_evaluate, "avgk_dask", "threshold", "store"),
    "avgk threshold(k=5)": (_threshold, "avgk_dask", "threshold", "store"),
    "dask topk": (_dask_topk, "dask", "threshold", "store"),
    "dask percentile": (_dask_percentile, "dask", "threshold", "store"),
    "dask quantile": (_dask_quantile, "dask", "threshold", "store"),
    "numpy partition": (_numpy_partition, "numpy", "threshold", "memory"),
    "the paper's listing": (_listing, "numpy", "lowest score in a set", "memory"),
    "torch kthvalue": (_torch_kthvalue, "torch", "threshold", "memory"),
    "duckdb quantile_disc": (_duckdb_quantile, "duckdb", "threshold", "memory"),
    "polars top_k": (_polars_top_k, "polars", "threshold", "memory"),
    "scikit-learn top_k_accuracy_score": (_sklearn_error, "sklearn", "top-5 error", "memory"),
    "torch topk in batches": (_torch_error, "torch", "top-5 error", "memory"),
}


def measure(name: str, path: pathlib.Path, repeat: int) -> None:
    """Time one peer, and print its cost and result."""
    with dask.config.set(scheduler="threads", num_workers=2):
        function = PEERS[name][0](Run(path))
        answer = function()
        seconds = best_of({name: function}, repeat)[name]
    print(json.dumps({"seconds": seconds, "peak": peak_memory(), "answer": answer}))


def expected(path: pathlib.Path) -> dict[str, float]:
    """Give the right answers, from a partition of all scores and from a plain count."""
    run = Run(path)
    scores, labels = run.scores(), run.labels()
    own = scores[np.arange(run.n_samples), labels]
    ahead = (scores > own[:, None]).sum(1)
    before = np.array([(row[:label] == x).sum() for row, label, x in zip(scores, labels, own, strict=True)])
    flat = scores.reshape(-1)
    place = flat.size - 1 - run.budget
    flat.partition((place, place + 1))
    error = 1 - float((ahead + before < K).mean())
    return {"threshold": float(flat[place]), "lowest score in a set": float(flat[place + 1]), "top-5 error": error}


def verdict(kind: str, answer: float, right: dict[str, float], n_samples: int) -> str:
    """Say whether an answer is right, or by how much it is wrong."""
    if kind == "nothing" or answer == right[kind]:
        return "exact" if kind != "nothing" else ""
    if kind == "top-5 error" and abs(answer - right[kind]) * n_samples < 5:
        return "exact but for ties"
    return f"off by {abs(answer / right[kind] - 1):.1%}"


def main() -> None:
    options = parser(__doc__)
    options.set_defaults(repeat=3)
    options.add_argument("--chart", type=pathlib.Path, help="draw the times here")
    options.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    arguments = options.parse_args()
    if arguments.one:
        measure(arguments.one[0], pathlib.Path(arguments.one[1]), arguments.repeat)
        return
    with workplace(arguments.folder) as folder:
        path = make_store(folder, "blosc", arguments.samples, arguments.classes)
        right = expected(path)
        results, absent = {}, []
        for name, (_, library, _, _) in PEERS.items():
            if importlib.util.find_spec(library) is None:
                absent.append(name)
                continue
            results[name] = in_own_process("peers.py", "--one", name, path, "--repeat", arguments.repeat)
    unit = results["bare read with zarr"]["seconds"]
    rows = []
    for name, result in results.items():
        kind, where = PEERS[name][2:]
        said = verdict(kind, result["answer"], right, arguments.samples)
        assert not said.startswith("off") or name == "dask percentile", (name, result["answer"], right[kind])
        rows.append(
            (
                name,
                where,
                kind,
                said,
                f"{result['seconds']:.2f}",
                f"{result['seconds'] / unit:.2f}",
                f"{result['peak']:,.0f}",
            )
        )
    print(markdown(("", "scores in", "gives", "", "seconds", "in bare reads", "peak MB"), rows))
    if absent:
        print("Not installed:", ", ".join(absent))
    if arguments.chart:
        draw({name: result["seconds"] / unit for name, result in results.items()}, arguments.chart)


def draw(times: dict[str, float], path: pathlib.Path) -> None:
    """Draw the times as bars."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4), layout="constrained")
    axes = figure.subplots()
    names = list(times)[::-1]
    colours = ["#0072B2" if name.startswith("avgk") else "#999999" for name in names]
    bars = axes.barh(names, [times[name] for name in names], color=colours)
    axes.bar_label(bars, fmt="%.2f", padding=3)
    axes.set_xscale("log")
    axes.set_xlabel("time in bare reads of the store (logarithmic)")
    axes.spines[["top", "right"]].set_visible(False)
    axes.margins(x=0.12)
    figure.savefig(path, dpi=150)


if __name__ == "__main__":
    main()
