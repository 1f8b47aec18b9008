"""Conformal methods: each is listed once, under the name and the description that users see."""

from __future__ import annotations

from avgk_dask.bands.conformal import METHODS
from avgk_dask.results.registry import CONFORMAL_METHODS


def test_methods__are_those_that_results_describe():
    assert list(METHODS) == list(CONFORMAL_METHODS)
