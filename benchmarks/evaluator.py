"""Measure ``Evaluator.update`` in a loop, relative to a softmax, and to the smallest possible model, one linear layer.

    python benchmarks/evaluator.py [--samples 50000] [--classes 1000] [--batch 256] [--features 2048] [--repeat 5] [--data DIR]

Each loop computes the probabilities of the same batches on one thread: SciPy's softmax of existing logits, or of those of a linear
layer. It runs alternately without and with ``update``; the best of each counts. First, the results are compared with those of
``evaluate``, bit for bit, also for real scores with ``--data`` (a folder with ``imagenet5k/scores.npy`` and ``labels.npy``). The
time of ``result`` and the memory are printed separately, for one, four and sixteen times the samples.
"""

# ruff: noqa: E402
from __future__ import annotations

import os

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):  # before NumPy is imported
    os.environ.setdefault(name, "1")

import argparse
import pathlib
import time
import warnings
from collections.abc import Callable, Iterator

import numpy as np
from scipy.special import softmax

import avgk_dask as avgk

Batches = Iterator[tuple[np.ndarray, np.ndarray]]


def softmaxes(logits: np.ndarray, labels: np.ndarray, batch: int, n_samples: int) -> Batches:
    """Compute the probabilities of batches of logits, repeatedly."""
    for first in range(0, n_samples, batch):
        rows = np.s_[first % len(logits) : first % len(logits) + min(batch, n_samples - first)]
        yield softmax(logits[rows], axis=1), labels[rows]


def layers(weights: np.ndarray, features: np.ndarray, batches: Batches) -> Batches:
    """Compute a linear layer before each batch."""
    for scores, labels in batches:
        features[: len(scores)] @ weights
        yield scores, labels


def timed(batches: Batches, evaluator: avgk.Evaluator | None) -> float:
    """Return the seconds of a loop, with or without an evaluator."""
    start = time.perf_counter()
    for scores, labels in batches:
        if evaluator is not None:
            evaluator.update(scores, labels)
    return time.perf_counter() - start


def compare(name: str, make: Callable[[], Batches], n_classes: int, k: object, repeat: int) -> None:
    """Print the relative cost of ``update`` in a loop."""
    best = {}
    for _ in range(repeat):
        for kind in ("alone", "with"):
            seconds = timed(make(), avgk.Evaluator(n_classes, k) if kind == "with" else None)
            best[kind] = min(seconds, best.get(kind, seconds))
    added = best["with"] / best["alone"] - 1
    print(
        f"{name:45} {1e3 * best['alone']:9.1f} ms alone {1e3 * best['with']:9.1f} ms with update: {100 * added:+6.1f} %"
    )


def check(scores: np.ndarray, labels: np.ndarray, batch: int, name: str) -> avgk.Evaluator:
    """Compare the result of batches with that of ``evaluate``, bit for bit."""
    for straddle in (False, True):
        evaluator = avgk.Evaluator(scores.shape[1], straddle=straddle)
        for first in range(0, len(scores), batch):
            evaluator.update(scores[first : first + batch], labels[first : first + batch])
        expected = avgk.evaluate(scores, labels, straddle=straddle)
        assert evaluator.result().assign_attrs(expected.attrs).identical(expected), name
    print(f"{name}: identical to evaluate, with and without straddle strengths")
    return evaluator


def grow(logits: np.ndarray, labels: np.ndarray, batch: int, n_samples: int) -> None:
    """Print the memory for increasing numbers of samples, and the time of the result."""
    evaluator, n_before = avgk.Evaluator(logits.shape[1]), 0
    for times in (1, 4, 16):
        most = 0
        for scores, batch_labels in softmaxes(logits, labels, batch, times * n_samples - n_before):
            evaluator.update(scores, batch_labels)
            most = max(most, evaluator.n_bytes)
        n_before = times * n_samples
        start = time.perf_counter()
        evaluator.result()
        print(f"{n_before:>12,} samples: at most {most / 1e6:6.1f} MB; result in {time.perf_counter() - start:.2f} s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=50_000)
    parser.add_argument("--classes", type=int, default=1_000)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--features", type=int, default=2048)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--data", type=pathlib.Path, help="a folder with imagenet5k/scores.npy and labels.npy")
    options = parser.parse_args()
    warnings.simplefilter("ignore", avgk.ResultWarning)
    rng = np.random.default_rng(0)
    n_rows = max(1, 16_384 // options.batch) * options.batch
    logits = (3 * rng.standard_normal((n_rows, options.classes))).astype(np.float32)
    labels = rng.integers(0, options.classes, n_rows)
    check(softmax(logits, axis=1), labels, options.batch, "simulated")
    if options.data is not None:
        scores = np.load(options.data / "imagenet5k" / "scores.npy")
        check(scores, np.load(options.data / "imagenet5k" / "labels.npy"), options.batch, "ImageNet")
    weights = rng.standard_normal((options.features, options.classes)).astype(np.float32)
    features = rng.standard_normal((options.batch, options.features)).astype(np.float32)
    for k in (5, range(1, 11)):
        budgets = "5" if k == 5 else "1..10"

        def plain() -> Batches:
            return softmaxes(logits, labels, options.batch, options.samples)

        compare(f"softmax, k = {budgets}", plain, options.classes, k, options.repeat)
        compare(
            f"linear layer and softmax, k = {budgets}",
            lambda: layers(weights, features, plain()),
            options.classes,
            k,
            options.repeat,
        )
    grow(logits, labels, options.batch, options.samples)


if __name__ == "__main__":
    main()
