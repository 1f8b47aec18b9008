"""Evaluate a store of a language model: logits of (document, position, token) in float16, chunked along the tokens, with padding.

    python benchmarks/language_model.py [--documents 40] [--positions 512] [--tokens 50257] [--together 1] [--folder FOLDER]

Evaluates its softmax without the padding, on two threads and in its own process, and compares thresholds, counts and errors with
the definition, which SciPy computes document by document. Prints the reads and the peak memory. ``--together`` is the number of
documents per chunk.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import subprocess
import sys
import time
from typing import Any

import numpy as np
import zarr
from measuring import workplace
from scipy import special

BUDGETS = [1, 2.5, 5, 10]
#: Scores of each row that the definition uses: more than any set contains.
N_TOP = 200


def document(number: int, n_positions: int, n_tokens: int) -> tuple[Any, Any]:
    """Return the logits and labels of a document; positions after its end are padding."""
    rng = np.random.default_rng(number)
    frequent = -np.log(np.arange(1, n_tokens + 1))
    sharpness = rng.uniform(0.5, 3, (n_positions, 1))
    logits = (frequent + sharpness * rng.standard_normal((n_positions, n_tokens))).astype(np.float16)
    labels = logits.argmax(1)
    wrong = rng.random(n_positions) < 0.4
    labels[wrong] = np.argsort(logits[wrong], axis=1)[:, -rng.integers(2, 12)]
    length = int(rng.integers(n_positions // 4, n_positions + 1))
    labels[length:] = -100
    logits[length:] = np.nan
    return logits, labels


def make(path: pathlib.Path, options: Any) -> None:
    """Write the store."""
    if (path / "done").exists():
        return
    n, p, t = options.documents, options.positions, options.tokens
    group = zarr.open_group(path, mode="w")
    scores = group.create_array("scores", shape=(n, p, t), chunks=(options.together, p, 8192), dtype="f2")
    labels = group.create_array("labels", shape=(n, p), chunks=(n, p), dtype="i8")
    for first in range(0, n, options.together):
        some = [document(number, p, t) for number in range(first, min(first + options.together, n))]
        scores[first : first + len(some)], labels[first : first + len(some)] = (
            np.stack(part) for part in zip(*some, strict=True)
        )
    (path / "done").touch()


MEASURED = """
import json, re, sys, time
from collections import Counter

import dask, zarr
import avgk_dask as avgk
from avgk_dask.testing import CountingStore
from zarr.storage import LocalStore

dask.config.set(scheduler="threads", num_workers=2)
path, k = json.loads(sys.argv[1])
started = time.perf_counter()
result = avgk.evaluate(avgk.softmax(path), k=k, ignore_index=-100)
seconds = time.perf_counter() - started
peak = 1024 * int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1])
names = ("threshold", "n_above", "n_ties", "n_kept", "average_k_error", "top_k_error")
counting = CountingStore(LocalStore(path))
avgk.threshold(avgk.softmax(counting), 2, ignore_index=-100)
reads = [n for key, n in counting.chunk_reads().items() if key.startswith("scores")]
print(json.dumps({"seconds": seconds, "peak": peak, "n": result.attrs["n_samples"], "reads": sum(reads) / len(reads),
                  **{name: result[name].values.tolist() for name in names}}))
"""


def definition(options: Any) -> dict[str, Any]:
    """Compute the same from the definition, document by document."""
    tops, ranks, hits = [], [], []
    for number in range(options.documents):
        logits, labels = document(number, options.positions, options.tokens)
        logits, labels = logits[labels != -100], labels[labels != -100]
        p = special.softmax(logits.astype(np.float64), axis=1).astype(np.float32)
        which = np.argsort(-p, axis=1, kind="stable")[:, :N_TOP]
        tops.append(np.take_along_axis(p, which, 1))
        hits.append(p[np.arange(len(p)), labels])
        mine = p[np.arange(len(p)), labels][:, None]
        ranks.append((p > mine).sum(1) + ((p == mine) & (np.arange(p.shape[1]) < labels[:, None])).sum(1) + 1)
    top, rank, hit = np.concatenate(tops), np.concatenate(ranks), np.concatenate(hits)
    n, ordered = len(top), np.sort(np.concatenate(tops), axis=None)[::-1]
    thresholds = [ordered[int(n * k)] for k in BUDGETS]
    assert all((top[:, -1] < t).all() for t in thresholds)
    return {
        "n": n,
        "threshold": [float(t) for t in thresholds],
        "n_above": [int((top > t).sum()) for t in thresholds],
        "n_ties": [int((top == t).sum()) for t in thresholds],
        "top_k_error": [float((rank > k).mean()) if k == int(k) else None for k in BUDGETS],
        "error_above": [float((hit <= t).mean()) for t in thresholds],
        "error_with_ties": [float((hit < t).mean()) for t in thresholds],
    }


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, usual in (("documents", 40), ("positions", 512), ("tokens", 50_257), ("together", 1)):
        options.add_argument(f"--{name}", type=int, default=usual)
    options.add_argument("--folder", type=pathlib.Path)
    arguments = options.parse_args()
    with workplace(arguments.folder) as folder:
        path = folder / "-".join(["lm", *(str(n) for name, n in vars(arguments).items() if name != "folder")])
        make(path, arguments)
        started = time.perf_counter()
        command = [sys.executable, "-c", MEASURED, json.dumps([str(path), BUDGETS])]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        result = json.loads(done.stdout.splitlines()[-1])
        expected = definition(arguments)
        for name in ("n", "threshold", "n_above", "n_ties"):
            assert result[name] == expected[name], name
        for k, ours, theirs in zip(BUDGETS, result["top_k_error"], expected["top_k_error"], strict=True):
            assert theirs is None or ours == theirs, k
        for i in range(len(BUDGETS)):
            assert expected["error_with_ties"][i] <= result["average_k_error"][i] <= expected["error_above"][i]
        print(
            f"{result['n']:,} positions x {arguments.tokens:,} tokens: {result['seconds']:.1f} s, "
            f"{result['reads']:.2f} reads of a chunk, peak {result['peak'] / 1e6:.0f} MB; equal to the definition "
            f"({time.perf_counter() - started:.0f} s)"
        )


if __name__ == "__main__":
    main()
