"""A writer killed with SIGKILL at random moments: refused as incomplete, resumed, equal to the uninterrupted store."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys

import pytest

import avgk_dask as avgk

pytestmark = pytest.mark.slow

# Appends in small batches from where it may go on, and says how far it is after each.
LOOP = """
import sys, numpy as np
from avgk_dask import ScoreWriter
rng = np.random.default_rng(3)
scores, labels = rng.random((4000, 50), dtype=np.float32), rng.integers(0, 50, 4000)
with ScoreWriter(sys.argv[1], n_classes=50, chunk_rows=90, shard_chunks=2, resume=True) as writer:
    for i in range(writer.n_samples, 4000, 33):
        writer.append(scores[i : i + 33], labels[i : i + 33])
        print(writer.n_samples, flush=True)
    print("closing", flush=True)
print("closed", flush=True)
"""


def tree(path):
    """Give all files below a path with their contents."""
    return {str(p.relative_to(path)): p.read_bytes() for p in sorted(path.rglob("*")) if p.is_file()}


def run(path, lines):
    """Start the loop, and kill it after ``lines`` lines, or let it finish if that is None."""
    process = subprocess.Popen([sys.executable, "-c", LOOP, str(path)], stdout=subprocess.PIPE, text=True)
    with process:
        for number, _ in enumerate(process.stdout, 1):
            if number == lines:
                process.send_signal(signal.SIGKILL)
                break
    return process.returncode


@pytest.mark.timeout(300)
@pytest.mark.parametrize("n_kills", [6, pytest.param(18, marks=pytest.mark.slow)])
def test_writer__survives_kills_at_random_moments(tmp_path, n_kills):
    assert run(tmp_path / "whole.zarr", None) == 0
    expected = tree(tmp_path / "whole.zarr")
    moments = random.Random(4)
    refused = 0
    # Each kill falls somewhere after the line: within a batch, a chunk, its record, or the closing.
    path = tmp_path / "killed.zarr"
    for _ in range(n_kills):
        if run(path, moments.randint(1, 12)) == 0:
            break
        with pytest.raises(avgk.StoreError, match="incomplete"):
            avgk.evaluate(path, k=1)
        refused += 1
    last = tmp_path / "late.zarr"  # twice in the last steps
    for lines in (121, 123):
        if run(last, lines) != 0 and not _is_complete(last):
            refused += 1
    for path in (tmp_path / "killed.zarr", last):
        assert run(path, None) == 0
        assert tree(path) == expected
    assert refused >= n_kills - 3


def _is_complete(path):
    return json.loads((path / "zarr.json").read_text())["attributes"]["avgk_dask"]["complete"]
