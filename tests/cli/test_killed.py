"""Commands killed with SIGKILL before each change of the file system: the next run on that path puts all right."""

from __future__ import annotations

import json
import os
import pathlib
import pickle
import re
import shutil
import subprocess
import sys

import pytest

import avgk_dask as avgk
from avgk_dask.store.write.leases import Process

# Runs a command in children of its own that are killed before the n-th change to the file system, for some n or all, and
# then once more; prints the files in between, the outcome of the second run, and the files after it. Children, since starting Python
# and importing all takes longer than the rest.
DRIVER = """
import contextlib, hashlib, io, json, os, pathlib, shutil, signal, sys
import avgk_dask.api.evaluate, avgk_dask.api.ingestion, avgk_dask.api.written_sets, avgk_dask.report
import avgk_dask.store.write.writer
import avgk_dask.testing.simulation
import avgk_dask.report.page, pickle
from avgk_dask.cli import main

# Computing and drawing are slow and not tested here.
result = pickle.loads(pathlib.Path(sys.argv[1]).with_name("result").read_bytes())
avgk_dask.api.evaluate.evaluate = lambda *arguments, **options: result.copy()
avgk_dask.report.page.pictures = lambda result: {}
start, work, most, command = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), int(sys.argv[3]), sys.argv[4:]

def tree():
    return {str(p.relative_to(work)): hashlib.sha1(p.read_bytes()).hexdigest() if p.is_file() else ""
            for p in sorted(work.rglob("*"))}

seen, moves = [0], []

def dies_before(n):
    def counted(change):
        def call(*arguments, **options):
            if not str(work) in str(arguments[0]) and pathlib.Path(arguments[0]).is_absolute():
                return change(*arguments, **options)  # numba's own, say
            seen[0] += 1
            if change.__name__ == "replace" and "-avgk-" in str(arguments[:2]) and ".partial" not in str(arguments[0]):
                moves.append(seen[0])
            if seen[0] == n:
                os.kill(os.getpid(), signal.SIGKILL)
            return change(*arguments, **options)
        return call
    for name in ("replace", "rename", "mkdir", "rmdir", "unlink", "utime", "link"):
        setattr(os, name, counted(getattr(os, name)))

def run(n=None):
    with open(work.parent / "stderr", "w") as stderr, open(os.devnull, "w") as stdout:
        child = os.fork()
        if not child:
            os.chdir(work)
            os.dup2(stderr.fileno(), 2), os.dup2(stdout.fileno(), 1)
            dies_before(n)
            status = 0
            try:
                main.main(args=command, prog_name="avgk")
            except SystemExit as stop:
                status = stop.code or 0
            (work.parent / "seen").write_text(json.dumps([seen[0], moves]))
            os._exit(status)
        status = os.waitpid(child, 0)[1]
    return os.waitstatus_to_exitcode(status), (work.parent / "stderr").read_text(), child

def fresh():
    shutil.rmtree(work, ignore_errors=True)
    shutil.copytree(start, work)

fresh()
print(json.dumps([run()[0], tree()]))
last, moves = json.loads((work.parent / "seen").read_text())
# Also before, between and after the moves of a swap, and while temporary files are removed.
near = {m + more for m in moves for more in (0, 1)}
for n in sorted({*range(1, last + 1, -(-last // most)), *range(max(1, last - most), last + 1), *near}):
    fresh()
    status, _, pid = run(n)
    if status == -9:
        between = tree()
        print(json.dumps([n, pid, between, *run()[:2], tree()]), flush=True)
"""


#: About how many kills of a command are tried: some, or all.
MOST = pytest.mark.parametrize("most", [4, pytest.param(10**6, marks=pytest.mark.slow)])


@pytest.fixture(scope="module")
def start(folder, tmp_path_factory):
    """Give what each run begins with: files, stores, results and a demo."""
    made = tmp_path_factory.mktemp("start") / "start"
    shutil.copytree(folder, made)
    for command in (
        ["evaluate", "scores.zarr", "-k", "2", "--out", "results"],
        ["demo", "--samples", "100", "--classes", "10", "--out", "demo"],
    ):
        subprocess.run([sys.executable, "-m", "avgk_dask", *command], cwd=made, check=True, capture_output=True)
    result = avgk.evaluate(made / "scores.zarr", k=2)
    made.with_name("result").write_bytes(pickle.dumps(result))
    return made


def kills(start, tmp_path, command, most):
    """Return the state after an undisturbed run, and the states after each kill."""
    words = [
        sys.executable,
        "-W",
        "ignore",
        "-c",
        DRIVER,
        str(start),
        str(tmp_path / "work"),
        str(most),
        *command.split(),
    ]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (status, whole), *document = map(json.loads, done.stdout.splitlines())
    assert status == 0
    assert len(document) > 5
    return whole, document


