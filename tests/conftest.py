from __future__ import annotations

import contextlib
import multiprocessing
import os
import pathlib
import sys
import time
import warnings
import zlib

# All test processes share one kernel cache, which is kept between runs.
os.environ.setdefault("NUMBA_CACHE_DIR", str(pathlib.Path.home() / ".cache" / "avgk_dask" / "numba"))
# Reads of stores that fail permanently are not retried for long.
os.environ.setdefault("DASK_AVGK__RETRY_SECONDS", "0.3")

import dask
import hypothesis
import pytest
from hypothesis import HealthCheck

# Chosen with --hypothesis-profile. Expensive tests use a third of a profile's examples.
_always = hypothesis.settings(
    deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)
hypothesis.settings.register_profile("dev", _always, max_examples=15, derandomize=True)
hypothesis.settings.register_profile("ci", _always, max_examples=60, derandomize=True)
hypothesis.settings.register_profile("nightly", _always, max_examples=300, derandomize=False)
hypothesis.settings.load_profile("dev")


_START = time.monotonic()


def pytest_addoption(parser):
    parser.addoption("--minutes", type=float, help="skip tests that would start later than this")


def pytest_runtest_setup(item):
    minutes = item.config.getoption("--minutes")
    if minutes is not None and time.monotonic() - _START > 60 * minutes:
        pytest.skip(f"the time limit of {minutes:g} minutes has passed")


def pytest_collection_modifyitems(config, items):
    """Keep a ``sample`` of the cases of a test, spread evenly, in the default tier; move the others to the slow tier."""
    tests = {}
    for item in items:
        if item.get_closest_marker("sample"):
            tests.setdefault((item.path, item.originalname), []).append(item)
    for cases in tests.values():
        (n_kept,) = cases[0].get_closest_marker("sample").args
        kept = {round(i * (len(cases) - 1) / max(1, n_kept - 1)) for i in range(n_kept)}
        for i, item in enumerate(cases):
            if i not in kept:
                item.add_marker("slow")
    if config.getoption("--minutes") is not None:  # mixed order, so that a time limit skips files from all folders
        items.sort(key=lambda item: zlib.crc32(item.location[0].encode()))


@pytest.fixture(params=["numpy", "compiled"])
def kernels(request):
    """Run a test twice: with the NumPy kernels of small matrices, and with the compiled kernels of large ones."""
    with dask.config.set({"avgk.plain-scores": 1 << 40 if request.param == "numpy" else 0}):
        yield request.param


DATA = pathlib.Path(__file__).resolve().parents[2] / "shared" / "data"


@pytest.fixture(scope="session")
def data() -> pathlib.Path:
    if not DATA.is_dir():
        pytest.skip("the real score sets (../shared/data) are not available")
    return DATA


@pytest.fixture
def forked():
    """Return a function that calls another in a forked child, and returns its value or the exception it raised."""
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
            warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 and later warn of forks with threads
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
    """Fail the test that leaves a scheduler or a client behind, and restore Dask's own choice for the tests that follow."""
    yield
    scheduler = dask.config.get("scheduler", None)
    if scheduler is not None:
        if "distributed" in sys.modules:
            with contextlib.suppress(ValueError):  # there may be none
                sys.modules["distributed"].default_client().close(timeout=5)
        dask.config.set(scheduler=None)
    assert scheduler is None


@pytest.fixture(autouse=True)
def same_folder():
    """Fail a test that changes the current folder and does not restore it."""
    before = os.getcwd()
    yield
    after = os.getcwd()
    os.chdir(before)
    assert after == before
