"""Forked children, in which only the forking thread continues."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor

import dask
import numpy as np
import pytest

import avgk_dask
from avgk_dask.store.read.ahead import BUDGET
from avgk_dask.threads import forkable

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """Return the path of a small store of several chunks."""
    path = tmp_path_factory.mktemp("forks") / "scores.zarr"
    rng = np.random.default_rng(0)
    scores = rng.dirichlet(np.ones(12), 300).astype("f4")
    with avgk_dask.ScoreWriter(path, n_classes=12, chunk_rows=50) as writer:
        writer.append(scores, rng.integers(0, 12, 300))
    return path


def test_fork__child_evaluates_a_store_as_its_parent_did(store, forked):
    before = avgk_dask.evaluate(store, k=2)
    assert forked(lambda: avgk_dask.evaluate(store, k=2)).identical(before)


def test_fork__child_does_not_use_a_pool_of_its_parent(store, forked):
    with ThreadPoolExecutor(2) as pool, dask.config.set(pool=pool):
        before = avgk_dask.evaluate(store, k=2)
        assert forked(lambda: avgk_dask.evaluate(store, k=2)).identical(before)
        assert dask.config.get("pool") is pool


def test_fork__child_goes_on_with_scores_that_its_parent_opened(store, forked):
    data = avgk_dask.open_scores(store)
    before = avgk_dask.evaluate(data, k=2)
    assert forked(lambda: avgk_dask.evaluate(data, k=2)).identical(before)


def test_fork__client_of_the_parent_is_refused_and_one_of_the_child_is_used(store, forked):
    distributed = pytest.importorskip("distributed")
    before = avgk_dask.evaluate(store, k=2)
    options = {"threads_per_worker": 1, "processes": False, "protocol": "tcp://", "dashboard_address": None}
    with distributed.LocalCluster(1, **options) as cluster, distributed.Client(cluster):

        def evaluate_with_another_client():
            with distributed.Client(cluster.scheduler_address):
                return avgk_dask.evaluate(store, k=2)

        error = forked(lambda: avgk_dask.evaluate(store, k=2))
        assert forked(evaluate_with_another_client).identical(before)
    assert isinstance(error, avgk_dask.ClusterError)
    assert "parent process" in str(error)
    assert 'set_start_method("spawn")' in str(error)


def test_fork__locks_that_another_thread_holds_are_free_in_the_child(forked):
    lock, is_held, is_done = forkable(threading.Lock()), threading.Event(), threading.Event()

    def hold():
        with lock:
            is_held.set()
            is_done.wait()

    holder = threading.Thread(target=hold)
    holder.start()
    is_held.wait()
    try:
        assert forked(lambda: lock.acquire(timeout=0))
        assert lock.locked()
    finally:
        is_done.set()
        holder.join()


def test_fork__child_counts_nothing_that_its_parent_reads_ahead(forked):
    with BUDGET.reader(threading.get_ident()):
        assert forked(lambda: (BUDGET.n_readers, BUDGET.n_bytes)) == (0, 0)
        assert BUDGET.n_readers == 1
