"""The command line as a user meets it: output, files, exit statuses, one-line errors."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys

import numpy as np
import pytest
import xarray as xr
import zarr

import avgk_dask as avgk
from avgk_dask.results import datasets as json_text


def avgk_process(*args, cwd=None):
    return subprocess.run([sys.executable, "-m", "avgk_dask", *map(str, args)], capture_output=True, text=True, cwd=cwd)


@pytest.fixture(scope="module")
def toy(tmp_path_factory):
    path = tmp_path_factory.mktemp("cli") / "toy.zarr"
    done = avgk_process("simulate", "--example", 2, "--samples", 3000, "--soft", "--out", path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "3,000 samples x 6 classes" in done.stdout
    return path


def test_evaluate__prints_a_table_and_what_it_means(toy, run):
    done = run("evaluate", toy, "-k", "1:3")
    assert (done.returncode, done.stderr) == (0, "")
    assert "11.11 %" in done.stdout
    assert "(average-2) makes 100.0 % fewer errors than returning exactly 2 (top-2)" in done.stdout


def test_evaluate__prints_json_that_comes_back(toy, run):
    done = run("evaluate", toy, "-k", "0.5,2", "--json")
    result = json_text.from_json(done.stdout)
    assert result.k.values.tolist() == [0.5, 2]
    assert result.drop_attrs().identical(avgk.evaluate(toy, k=[0.5, 2]).drop_attrs())


def test_evaluate__writes_its_three_files(toy, tmp_path, run):
    for _ in range(2):  # and again over its own
        done = run("evaluate", toy, "-k", 2, "--out", tmp_path / "out")
        assert done.returncode == 0
        assert "report.html" in done.stderr
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == ["metrics.json", "metrics.zarr", "report.html"]
    stored = xr.open_zarr(tmp_path / "out" / "metrics.zarr", consolidated=False).load()
    assert stored.identical(json_text.from_json((tmp_path / "out" / "metrics.json").read_text()))
    page = (tmp_path / "out" / "report.html").read_text()
    assert "fewer errors" in page
    assert not re.search(r"""(src|href)=["']?https?:""", page)  # nothing is fetched


@pytest.mark.slow
def test_evaluate__puts_every_k_into_the_report_and_no_more_into_the_metrics(tmp_path, run):
    simulated = avgk.testing.simulate(600, 30)
    store = tmp_path / "s.zarr"
    with avgk.ScoreWriter(store, n_classes=30) as writer:
        writer.append(np.asarray(simulated.scores), np.asarray(simulated.labels))
    budgets = {}
    for option in ("--curve", "--no-curve"):
        assert run("evaluate", store, "-k", "1,2.5", option, "--out", tmp_path / option).returncode == 0
        page = (tmp_path / option / "report.html").read_text()
        match = re.search(r'id="slider-data">(.*?)</script>', page, re.S)
        budgets[option] = match and json.loads(match[1])["budgets"]
    assert budgets == {"--curve": [str(k) for k in range(1, 31)], "--no-curve": None}
    one, other = (json_text.from_json((tmp_path / o / "metrics.json").read_text()) for o in budgets)
    assert one.identical(other)
    assert one.k.values.tolist() == [1, 2.5]


def test_commands__run_on_a_local_cluster(toy, tmp_path):
    pytest.importorskip("distributed")
    done = avgk_process("evaluate", toy, "-k", "2", "--workers", 1, "--threads", 1)
    assert done.returncode == 0
    assert re.fullmatch(r"avgk: dashboard http://127\.0\.0\.1:\d+/status\n", done.stderr)
    assert "11.11 %" in done.stdout
    done = avgk_process("sets", toy, "-k", "2", "--out", tmp_path / "sets.zarr", "--workers", 1, "--quiet")
    assert (done.returncode, done.stderr) == (0, "")
    assert "6,000 labels in total" in done.stdout


@pytest.mark.slow
def test_evaluate__shows_progress_on_a_terminal(toy):
    pty = pytest.importorskip("pty")
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "avgk_dask", "evaluate", str(toy), "-k", "2"]
    with subprocess.Popen(command, stderr=theirs, stdout=subprocess.PIPE) as run:
        table = run.stdout.read()
    os.close(theirs)
    bar = os.read(ours, 1 << 16).decode()
    os.close(ours)
    assert b"11.11 %" in table
    assert "avgk scan" in bar
    assert "100%" in bar


def test_evaluate__default_budgets_end_at_the_number_of_classes(toy, run):
    assert json_text.from_json(run("evaluate", toy, "--json").stdout).k.values.tolist() == [1, 2, 3, 4, 5, 6]


def test_threshold__prints_text_and_json(toy, run):
    assert (
        run("threshold", toy, "-k", 2).stdout
        == "k = 2: threshold 0.0, 6,000 scores above it, 12,000 equal to it (ties), 0 of these kept\n"
    )
    (row,) = json.loads(run("threshold", toy, "-k", 2, "--json").stdout)
    assert row == {"k": 2.0, "threshold": 0.0, "n_above": 6000, "n_ties": 12000, "n_kept": 0}


