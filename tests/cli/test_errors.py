"""Refusals: one line, the exit status, and a hint that can be typed."""

from __future__ import annotations

import click
import numpy as np
import pytest
import zarr

import avgk_dask as avgk
from avgk_dask.cli import main
from avgk_dask.cli.group import spelled


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    "line, message",
    [
        ("evaluate score.zarr", "Did you mean 'scores.zarr'?"),
        ("evaluate ./deep/scores.zar", "Check the path"),
        ("verify scores.npy", "avgk ingest scores.npy [LABELS] --out scores.zarr"),
        ("evaluate scores.pkl", "Pickles are never loaded, as they can run any code: load it yourself, and use numpy.save."),
        ("ingest scores.pkl --out x.zarr", "Supported formats: .npy, .npz, .parquet, .csv, .csv.gz, .arrow, .feather, folders"),
        ("ingest scores.npy scores.pkl --out x.zarr", "Pickles are never loaded"),
        ("ingest none.csv --out x.zarr", "scores must have at least one sample; none.csv has none. Check how it was saved."),
        ("ingest score.npy --out x.zarr", "Did you mean 'scores.npy'?"),
        ("ingest scores.npy label.npy --out x.zarr", "Did you mean 'labels.npy'?"),
        ("evaluate scores.zarr --scores scoers", "Did you mean 'scores'?"),
        ("evaluate scores.zarr --labels lables", "Did you mean 'labels'?"),
        ("evaluate deep.zarr --scores run1/logit", "Did you mean 'run1/logits'?"),
        ("evaluate deep.zarr", "Name the array to use with --scores NAME or --labels NAME"),
        ("evaluate scores.zarr -k abc", "a budget must be a number such as 5 or 2.5, or several: 1,3,5 or 1:10; got 'abc'"),
        ("evaluate scores.zarr -k 21", "-k must be a real number in (0, C] with C = 20 classes; got 21. Pass numbers above 0, up to 20."),
        ("evaluate scores.zarr -k 0", "got 0. Pass numbers above 0, up to 20."),
        ("evalute scores.zarr", "No such command 'evalute'. Did you mean 'evaluate'?"),
        ("zzz", "No such command 'zzz'. avgk --help lists them."),
        ("evaluate scores.zarr --jsn", "--json"),
        ("evaluate scores.zarr --ties frist", "'frist' is not one of 'first', 'spread'"),
        ("ingest scores.npy --out scores.zarr", "or replace it with --overwrite."),
        ("ingest scores.npy --out x.zarr --out-option secret", "--out-option must be KEY=VALUE"),
    ],
)  # fmt: skip
def test_errors__hint_at_what_was_meant(own_folder, run, line, message):
    zarr.open_group(own_folder / "deep.zarr", mode="w").create_array("run1/logits", data=np.eye(3))
    (own_folder / "scores.pkl").write_bytes(b"")
    (own_folder / "none.csv").write_text("a,b\n")
    before = sorted(own_folder.rglob("*"))
    done = run(*line.split(), cwd=own_folder)
    assert message in done.stderr
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert sorted(own_folder.rglob("*")) == before


def test_errors__of_missing_chunks_name_the_option(tmp_path, run):
    array = zarr.create_array(tmp_path / "a.zarr", shape=(60, 5), chunks=(20, 5), dtype="f4")
    array[:40] = np.random.default_rng(0).random((40, 5))
    done = run("evaluate", tmp_path / "a.zarr")
    assert done.returncode == 1
    assert "--missing fill" in done.stderr
    assert "missing=" not in done.stderr
    assert "missing=" not in run("info", tmp_path / "a.zarr").stdout


def test_errors__of_truncated_stores_name_the_option(tmp_path, run):
    with avgk.ScoreWriter(tmp_path / "top.zarr", 50, top_m=4) as writer:
        writer.append(np.random.default_rng(0).random((30, 50)))
    done = run("evaluate", tmp_path / "top.zarr", "-k", 3)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "straddle=" not in done.stderr
    assert "-k must be at most" in done.stderr


@pytest.mark.parametrize("place", ["before", "after"])
def test_debug__shows_the_traceback_wherever_it_stands(folder, run, place):
    args = ["evaluate", "nowhere.zarr"]
    done = run(*(["--debug", *args] if place == "before" else [*args, "--debug"]), cwd=folder)
    assert done.returncode == 2
    assert "Traceback (most recent call last)" in done.stderr
    assert done.stderr.splitlines()[-1].startswith("avgk: no such store")
    assert "Traceback" not in run(*args, cwd=folder).stderr


@pytest.mark.parametrize(
    "error, status, message",
    [
        (KeyboardInterrupt(), 130, "interrupted"),
        (RuntimeError("two\nlines"), 1, "two lines"),
        (ZeroDivisionError(), 1, "ZeroDivisionError"),
        (avgk.ReadError("a chunk is damaged"), 1, "a chunk is damaged"),
        (avgk.ClusterError("no workers"), 1, "no workers"),
        (avgk.StoreError("no store"), 2, "no store"),
        (MemoryError(), 1, "MemoryError"),
    ],
)
def test_errors__have_one_exit_status_each(folder, run, monkeypatch, error, status, message):
    def fail(*args, **kwargs):
        raise error

    monkeypatch.setattr("avgk_dask.api.evaluate.evaluate_with_curve", fail)
    done = run("evaluate", "scores.zarr", cwd=folder)
    assert (done.returncode, done.stdout, done.stderr) == (status, "", f"avgk: {message}\n")


@pytest.mark.parametrize(
    "python, typed",
    [
        ("out must not be there.", "--out must not be there."),
        ("top_m must be positive.", "--top-m must be positive."),
        ("With straddle=False (on the command line --no-straddle) more.", "With --no-straddle more."),
        ('last with nan_policy="lowest" (on the command line --nan-policy lowest).', "last with --nan-policy lowest."),
        ("a.zarr is a single array. Drop the names.", "a.zarr is a single array. Drop --scores and --labels."),
        ("nothing to spell", "nothing to spell"),
    ],
)
def test_spelling__is_that_of_the_command_line(python, typed):
    assert spelled(python) == typed


def test_errors__of_a_failed_write_are_failures_not_refusals(folder, run):
    done = run("ingest", "scores.npy", "--out", "/dev/null/scores.zarr", cwd=folder)
    assert done.returncode == 1
    assert done.stderr.startswith("avgk: could not write /dev/null/scores.zarr")
    assert done.stderr.count("\n") == 1


def test_storage_options__have_a_key(folder, run):
    done = run("evaluate", "scores.zarr", "--storage-option", "=x", cwd=folder)
    assert (done.returncode, done.stderr) == (2, "avgk: --storage-option must be KEY=VALUE; got one without a key.\n")


def words(param, value=None):
    """Return what a parameter takes on the command line: any value that it can have, if none is given."""
    if value is None:
        value = param.type.choices[0] if isinstance(param.type, click.Choice) else "1"
    return [value] if isinstance(param, click.Argument) else [param.opts[0], value]


@pytest.mark.parametrize("command", main.commands.values(), ids=lambda command: command.name)
def test_empty_values__are_refused_for_every_argument_and_option(command):
    valued = [param for param in command.params if not getattr(param, "is_flag", False)]
    for param in valued:
        for empty in ("", "  "):
            args = []
            for other in valued:  # arguments take their values in order
                if other is param or other.required or isinstance(other, click.Argument):
                    args += words(other, empty if other is param else None)
            with pytest.raises(click.BadParameter, match="it must not be empty") as refused:
                command.make_context(command.name, args)
            assert refused.value.param is param, args
