"""Tie rules: the words of each table are the same."""

from __future__ import annotations

from typing import get_args

from avgk_dask.kernels.keys import TIE_DRAWS
from avgk_dask.results.registry import TIES, Ties


def test_ties__have_a_description_and_an_order_each():
    assert [*get_args(Ties)] == [*TIES] == ["first", *TIE_DRAWS]
