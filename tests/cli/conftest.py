"""Commands run in this process, which is what a terminal does but for the start of Python."""

from __future__ import annotations

import os
import signal
import threading
from dataclasses import dataclass

import numpy as np
import pytest
from zarr.storage import LocalStore

import avgk_dask as avgk
from avgk_dask.cli import main


@dataclass(frozen=True)
class Run:
    returncode: int
    stdout: str
    stderr: str


@pytest.fixture
def run(capsys):
    """Give a function that runs ``avgk``, or another command, with these arguments."""

    def call(*args, cwd=None, command=main, name="avgk"):
        capsys.readouterr()
        before, status = os.getcwd(), 0
        os.chdir(cwd or before)
        try:
            command.main(args=[str(a) for a in args], prog_name=name)
        except SystemExit as stop:
            status = stop.code or 0
        finally:
            os.chdir(before)
        return Run(status, *capsys.readouterr())

    return call


def fill(folder):
    """Put into a folder what the examples of the help texts speak of."""
    rng = np.random.default_rng(0)
    scores = rng.dirichlet(np.full(20, 0.2), 60).astype(np.float32)
    np.save(folder / "scores.npy", scores)
    np.save(folder / "labels.npy", rng.integers(0, 20, 60))
    with avgk.ScoreWriter(folder / "scores.zarr", 20, chunk_rows=25) as writer:
        writer.append(scores, np.load(folder / "labels.npy"))
    with avgk.ScoreWriter(folder / "logits.zarr", 20, chunk_rows=25) as writer:
        writer.append(np.log(scores + 1e-9), np.load(folder / "labels.npy"))
    for part in range(2):
        with avgk.ScoreWriter(folder / "parts.zarr", 3, part=part) as writer:
            writer.append(np.eye(3))
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Give a folder with score files and stores that no test changes."""
    return fill(tmp_path_factory.mktemp("files"))


@pytest.fixture
def own_folder(tmp_path):
    """Give such a folder of a test's own."""
    return fill(tmp_path)


@pytest.fixture
def interrupt_at(monkeypatch):
    """Give a function that sets the number of the write at which a signal comes, Ctrl-C by default; the write goes on."""
    left, original = [0, signal.SIGINT], LocalStore.set

    async def write(self, *arguments):
        left[0] -= 1
        if left[0] == 0:
            signal.pthread_kill(threading.main_thread().ident, left[1])
        return await original(self, *arguments)

    monkeypatch.setattr(LocalStore, "set", write)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # jobs in the background ignore it

    def at(n: int, number: int = signal.SIGINT) -> list[int]:
        left[:] = n, number
        return left

    yield at
    signal.signal(signal.SIGINT, before)