def same(one, other, apart_from=r"report\.html|metrics\.json|/zarr\.json"):
    """Return whether two trees have the same names, and the same contents except for times."""
    return one.keys() == other.keys() and all(
        one[name] == other[name] for name in one if not re.search(apart_from, name)
    )


def without_traces(tree):
    """Give a tree without the journal and lease of a writer."""
    return {name: data for name, data in tree.items() if not re.search(r"/\.avgk-lease|/journal|\.partial$", name)}


@pytest.mark.slow
@MOST
@pytest.mark.parametrize(
    "command",
    [
        "simulate --samples 60 --classes 20 --out new.zarr",
        "ingest scores.npy labels.npy --chunk-rows 25 --out new.zarr",
        pytest.param("sets scores.zarr -k 2 --out new.zarr", marks=pytest.mark.slow),
    ],
)
def test_new_store__whose_run_was_killed_is_written_by_the_next(start, tmp_path, command, most):
    whole, states = kills(start, tmp_path, command, most)
    for n, pid, between, status, said, after in states:
        if any("avgk-lease/1" in name for name in between):
            assert re.search(f"process {pid} on .* stopped while writing", said), n
        if status == 0:
            assert same(after, whole, "^$"), n
        else:  # it was done, except for removing temporary files
            assert (status, "exists already" in said) == (2, True), (n, said)
            assert same(without_traces(after), whole, "^$"), n


@pytest.mark.slow
@MOST
@pytest.mark.parametrize(
    "command",
    [
        "simulate --samples 60 --classes 20 --overwrite --out scores.zarr",
        "ingest scores.npy --overwrite --out scores.zarr",
        pytest.param("sets parts.zarr/parts/00000 -k 2 --overwrite --out scores.zarr", marks=pytest.mark.slow),
    ],
)
def test_replaced_store__is_old_or_new_and_put_back_where_a_kill_fell_between(start, tmp_path, command, most):
    whole, states = kills(start, tmp_path, command, most)
    old = {str(p.relative_to(start)) for p in start.rglob("*")}
    old = {name for name in old if name.startswith("scores.zarr")}
    output = ""
    for n, pid, between, status, said, after in states:
        there = {name for name in without_traces(between) if name.startswith("scores.zarr")}
        assert there in (old, {name for name in whole if name.startswith("scores.zarr")}, set()), n
        assert status == 0, (n, said)
        assert same(after, whole, "^$"), n
        if any(re.match(r"\.scores\.zarr-avgk-[0-9a-f]{8}/owner", name) for name in between):
            assert re.search(rf"\.scores\.zarr-avgk-[0-9a-f]{{8}}, left by process {pid} on", said), (n, said)
        output += said
    assert "restored scores.zarr and removed" in output


@pytest.mark.slow
@MOST
@pytest.mark.parametrize("out", ["results", "new"])
def test_results__of_a_killed_run_are_finished_or_removed(start, tmp_path, out, most):
    whole, states = kills(start, tmp_path, f"evaluate scores.zarr -k 2 --out {out}", most)
    for n, _, between, status, said, after in states:
        assert status == 0, (n, said)
        assert same(after, whole), n
        mixed = {name.rpartition("/")[2] for name in between if name.startswith(f"{out}/")}
        if 0 < len(mixed & {"metrics.json", "metrics.zarr", "report.html"}) < 3:
            assert "installed the finished" in said


@pytest.mark.slow
@MOST
@pytest.mark.parametrize("out", ["demo", "new"])
def test_demo__is_run_again_after_any_kill(start, tmp_path, out, most):
    whole, states = kills(start, tmp_path, f"demo --samples 50 --classes 10 --out {out}", most)
    for n, _, _, status, said, after in states:
        assert status == 0, (n, said)
        assert same(after, whole), n


@pytest.mark.slow
@MOST
def test_join__is_repeated_after_any_kill(start, tmp_path, most):
    whole, states = kills(start, tmp_path, "join parts.zarr", most)
    for n, _, _, status, said, after in states:
        assert status == 0, (n, said)
        assert same(after, whole, "^$"), n


def test_leavings__are_told_unless_quiet_and_in_python_as_a_warning(own_folder, run):
    def leave():
        make_aside(own_folder / "scores.zarr", Process(*gone(), "1"))

    leave()
    done = run("ingest", "scores.npy", "--out", "scores.zarr", "--overwrite", cwd=own_folder)
    assert done.returncode == 0
    assert re.fullmatch(
        r"avgk: removed \S+\.scores\.zarr-avgk-0{8}, left by process \d+ on .*, which no longer runs\n", done.stderr
    )
    leave()
    done = run("ingest", "scores.npy", "--out", "scores.zarr", "--overwrite", "--quiet", cwd=own_folder)
    assert (done.returncode, done.stderr) == (0, "")
    leave()
    with pytest.warns(avgk.LeftoverWarning, match="removed"):
        avgk.ingest(own_folder / "scores.npy", out=own_folder / "scores.zarr", overwrite=True)
    assert not list(own_folder.glob(".*"))


