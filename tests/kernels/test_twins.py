"""Every compiled kernel has a plain twin that is called the same way and needs no numba."""

from __future__ import annotations

import importlib
import inspect
import os
import pkgutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, BrokenBarrierError

import pytest
from numba.core.registry import CPUDispatcher

from avgk_dask.kernels import compiled
from avgk_dask.kernels import dispatch as twins
from avgk_dask.kernels.compiled import notice_changes
from avgk_dask.kernels.compiled.rows import gather_above
from avgk_dask.kernels.dispatch import KERNELS, compiled_kernel, numpy_kernel


def compiled_functions():
    """Yield (name, module) of each public compiled function, where it is defined."""
    for module in pkgutil.iter_modules(compiled.__path__):
        for name, value in vars(importlib.import_module(f"avgk_dask.kernels.compiled.{module.name}")).items():
            here = isinstance(value, CPUDispatcher) and value.py_func.__module__.endswith(f".{module.name}")
            if here and not name.startswith("_"):
                yield name, module.name


def test_table__has_every_public_compiled_function_once():
    actual = list(compiled_functions())
    assert len(dict(actual)) == len(actual)
    assert dict(actual) == KERNELS


@pytest.mark.parametrize("name", KERNELS)
def test_twins__are_called_like_their_kernels(name):
    twin = numpy_kernel(name)
    assert twin.__module__.endswith(f".numpy.{KERNELS[name]}")
    assert inspect.signature(twin) == inspect.signature(compiled_kernel(name).py_func)


def test_twins__need_no_numba():
    code = (
        "import sys\nfrom avgk_dask.kernels.dispatch import KERNELS, numpy_kernel\n"
        "print(len([numpy_kernel(name) for name in KERNELS]), 'numba' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.split() == [str(len(KERNELS)), "False"]


def test_kernels__are_imported_by_one_thread_at_a_time(monkeypatch):
    together = Barrier(2)

    def import_module(name, package):
        together.wait(timeout=0.2)
        return importlib.import_module(name, package)

    monkeypatch.setattr(twins, "import_module", import_module)
    with ThreadPoolExecutor(2) as pool:
        calls = [pool.submit(compiled_kernel, name) for name in ("hold_rows", "count_bins")]
    assert {type(call.exception()) for call in calls} == {BrokenBarrierError}


def test_kernels__are_imported_by_many_threads_of_a_new_process():
    code = (
        "import sys\nfrom concurrent.futures import ThreadPoolExecutor\n"
        "from avgk_dask.kernels.dispatch import KERNELS, compiled_kernel\nsys.setswitchinterval(1e-6)\n"
        "with ThreadPoolExecutor(8) as pool:\n    print(len(list(pool.map(compiled_kernel, KERNELS))))"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=120)
    assert done.stdout.split() == [str(len(KERNELS))]


def stamp(kernel):
    return kernel._cache._cache_file._source_stamp


@pytest.mark.parametrize("name", KERNELS)
def test_caches__notice_changes_of_every_file_that_a_kernel_calls(name):
    kernel = compiled_kernel(name)
    called = [kernel.py_func.__globals__.get(other) for other in kernel.py_func.__code__.co_names]
    for other in called:
        if isinstance(other, CPUDispatcher) and other.py_func.__module__ != kernel.py_func.__module__:
            assert repr(stamp(other)) in repr(stamp(kernel))


@pytest.mark.slow
def test_notice_changes__compiles_again_what_calls_a_changed_kernel(tmp_path):
    (tmp_path / "caller.py").write_text(
        "from numba import njit\nfrom avgk_dask.kernels.compiled import notice_changes\nfrom called import number\n\n"
        "@njit(cache=True)\ndef twice():\n    return 2 * number()\n\n"
        "notice_changes(twice, number)\nprint(twice())\n"
    )
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path / "cache"), "PYTHONDONTWRITEBYTECODE": "1"}
    for number in (5, 1000):
        (tmp_path / "called.py").write_text(
            f"from numba import njit\n\n@njit(cache=True)\ndef number():\n    return {number}\n"
        )
        done = subprocess.run(
            [sys.executable, "caller.py"], check=True, capture_output=True, text=True, cwd=tmp_path,
            env=environment | {"PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])},
        )  # fmt: skip
        assert int(done.stdout) == 2 * number


def test_notice_changes__leaves_what_has_no_cache_alone():
    def function():
        pass

    notice_changes(function, gather_above)
    assert vars(function) == {}
