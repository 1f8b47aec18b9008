"""Full disks: every function and command that writes names the place, says what to do, and leaves nothing half-written."""

from __future__ import annotations

import errno
import io
import os
import subprocess
import sys

import numpy as np
import pytest

import avgk_dask as avgk
from avgk_dask.api.written_sets import SetChoice, write_sets
from avgk_dask.testing import Simulation, simulate_store

HINT = "Make room, or choose another place."
pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture
def full(monkeypatch):
    """Return a function that makes writing fail after a number of files are opened for writing below a folder."""
    opened, low = io.open, os.open
    left: list = [None, None]

    class Full(io.RawIOBase):
        def writable(self):
            return True

        def write(self, data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))  # as the system says it: without a path

    def is_full(path, mode):
        if left[0] is None or not set("wax+") & set(mode) or not str(path).startswith(str(left[1])):
            return False
        left[0] -= 1
        return left[0] < 0

    def open_file(file, mode="r", *arguments, **options):
        result = opened(file, mode, *arguments, **options)
        if isinstance(file, int) or not is_full(file, mode):
            return result
        result.close()
        return Full() if "b" in mode else io.TextIOWrapper(Full(), write_through=True)

    def open_low(path, flags, *arguments, **options):
        if flags & os.O_WRONLY and is_full(path, "w"):
            return low("/dev/full", os.O_WRONLY)
        return low(path, flags, *arguments, **options)

    monkeypatch.setattr(io, "open", open_file)
    monkeypatch.setattr("builtins.open", open_file)
    monkeypatch.setattr(os, "open", open_low)

    def after(n, folder):
        left[:] = n, folder

    yield after
    left[0] = None


def names(folder):
    return sorted(p.name for p in folder.iterdir())


@pytest.mark.parametrize(
    "command, out",
    [
        ("simulate --samples 300 --classes 20 --out {}", "full/new.zarr"),
        ("simulate --samples 300 --classes 20 --overwrite --out {}", "full/old.zarr"),
        ("ingest scores.npy labels.npy --chunk-rows 7 --out {}", "full/new.zarr"),
        ("ingest scores.npy --overwrite --out {}", "full/old.zarr"),
        ("sets scores.zarr -k 2 --out {}", "full/new.zarr"),
        ("sets scores.zarr -k 2 --format indices --overwrite --out {}", "full/old.zarr"),
        ("evaluate scores.zarr -k 2 --out {}", "full/results"),
        ("demo --samples 50 --classes 10 --out {}", "full/demo"),
        ("join {}", "full/parts.zarr"),
    ],
)
@pytest.mark.parametrize("n", [0, 1, 4, 9])
def test_commands__name_the_place_of_a_full_disk(own_folder, run, full, command, out, n, monkeypatch):
    disk = own_folder / "full"
    disk.mkdir()
    (own_folder / "parts.zarr").rename(disk / "parts.zarr")
    simulate_store(disk / "old.zarr", Simulation(50, 5))
    before, old = names(disk), avgk.open_scores(disk / "old.zarr").load()
    full(n, disk)
    monkeypatch.chdir(own_folder)
    done = run(*command.format(disk / out.removeprefix("full/")).split(), cwd=own_folder)
    full(None, disk)
    assert done.returncode == 1, done.stderr
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith(f"avgk: could not write {disk}"), done.stderr
    assert "No space left" in done.stderr
    assert done.stderr.endswith(f"{HINT}\n")
    left = set(names(disk)) - set(before)
    assert left <= ({"demo"} if command.startswith("demo") else set())
    assert avgk.open_scores(disk / "old.zarr").load().identical(old)
    if command.startswith("join"):
        avgk.join_parts(disk / "parts.zarr")


def test_functions__raise_a_write_error_with_the_place(tmp_path, full):
    disk = tmp_path / "full"
    disk.mkdir()
    scores = np.random.default_rng(0).random((40, 5), dtype=np.float32)
    np.save(tmp_path / "s.npy", scores)
    result = avgk.evaluate(scores, np.zeros(40, int), k=1)

    def append(path):
        writer = avgk.ScoreWriter(path, 5, chunk_rows=8)
        full(0, disk)
        writer.append(scores)

    def close(path):
        writer = avgk.ScoreWriter(path, 5)
        writer.append(scores)
        full(0, disk)
        writer.close()

    writes = (
        append,
        close,
        lambda path: avgk.ScoreWriter(path, 5),
        lambda path: avgk.ingest(tmp_path / "s.npy", out=path),
        lambda path: write_sets(scores, path, SetChoice(k=1)),
        lambda path: simulate_store(path, Simulation(30, 5)),
        lambda path: avgk.report.write_report(result, path),
    )
    for number, write in enumerate(writes):
        path = disk / str(number)
        full(None if write in (append, close) else 0, disk)
        with pytest.raises(avgk.WriteError, match=HINT) as failed:
            write(path)
        assert f"could not write {path}: " in str(failed.value)
        full(None, disk)
    assert names(disk) == ["0", "1"]  # the writer can resume


def test_writer__goes_on_when_there_is_room_again(tmp_path, full):
    scores = np.random.default_rng(0).random((40, 5), dtype=np.float32)
    writer = avgk.ScoreWriter(tmp_path / "a.zarr", 5, chunk_rows=8)
    writer.append(scores[:20])
    full(1, tmp_path)
    with pytest.raises(avgk.WriteError, match=HINT):
        writer.append(scores[20:])
    full(None, tmp_path)
    with avgk.ScoreWriter(tmp_path / "a.zarr", 5, chunk_rows=8, resume=True) as again:
        again.append(scores[again.n_samples :])
    assert np.array_equal(avgk.open_scores(tmp_path / "a.zarr").scores.values, scores)


def test_report__on_a_full_disk_leaves_the_old_one(tmp_path, full):
    result = avgk.evaluate(np.eye(3), np.arange(3), k=1)
    (tmp_path / "r.html").write_text("old")
    full(1, tmp_path)  # the mark of its folder can still be written
    with pytest.raises(avgk.WriteError, match=HINT):
        avgk.report.write_report(result, tmp_path / "r.html")
    full(None, tmp_path)
    assert (tmp_path / "r.html").read_text() == "old"
    assert names(tmp_path) == ["r.html"]
    avgk.report.write_report(result, tmp_path / "r.html")
    assert (tmp_path / "r.html").read_text().startswith("<!doctype html>")
    with pytest.raises(avgk.WriteError, match=r"could not write .*nosuch"):
        avgk.report.write_report(result, tmp_path / "r.html" / "nosuch" / "r.html")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full")
@pytest.mark.parametrize(
    "command", [["evaluate", "scores.zarr", "-k", "2", "--json"], ["info", "scores.zarr"], ["--help"]]
)
def test_output__that_cannot_be_written_is_said_so(folder, command):
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "avgk_dask", *command], cwd=folder, stdout=full, stderr=subprocess.PIPE, text=True
        )
    assert (done.returncode, done.stderr) == (1, f"avgk: could not write the output: No space left on device. {HINT}\n")


def test_limits_of_files__are_full_disks_too(tmp_path):
    """A real one: the system refuses files of more than 2 kB."""
    code = """
import resource, signal, sys, numpy as np, avgk_dask as avgk
writer = avgk.ScoreWriter(sys.argv[1], 300, codec="none")
writer.append(np.random.default_rng(0).random((50, 300)))
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))
try:
    writer.close()
except avgk.WriteError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path / "a.zarr")], capture_output=True, text=True)
    assert done.stdout.startswith(f"could not write {tmp_path / 'a.zarr'}: "), done.stderr
    assert done.stdout.endswith(f"{HINT}\n")