def gone():
    """Give host, machine and number of a process that has ended."""
    here = Process.here()
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    return here.host, here.machine, ended.pid


def make_aside(target, process, **more):
    """Make a folder as a run leaves it that was killed."""
    from avgk_dask.store.write.leases import Holder

    folder = target.with_name(f".{target.name}-avgk-00000000")
    (folder / "new").mkdir(parents=True)
    (folder / "new" / "zarr.json").write_text("{}")
    (folder / "owner").write_bytes(Holder("0" * 32, process, 0.0, 0.0, 900.0, True).to_bytes())
    return folder


def test_folders__of_live_runs_and_of_users_are_left_alone(own_folder, run):
    here, store = Process.here(), own_folder / "scores.zarr"
    mine = own_folder / ".scores.zarr-avgk-12345678"  # named alike, without a mark
    mine.mkdir()
    (mine / "notes.txt").write_text("mine")
    marked = own_folder / ".scores.zarr-avgk-87654321"  # the mark of another
    marked.mkdir()
    (marked / "owner").write_text("me")
    (own_folder / ".scores.zarr-1a2b3c4d").mkdir()
    done = run("ingest", "scores.npy", "--out", "scores.zarr", "--overwrite", cwd=own_folder)
    assert (done.returncode, done.stderr) == (0, "")
    assert (mine / "notes.txt").read_text() == "mine"
    assert (marked / "owner").read_text() == "me"
    assert (own_folder / ".scores.zarr-1a2b3c4d").is_dir()
    parent = Process(here.host, here.machine, os.getppid(), _started(os.getppid()))
    folder = make_aside(store, parent)
    for command in (
        "ingest scores.npy --overwrite --out scores.zarr",
        "ingest scores.npy --overwrite --out ./scores.zarr",
    ):
        done = run(*command.split(), cwd=own_folder)
        assert (done.returncode, f"is being written by process {parent.pid} on" in done.stderr) == (2, True)
    assert (folder / "new" / "zarr.json").exists()


def _started(pid):
    from avgk_dask.store.write.leases import _stat

    return _stat(pid)[1]


def test_store__that_a_killed_run_had_moved_aside_is_named_to_readers(own_folder, run):
    folder = make_aside(own_folder / "scores.zarr", Process(*gone(), "1"))
    (own_folder / "scores.zarr").rename(folder / "old")
    done = run("evaluate", "scores.zarr", cwd=own_folder)
    assert done.returncode == 2
    assert f"restores {folder / 'old'}" in done.stderr
    done = run("ingest", "scores.npy", "--out", "scores.zarr", cwd=own_folder)  # which is refused: it is there again
    assert (done.returncode, done.stderr.count("\n")) == (2, 2)
    assert "restored scores.zarr" in done.stderr
    assert run("evaluate", "scores.zarr", "-k", "2", cwd=own_folder).returncode == 0
    assert not folder.exists()


@pytest.mark.slow
def test_writer__killed_while_it_replaces_a_store_leaves_none_that_seems_whole(tmp_path):
    """Whatever is left of the old one says that it is incomplete, and does not mix with a resumed one."""
    import numpy as np

    def write(path, **how):
        with avgk.ScoreWriter(path, 3, chunk_rows=2, **how) as writer:
            writer.append(np.eye(3)[np.arange(9) % 3], np.arange(9) % 3)

    code = """
import os, signal, sys, shutil, avgk_dask as avgk
n = [int(sys.argv[2])]
for name in ("unlink", "rmdir"):
    def counted(*arguments, change=getattr(os, name), **options):
        n[0] -= 1
        if not n[0]:
            os.kill(os.getpid(), signal.SIGKILL)
        return change(*arguments, **options)
    setattr(os, name, counted)
avgk.ScoreWriter(sys.argv[1], 3, chunk_rows=2, overwrite=True)
"""
    path = tmp_path / "a.zarr"
    for n in (1, 4):
        write(path, overwrite=True)
        whole = {p: p.read_bytes() for p in path.rglob("*") if p.is_file()}
        assert subprocess.run([sys.executable, "-c", code, str(path), str(n)]).returncode == -9
        with pytest.raises(avgk.StoreError, match="incomplete"):
            avgk.open_scores(path)
        with pytest.warns(avgk.LeftoverWarning), pytest.raises(avgk.StoreError, match="Write it again"):
            avgk.ScoreWriter(path, 3, chunk_rows=2, resume=True)
        write(path, overwrite=True)
        assert {p: p.read_bytes() for p in path.rglob("*") if p.is_file()} == whole
    assert pathlib.Path(path / "zarr.json").exists()
