"""A page has at most 1 MB, whatever was evaluated."""

from __future__ import annotations

import numpy as np
import pytest
import xarray as xr

import avgk_dask as avgk
from avgk_dask.report import render_comparison, render_report, write_report
from avgk_dask.testing import simulate

#: A page in bytes.
MOST = 1_000_000
LONG = "a<b>" * 100_000


def spread_sizes(result, n_sizes):
    """Return a result with sets of all sizes below ``n_sizes``."""
    n = result.sizes["k"]
    counts = np.zeros((n, n_sizes), np.int64)
    rng = np.random.default_rng(0)
    for i in range(n):
        counts[i] = np.bincount(rng.integers(0, n_sizes, 10_000), minlength=n_sizes)
    sizes = xr.Dataset({"set_size_count": (("k", "size"), counts)}, {"size": np.arange(n_sizes)})
    kept = result.drop_dims("size").assign(sizes)
    return kept.assign_attrs(result.attrs | {"n_classes": n_sizes - 1})


@pytest.mark.slow
def test_report__of_a_million_set_sizes_is_small():
    toy = simulate(300, 30)
    result = spread_sizes(avgk.evaluate(toy.scores, toy.labels, k=[1, 2, 5]), 10**6 + 1)
    page = render_report(result)
    assert len(page.encode()) < MOST
    assert "sizes" in page


@pytest.mark.slow
def test_report__of_thousands_of_budgets_is_small():
    rng = np.random.default_rng(0)
    scores = rng.dirichlet(np.full(600, 0.02), 50)
    labels = rng.integers(0, 600, 50)
    result = avgk.evaluate(scores, labels, k=np.arange(1, 1_201) / 2, straddle=False)
    page = render_report(result)
    assert len(page.encode()) < MOST
    assert "400 of 1,200 budgets" in page


def test_report__of_a_hundred_budgets_with_straddle_is_small_and_folded(opened):
    toy = simulate(400, 250)
    result = avgk.evaluate(toy.scores, toy.labels, k=range(1, 101))
    assert len(render_report(result).encode()) < MOST
    page = opened(lambda path: write_report(result, path))
    assert page.evaluate("document.documentElement.scrollHeight") < 5_000
    assert page.locator("#results details tbody tr").count() == 100


@pytest.mark.slow
def test_report__of_long_texts_is_small():
    toy = simulate(300, 30)
    result = avgk.evaluate(toy.scores, toy.labels, k=[1, 2])
    result.attrs |= {"store": LONG, **{f"{i}{LONG[:10_000]}": LONG for i in range(100)}}
    named = xr.DataArray(toy.scores, dims=("sample", "class")).assign_coords(
        {"class": [f"{i}{LONG}" for i in range(30)]}
    )
    groups = avgk.breakdown(named, toy.labels, 2)
    page = render_report(result, breakdown=groups)
    assert len(page.encode()) < MOST
    assert "(400,000 characters)" in page


@pytest.mark.slow
@pytest.mark.parametrize("n_models", [2, 30])
def test_comparison__of_many_models_with_long_names_is_small(n_models):
    toy = simulate(100, 12)
    rng = np.random.default_rng(0)
    models = {f"{i}{LONG[:20_000]}": rng.permuted(np.asarray(toy.scores), axis=1) for i in range(n_models)}
    page = render_comparison(avgk.compare(models, toy.labels, k=range(1, 6), straddle=False))
    assert len(page.encode()) < MOST
    assert ("The page shows 12 of 30 models" in page) == (n_models == 30)
