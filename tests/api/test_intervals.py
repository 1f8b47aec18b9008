"""Intervals of two standard errors: how often they contain the true value, over many simulated data sets."""

from __future__ import annotations

from dataclasses import dataclass

import dask
import numpy as np
import pytest

import avgk_dask as avgk

N_CLASSES, KS = 12, [1, 1.5, 2]
NAMES = ("average_k_error", "top_k_error", "adaptive_gain")


@dataclass(frozen=True)
class Draw:
    """Draws data sets: samples of different ambiguity, in clusters of some size whose samples are alike."""

    cluster_size: int

    def __call__(self, n_clusters: int, rng: np.random.Generator):
        n = n_clusters * self.cluster_size
        easy = np.repeat(rng.choice([0.1, 0.5, 2.0], n_clusters), self.cluster_size)
        shift = np.repeat(rng.normal(size=(n_clusters, N_CLASSES)), self.cluster_size, axis=0)
        p = rng.gamma(np.repeat(easy[:, None], N_CLASSES, axis=1)) * np.exp(0.5 * shift) + 1e-9
        p /= p.sum(1, keepdims=True)
        labels = (p.cumsum(1) > rng.random((n, 1))).argmax(1)
        return {"a": p**1.5, "b": p**0.7 * rng.lognormal(0, 0.4, p.shape)}, labels, np.arange(n) // self.cluster_size


def truth(draw: Draw):
    """Return the values for a very large number of samples, at their own thresholds."""
    scores, labels, _ = draw(400_000 // draw.cluster_size, np.random.default_rng(10**6))
    with dask.config.set({"avgk.kept-bytes": 1 << 30}):
        return avgk.compare(scores, labels, KS, straddle=False)


def covered(draw: Draw, n_sets: int, n_clusters: int):
    """Return the share of intervals of each quantity that contain the true value."""
    expected, hits = truth(draw), {}
    for seed in range(n_sets):
        scores, labels, clusters = draw(n_clusters, np.random.default_rng(seed))
        codes = clusters if draw.cluster_size > 1 else None
        with dask.config.set(scheduler="synchronous"):
            result = avgk.compare(scores, labels, KS, straddle=False, clusters=codes)
        pair = {"model": "a", "other": "b"}
        for name in (*NAMES, "difference", "average_against_top"):
            where = pair if name in ("difference", "average_against_top") else {"model": "a"}
            got, true, stderr = result[name].sel(where), expected[name].sel(where), result[f"{name}_stderr"].sel(where)
            inside = (np.abs(got - true) <= 1.959964 * stderr).where(~np.isnan(got))
            hits[name] = hits.get(name, 0) + inside.values
    return {name: np.asarray(count) / n_sets for name, count in hits.items()}


@pytest.mark.slow
@pytest.mark.parametrize("cluster_size, n_clusters", [(1, 800), (5, 400)])
def test_intervals__cover_the_truth_95_times_in_100(cluster_size, n_clusters):
    """With 2,000 data sets, the standard error of a coverage of 95 % is half a point; the largest of a dozen deviates more."""
    result = covered(Draw(cluster_size), 2_000, n_clusters)
    for name, shares in result.items():
        print(name, np.round(shares, 4).tolist())
        some = shares[~np.isnan(shares)]
        assert some.size
        assert ((some > 0.935) & (some < 0.965)).all(), (name, shares)


def test_intervals__of_clusters_are_wider_where_their_samples_are_alike():
    scores, labels, clusters = Draw(10)(100, np.random.default_rng(0))
    plain = avgk.evaluate(scores["a"], labels, KS, straddle=False)
    robust = avgk.evaluate(scores["a"], labels, KS, straddle=False, clusters=clusters)
    assert (robust.average_k_error_stderr > plain.average_k_error_stderr).all()
