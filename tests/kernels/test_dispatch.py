"""Which of a kernel and its twin is called."""

from __future__ import annotations

import contextvars

import dask
import numpy as np
import pytest

from avgk_dask.kernels import dispatch
from avgk_dask.kernels.dispatch import KERNELS, Kernel, is_compiling, listen, set_problem_size, watch_compiling
from avgk_dask.threads import in_threads


@pytest.fixture
def kernel():
    """A kernel whose implementations return their names."""
    actual = Kernel("count_bins")
    actual.__dict__.update(numpy=lambda *arguments: "numpy", compiled=lambda *arguments: "compiled")
    return actual


def called(kernel, *arguments, n_scores=0):
    def call():
        set_problem_size(n_scores)
        return kernel(*arguments)

    with dask.config.set({"avgk.plain-scores": 100}):
        return contextvars.copy_context().run(call)


@pytest.mark.parametrize(("n_scores", "side"), [(0, "numpy"), (100, "numpy"), (101, "compiled")])
def test_kernels__are_plain_for_small_matrices(kernel, n_scores, side):
    assert called(kernel, np.zeros(3), n_scores=n_scores) == side


@pytest.mark.parametrize(
    ("arguments", "side"),
    [
        ((np.zeros(100), 1), "numpy"),
        ((np.zeros(101), 1), "compiled"),
        ((np.zeros(2), np.zeros(101)), "compiled"),
        (((np.zeros((2, 50)), np.zeros(999)), 0, np.zeros(999)), "numpy"),  # the tile of a scan, and space to work in
        (((np.zeros((2, 51)), np.zeros(999)), 0), "compiled"),
    ],
)
def test_kernels__are_compiled_where_a_call_has_much_to_do(kernel, arguments, side):
    assert called(kernel, *arguments) == side


def test_threads__know_the_matrix_of_the_thread_that_started_them(kernel):
    def call():
        set_problem_size(101)
        return in_threads(lambda _: kernel(np.zeros(1)), range(4))

    with dask.config.set({"avgk.plain-scores": 100, "num_workers": 2}):
        assert contextvars.copy_context().run(call) == ["compiled"] * 4


def test_names__are_those_of_the_table():
    assert all(getattr(dispatch, name).name == name for name in KERNELS)
    with pytest.raises(AttributeError, match="no_kernel"):
        dispatch.no_kernel  # noqa: B018


def test_compiling__is_told_once_for_a_kernel_and_those_it_calls():
    from numba import njit

    @njit
    def inner(x):
        return x + 1

    @njit
    def outer(x):
        return inner(x)

    listen()
    reports = []
    with watch_compiling(lambda begins: reports.append((begins, is_compiling()))):
        outer(1)
        outer(2)
    outer(1.5)
    assert reports == [(True, True), (False, False)]
    assert not is_compiling()
