"""Runs that are killed with SIGKILL at any moment, and started again: the same bits, and almost nothing read twice."""

from __future__ import annotations

import random
import signal
import subprocess
import sys

import pytest

from avgk_dask.testing import Simulation, simulate_store

pytestmark = pytest.mark.slow

RUN = """
import hashlib, os, sys, dask, avgk_dask as avgk
from avgk_dask.store.read import direct
from avgk_dask.store.write.hashed_folder import HashedFolder

path, place, log = sys.argv[1:]
write, read, file = HashedFolder.write, direct._read_file, os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

def noisy_write(self, name, data):
    write(self, name, data)
    print("kept", flush=True)

def noisy_read(name, *rest):
    if "/scores/" in name:
        os.write(file, name.encode() + b"\\n")
    return read(name, *rest)

HashedFolder.write, direct._read_file = noisy_write, noisy_read
settings = {"avgk.small-scores": 0, "avgk.kept-bytes": 0, "avgk.task-bytes": 1, "avgk.max-events": 4_000, "avgk.least-events": 500}
with dask.config.set({**settings, "avgk.band-bytes": 0, "num_workers": 2, "scheduler": "threads"}):
    actual = avgk.evaluate(path, k=[1, 2, 5], checkpoint=None if place == "none" else place)
digest = hashlib.sha256()
for name in sorted(actual.variables):
    digest.update(name.encode() + actual[name].values.tobytes())
print("digest", digest.hexdigest(), flush=True)
"""


def run(path, place, log, n_lines=None):
    """Return the digest of a run, or None if it was killed after a number of lines."""
    command = [sys.executable, "-c", RUN, str(path), str(place), str(log)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for number, line in enumerate(process.stdout):
            if line.startswith("digest"):
                return line.split()[1]
            if number == n_lines:
                process.send_signal(signal.SIGKILL)
                return None
    raise AssertionError("it ended without a result")


@pytest.mark.parametrize("n_kills", [2, pytest.param(10, marks=pytest.mark.slow)])
def test_run__that_is_killed_goes_on_with_what_is_missing(tmp_path, n_kills):
    path, place, log = tmp_path / "s.zarr", tmp_path / "checkpoint", tmp_path / "log"
    simulate_store(path, Simulation(8_000, 30), chunks=(100, 30))
    expected = run(path, "none", tmp_path / "fresh")
    rng, done = random.Random(n_kills), 0
    while done < n_kills and run(path, place, log, rng.randint(0, 100 // n_kills)) is None:
        done += 1
    assert done >= min(2, n_kills)
    assert run(path, place, log) == expected
    n_fresh, n_read = (len(file.read_text().splitlines()) for file in (tmp_path / "fresh", log))
    assert n_read <= n_fresh + 2 * done  # each kill costs what its two threads had under way: a band each