@pytest.mark.slow
def test_demo__does_it_all_and_again(tmp_path, run):
    for _ in range(2):
        done = run("demo", "--samples", 2000, "--classes", 50, cwd=tmp_path)
        assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "avgk-demo" / "report.html").exists()
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("precious")
    zarr.open_group(tmp_path / "also" / "scores.zarr", mode="w").create_array("scores", data=np.eye(3))
    for folder in ("mine", "also"):
        refused = run("demo", "--out", folder, cwd=tmp_path)
        assert refused.returncode == 2
        assert "must be a new or empty folder" in refused.stderr
    assert (tmp_path / "mine" / "thesis.txt").read_text() == "precious"
    assert np.array_equal(zarr.open_group(tmp_path / "also" / "scores.zarr")["scores"][:], np.eye(3))


def test_simulate__overwrites_stores_only(tmp_path, run):
    (tmp_path / "thesis.txt").write_text("precious")
    for out in (".", tmp_path, "thesis.txt"):
        refused = run("simulate", "--out", out, "--samples", 5, "--classes", 3, "--overwrite", cwd=tmp_path)
        assert refused.returncode == 2
        assert "it is not a Zarr store" in refused.stderr
    assert [p.name for p in tmp_path.iterdir()] == ["thesis.txt"]


def test_evaluate__refuses_to_write_into_a_store(toy, run):
    before = sorted(p.name for p in toy.iterdir())
    refused = run("evaluate", toy, "-k", 2, "--out", toy)
    assert (refused.returncode, sorted(p.name for p in toy.iterdir())) == (2, before)


@pytest.fixture(scope="module")
def nan_store(tmp_path_factory):
    path = tmp_path_factory.mktemp("cli") / "nan.zarr"
    group = zarr.open_group(path, mode="w")
    group.create_array("logits", data=np.array([[1.0, np.nan], [0.5, 2.0]]))
    group.create_array("y", data=np.array([0, 1]))
    return path


def test_evaluate__takes_names_of_arrays(nan_store, run):
    done = run(
        "evaluate", nan_store, "--scores", "logits", "--labels", "y", "-k", 1, "--nan-policy", "lowest", "--json"
    )
    assert json_text.from_json(done.stdout).average_k_error.values.tolist() == [0.0]


@pytest.mark.parametrize(
    "args, status, message",
    [
        (["evaluate", "nowhere.zarr"], 2, "no such store or file"),
        (["evaluate", "TOY", "-k", "7"], 2, "C = 6 classes; got 7"),
        (["evaluate", "TOY", "-k", "five"], 2, "got 'five'"),
        (["evaluate", "TOY", "-k", "3:1"], 2, "lower first"),
        (["evaluate", "TOY", "--scores", "scoers"], 2, "no array 'scoers'; it has labels, scores"),
        (["evaluate", "TOY", "--storage-option", "secret"], 2, "KEY=VALUE"),
        (["evaluate", "TOY", "--scheduler", "tcp://127.0.0.1:9", "--workers", "2"], 2, "running cluster"),
        (["evaluate", "NAN", "--scores", "logits", "-k", "1"], 2, "sample 0, class 1"),
        (["simulate", "--out", "TOY"], 2, "exists already"),
        (["simulate", "--out", "x.zarr", "--dtype", "complex64"], 2, "real numbers"),
        (["evaluate"], 2, "Missing argument"),
        (["threshold", "TOY"], 2, "Missing option '-k'"),
        (["evaluate", "TOY", "--scheduler-file", "nope.json"], 2, "no such scheduler file"),
        (["simulate", "--out", "x.zarr", "--dtype", "float99"], 2, "one that NumPy knows"),
        (["simulate", "--out", "x.zarr", "--ambiguity", "nan"], 2, "ambiguity must"),
        (["simulate", "--out", "x.zarr", "--example", "2", "--classes", "7"], 2, "must be 6"),
        (["no-such-command"], 2, "No such command"),
    ],
)
def test_errors__are_one_line_and_say_what_to_do(toy, nan_store, tmp_path, args, status, message, run):
    args = [{"TOY": toy, "NAN": nan_store}.get(a, a) for a in args]
    done = run(*args, cwd=tmp_path)
    assert done.returncode == status
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""
    assert not list(tmp_path.iterdir())


def test_errors__of_a_damaged_store_exit_with_1(tmp_path, run):
    zarr.create_array(tmp_path / "d.zarr", data=np.random.default_rng(0).random((40, 5)), chunks=(10, 5))
    (tmp_path / "d.zarr" / "c" / "1" / "0").write_bytes(b"rubbish")
    done = run("evaluate", tmp_path / "d.zarr", "-k", "1")
    assert done.returncode == 1
    assert "chunk c/1/0" in done.stderr
    assert done.stderr.count("\n") == 1
    assert "Traceback" in run("--debug", "evaluate", tmp_path / "d.zarr", "-k", "1").stderr


