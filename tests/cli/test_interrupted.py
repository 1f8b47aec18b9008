"""Ctrl-C and SIGTERM at any moment leave existing files unchanged, and no others."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys

import numpy as np
import pytest
import zarr

import avgk_dask as avgk

# Ctrl-C may come between the opening of a file and the statement that closes it.
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")


ENDINGS = [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "terminated")]


def names(folder):
    return sorted(p.name for p in folder.iterdir())


@pytest.mark.slow
@pytest.mark.parametrize("number, status, said", ENDINGS)
@pytest.mark.parametrize(
    "command",
    [
        "simulate --samples 3000 --classes 20 --out new.zarr",
        "simulate --samples 3000 --classes 20 --out new.zarr --soft",
        "ingest scores.npy labels.npy --chunk-rows 7 --out new.zarr",
        "evaluate scores.zarr -k 1 --out new",
    ],
)
def test_commands__interrupted_leave_nothing_new(command, own_folder, run, interrupt_at, number, status, said):
    before = names(own_folder)
    left = interrupt_at(10**9)
    assert run(*command.split(), cwd=own_folder).returncode == 0
    n = 10**9 - left[0]
    made = (set(names(own_folder)) - set(before)).pop()
    assert n > 3
    (own_folder / made).rename(own_folder / "done")
    before = names(own_folder)
    for at in sorted({1, 2, n // 2, n - 1}):
        interrupt_at(at, number)
        done = run(*command.split(), cwd=own_folder)
        assert (done.returncode, done.stderr) == (status, f"avgk: {said}\n")
        assert names(own_folder) == before


@pytest.mark.sample(2)
@pytest.mark.parametrize("number, status, said", ENDINGS)
@pytest.mark.parametrize(
    "command",
    ["simulate --samples 3000 --classes 20", "ingest scores.npy labels.npy", "sets source.zarr -k 2 --format indices"],
)
def test_commands__interrupted_keep_the_store_they_were_to_replace(
    command, own_folder, run, interrupt_at, number, status, said
):
    shutil.copytree(own_folder / "scores.zarr", own_folder / "source.zarr")
    before = names(own_folder)
    old = avgk.open_scores(own_folder / "scores.zarr").load()
    left = interrupt_at(10**9)
    assert run(*command.split(), "--out", "other.zarr", cwd=own_folder).returncode == 0
    n = 10**9 - left[0]
    (own_folder / "other.zarr").rename(own_folder / "done")
    for at in sorted({1, 2, n // 2, n - 1}):
        interrupt_at(at, number)
        done = run(*command.split(), "--overwrite", "--out", "scores.zarr", cwd=own_folder)
        assert (done.returncode, done.stderr) == (status, f"avgk: {said}\n")
        assert names(own_folder) == sorted([*before, "done"])
        assert avgk.open_scores(own_folder / "scores.zarr").load().identical(old)


def test_evaluate__refused_makes_no_folder(own_folder, run):
    before = names(own_folder)
    for wrong in (["nosuch.zarr"], ["scores.zarr", "-k", 99]):
        assert run("evaluate", *wrong, "--out", "new", cwd=own_folder).returncode == 2
    assert names(own_folder) == before


def test_evaluate__writes_over_its_own_results_only(own_folder, run):
    mine = own_folder / "mine"
    mine.mkdir()
    (mine / "report.html").write_text("mine")
    done = run("evaluate", "scores.zarr", "-k", 2, "--out", "mine", cwd=own_folder)
    assert (done.returncode, (mine / "report.html").read_text()) == (2, "mine")
    assert "'mine' has the results of another command: report.html" in done.stderr


@pytest.mark.slow
def test_results__are_whole_stores(own_folder, run):
    assert run("evaluate", "scores.zarr", "-k", 2, "--out", "results", cwd=own_folder).returncode == 0
    assert run("verify", "results/metrics.zarr", cwd=own_folder).returncode == 0  # zeros are also stored
    group = zarr.open_group(own_folder / "results" / "metrics.zarr", mode="r")
    assert np.array_equal(group["k"][:], [2])


TERMINATED = """
import os, signal, sys
from zarr.storage import LocalStore
from avgk_dask.cli import main
left, write = [int(sys.argv.pop(1))], LocalStore.set

async def counted(self, *arguments):
    left[0] -= 1
    if left[0] == 0:
        os.kill(os.getpid(), signal.SIGTERM)
    return await write(self, *arguments)

LocalStore.set = counted
main()
"""


@pytest.mark.slow
@pytest.mark.parametrize("at", [1, 4])
def test_process__that_is_terminated_tidies_up(own_folder, at):
    before = names(own_folder)
    command = [
        sys.executable,
        "-c",
        TERMINATED,
        str(at),
        *["ingest", "scores.npy", "--chunk-rows", "7", "--out", "new.zarr"],
    ]
    done = subprocess.run(command, capture_output=True, text=True, cwd=own_folder)
    assert (done.returncode, done.stdout, done.stderr) == (143, "", "avgk: terminated\n")
    assert names(own_folder) == before


def test_sigterm__is_answered_by_commands_only(own_folder, run, monkeypatch):
    """The library sets no handler, and a command restores that of its process."""
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    seen = []
    monkeypatch.setattr("avgk_dask.api.stores.info", lambda *a, **k: seen.append(signal.getsignal(signal.SIGTERM)))
    run("info", "scores.zarr", cwd=own_folder)
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    assert callable(seen[0])
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        run("info", "scores.zarr", cwd=own_folder)
        assert signal.getsignal(signal.SIGTERM) == seen[1] == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
