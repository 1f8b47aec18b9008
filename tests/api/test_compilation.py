"""compile_kernels compiles every kernel that later runs need."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
from click.testing import CliRunner

import avgk_dask as avgk
from avgk_dask.cli.main import main
from avgk_dask.kernels.dispatch import compiled_kernel

RUNS = """
import sys
import avgk_dask as avgk
from avgk_dask.kernels.dispatch import watch_compiling

events = []
with watch_compiling(events.append):
    avgk.evaluate(sys.argv[1], k=range(1, 4))
    avgk.error_curve(sys.argv[1])
    avgk.conformal.calibrate(sys.argv[1])
print(len(events))
"""


def test_compile_kernels__compiles_nothing_for_no_dtypes():
    done = avgk.compile_kernels(dtypes=[])
    assert (done.n_compiled, done.seconds) == (0, 0)
    assert done.cache == compiled_kernel("hold_rows")._cache.cache_path


def test_compile_kernels__refuses_unsupported_dtypes():
    with pytest.raises(avgk.DtypeError, match="complex64"):
        avgk.compile_kernels(dtypes=["complex64"])
    done = CliRunner().invoke(main, ["compile", "--dtype", "complex64"])
    assert done.exit_code == 2


@pytest.mark.slow
def test_avgk_compile__leaves_nothing_to_compile(tmp_path):
    path = str(tmp_path / "scores.zarr")
    rng = np.random.default_rng(0)
    with avgk.ScoreWriter(path, 10) as writer:
        writer.append(rng.dirichlet(np.ones(10), 30_000).astype(np.float32), rng.integers(0, 10, 30_000))
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "numba")}

    def run(*arguments):
        done = subprocess.run([sys.executable, *arguments], check=True, capture_output=True, text=True, env=environment)
        return done.stdout

    assert str(tmp_path / "numba") in (result := run("-m", "avgk_dask", "compile", "--dtype", "float32"))
    assert result.startswith("compiled in ")
    assert run("-c", RUNS, path).strip() == "0"
    assert run("-m", "avgk_dask", "compile", "--dtype", "float32").startswith("all kernels are compiled")
    assert run("-m", "avgk_dask", "compile", "--dtype", "float32", "--quiet") == ""