def test_report__shows_hostile_names_as_text(tmp_path):
    from avgk_dask.report import render_report

    result = avgk.evaluate(np.eye(3), np.arange(3), 1)
    result.attrs["store"] = '<script>alert("x")</script>'
    page = render_report(result)
    assert page.count("<script>") == 1  # its own
    assert "<script>alert" not in page
    assert "&lt;script&gt;" in page


def test_ingest_info_verify__work_from_the_terminal(tmp_path, run):
    scores = np.random.default_rng(0).random((60, 5), dtype=np.float32)
    np.save(tmp_path / "s.npy", scores)
    np.save(tmp_path / "l.npy", np.zeros(60, int))
    out = tmp_path / "a.zarr"
    done = run("ingest", tmp_path / "s.npy", tmp_path / "l.npy", "--out", out, "--dtype", "float16")
    assert done.returncode == 0, done.stderr
    assert "wrote 60 samples x 5 classes" in done.stdout
    assert "the scores are float32 rounded to float16" in done.stdout
    assert run("ingest", tmp_path / "s.npy", "--out", out).returncode == 2
    outcome = run("info", out)
    assert outcome.returncode == 0, outcome.stderr
    assert "60 samples x 5 classes, float16 (float32 rounded" in outcome.stdout
    assert json.loads(run("info", out, "--json").stdout)["n_samples"] == 60
    more = run("ingest", tmp_path / "s.npy", tmp_path / "l.npy", "--out", out, "--append")
    assert "wrote 60 samples x 5 classes" in more.stdout, more.stderr
    assert json.loads(run("info", out, "--json").stdout)["n_samples"] == 120
    refused = run("ingest", tmp_path / "s.npy", tmp_path / "l.npy", "--out", out, "--append", "--codec", "zstd")
    assert (refused.returncode, "codec is 'blosc', got 'zstd'" in refused.stderr) == (2, True)
    assert "2 chunks" in run("verify", out).stdout
    chunk = out / "scores" / "c" / "0" / "0"
    chunk.write_bytes(chunk.read_bytes()[::-1])
    actual = run("verify", out)
    assert actual.returncode == 1
    assert "chunk scores/c/0/0 of" in actual.stdout
    damaged = json.loads(run("verify", out, "--json").stdout)
    assert (damaged["ok"], [key for key, _ in damaged["damaged"]]) == (False, ["scores/c/0/0"])
    done = run("evaluate", out)
    assert done.returncode == 1
    assert "scores/c/0/0" in done.stderr


def test_evaluate__takes_labels_from_a_file_and_fills_missing_chunks_when_told(tmp_path, run):
    array = zarr.create_array(tmp_path / "a.zarr", shape=(60, 5), chunks=(20, 5), dtype="f4")
    array[:40] = np.random.default_rng(0).random((40, 5))
    np.save(tmp_path / "l.npy", np.zeros(60, int))
    refused = run("evaluate", tmp_path / "a.zarr")
    assert refused.returncode == 1
    assert "1 of the 3 chunks" in refused.stderr
    done = run(
        "evaluate", tmp_path / "a.zarr", "--labels", tmp_path / "l.npy", "--missing", "fill", "--json", "-k", "1"
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["attrs"]["n_labelled"] == 60


@pytest.mark.parametrize("option", ["--labels", "--clusters", "--by"])
def test_evaluate__fills_missing_chunks_of_columns_when_told(tmp_path, run, option):
    scores = np.random.default_rng(0).random((60, 5), np.float32)
    group = zarr.create_group(tmp_path / "a.zarr")
    group.create_array("scores", data=scores)
    group.create_array("labels", data=np.ones(60, int))
    group.create_array("column", data=np.arange(60) // 30, chunks=(10,))  # zarr writes the second half
    done = run("evaluate", tmp_path / "a.zarr", option, "column", "--missing", "fill", "-k", "1")
    assert done.returncode == 0, done.stderr
    refused = run("evaluate", tmp_path / "a.zarr", option, "column", "-k", "1")
    assert "missing" in refused.stderr


def test_join__makes_one_store_of_parts(tmp_path, run):
    for part in range(2):
        with avgk.ScoreWriter(tmp_path / "a.zarr", 3, part=part) as writer:
            writer.append(np.eye(3))
    assert "avgk join" in run("info", tmp_path / "a.zarr").stderr
    assert run("join", tmp_path / "a.zarr", "--parts", "3").returncode == 2
    assert run("join", tmp_path / "a.zarr", "--parts", "2").returncode == 0
    assert run("info", tmp_path / "a.zarr").returncode == 0
