from __future__ import annotations

import multiprocessing
import os
import pathlib
import warnings

# One compilation cache for all test processes, kept between runs.
os.environ.setdefault("NUMBA_CACHE_DIR", str(pathlib.Path.home() / ".cache" / "avgk_dask" / "numba"))
# Small matrices go the way of large ones, through the compiled kernels; tests/api/test_plain.py compares the two ways.
os.environ.setdefault("DASK_AVGK__PLAIN_SCORES", "0")
# Stores that fail for good are given up soon.
os.environ.setdefault("DASK_AVGK__RETRY_SECONDS", "0.3")

import dask
import hypothesis
import pytest

hypothesis.settings.register_profile("default", deadline=None, derandomize=True, print_blob=True)
hypothesis.settings.load_profile("default")

#: The share of each test's examples that ordinary runs take; AVGK_EXAMPLES=1 takes all.
SHARE = float(os.environ.get("AVGK_EXAMPLES", "0.25"))


def pytest_collection_modifyitems(items):
    """Take a share of the examples that hypothesis would draw."""
    for function in {
        getattr(item, "function", None) for item in items if hasattr(getattr(item, "function", None), "hypothesis")
    }:
        full = function._hypothesis_internal_use_settings
        fewer = max(min(5, full.max_examples), round(SHARE * full.max_examples))
        function._hypothesis_internal_use_settings = hypothesis.settings(full, max_examples=fewer)


DATA = pathlib.Path(__file__).resolve().parents[2] / "shared" / "data"


@pytest.fixture(scope="session")
def data() -> pathlib.Path:
    if not DATA.is_dir():
        pytest.skip("the real score sets (../shared/data) are not here")
    return DATA


@pytest.fixture
def forked():
    """Give a function that calls another in a forked child, and returns its value or the exception that it raised."""
    context = multiprocessing.get_context("fork")

    def answer(pipe, function):
        try:
            pipe.send(function())
        except Exception as error:
            pipe.send(error)

    def call(function, seconds=60):
        ours, theirs = context.Pipe(duplex=False)
        child = context.Process(target=answer, args=(theirs, function), daemon=True)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # from Python 3.12 on, of forks while threads are there
            child.start()
        try:
            assert ours.poll(seconds), "the child hangs"
            return ours.recv()
        finally:
            child.kill()
            child.join()

    return call


@pytest.fixture(autouse=True)
def untouched_scheduler():
    """Fail the test that meets, or leaves behind, another scheduler than Dask's own choice."""
    assert dask.config.get("scheduler", None) is None
    yield
    assert dask.config.get("scheduler", None) is None


@pytest.fixture(autouse=True)
def same_folder():
    """Fail the test that leaves the process in another folder."""
    before = os.getcwd()
    yield
    after = os.getcwd()
    os.chdir(before)
    assert after == before
