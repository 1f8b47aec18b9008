"""Lazy scores of padded samples and of more dimensions: as their values in memory."""

from __future__ import annotations

from functools import lru_cache

import dask.array as da
import numpy as np
import pytest
import xarray as xr
import zarr
from zarr.storage import MemoryStore

import avgk_dask as avgk

RNG = np.random.default_rng(8)
LOGITS = (RNG.standard_normal((6, 50, 40)) * 3).astype("f4")
LABELS = np.where(RNG.random((6, 50)) < 0.3, -100, LOGITS.argmax(-1))
KEPT = LABELS != -100


@lru_cache
def fitted():
    """Give a calibrator of all classes, fitted once."""
    return avgk.calibration.VectorScaling(max_iterations=3).fit(LOGITS.reshape(-1, 40), LOGITS.argmax(-1).ravel() // 2)


MADE = {
    "softmax": avgk.softmax,
    "sigmoid": avgk.sigmoid,
    "ensemble": lambda z: avgk.ensemble([avgk.softmax(z), avgk.softmax(z, temperature=2)]),
    "weighted": lambda z: fitted().transform(z),
}


def stored(scores, chunks):
    return zarr.create_array(MemoryStore(), data=scores, chunks=chunks)


@pytest.mark.sample(1)
@pytest.mark.parametrize("name", MADE)
@pytest.mark.parametrize("chunks", [(6, 50, 40), (1, 50, 40), (2, 20, 7), (4, 50, 16)])
def test_lazy_scores__of_padded_samples_in_more_dimensions(name, chunks):
    made = MADE[name]
    eager = np.asarray(made(LOGITS.reshape(-1, 40)))[KEPT.ravel()]
    expected = avgk.evaluate(eager, LABELS[KEPT], [1, 2.5, 5])
    for scores in (stored(LOGITS, chunks), da.from_array(LOGITS, chunks=chunks), LOGITS):
        lazy = made(scores)
        assert lazy.shape == LOGITS.shape
        for options in ({"where": KEPT}, {"ignore_index": -100}):
            result = avgk.evaluate(lazy, LABELS, [1, 2.5, 5], **options)
            xr.testing.assert_equal(result, expected)
        sets = avgk.average_k_sets(lazy, 2, where=KEPT)
        assert sets.shape == LOGITS.shape
        np.testing.assert_array_equal(sets.compute()[KEPT], avgk.average_k_sets(eager, 2).compute())
        assert not sets.compute()[~KEPT].any()
        np.testing.assert_array_equal(np.asarray(lazy)[KEPT], eager)


def test_softmax__ignores_infinite_rows_of_padding_and_names_others_among_those_that_exist():
    bad = LOGITS.copy()
    bad[~KEPT] = -np.inf
    expected = avgk.evaluate(np.asarray(avgk.softmax(LOGITS[KEPT])), LABELS[KEPT], 2)
    xr.testing.assert_equal(avgk.evaluate(avgk.softmax(stored(bad, (2, 50, 9))), LABELS, 2, where=KEPT), expected)
    number = int(np.flatnonzero(KEPT.ravel())[100])
    bad.reshape(-1, 40)[number] = np.inf
    with pytest.raises(avgk.ScoresError, match=r"sample 100 \(of the existing scores\) .*infinite"):
        avgk.evaluate(avgk.softmax(stored(bad, (2, 50, 9))), LABELS, 2, where=KEPT)
