"""Commands print the same for a file as for its store."""

from __future__ import annotations

import json

import numpy as np
import pytest
import zarr

import avgk_dask as avgk


@pytest.fixture(scope="module")
def here(tmp_path_factory):
    """Give a folder with the same scores as a store, and as files of several kinds."""
    folder = tmp_path_factory.mktemp("files")
    rng = np.random.default_rng(1)
    scores, labels = rng.dirichlet(np.full(6, 0.3), 90).astype("f4"), rng.integers(0, 6, 90)
    np.save(folder / "scores.npy", scores)
    np.save(folder / "labels.npy", labels)
    np.save(folder / "logits.npy", np.log(scores + 1e-9))
    np.savez(folder / "both.npz", scores=scores, y=labels)
    avgk.ingest(folder / "both.npz", out=folder / "both.zarr")
    return folder


def stdout_of(done):
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    "command",
    [
        ["evaluate", "-k", "1:3"],
        ["evaluate", "--max-error", "0.3"],
        ["breakdown", "-k", "2"],
        ["threshold", "-k", "2", "--json"],
        ["conformal", "--alpha", "0.2"],
    ],
    ids=" ".join,
)
def test_commands__print_of_files_what_they_print_of_stores(here, run, command):
    name, *options = command
    expected = stdout_of(run(name, "both.zarr", *options, cwd=here))
    assert stdout_of(run(name, "both.npz", *options, cwd=here)) == expected
    assert stdout_of(run(name, "both.npz", "--labels", "y", *options, cwd=here)) == expected
    assert stdout_of(run(name, "scores.npy", "--labels", "labels.npy", *options, cwd=here)) == expected
    if name in ("evaluate", "breakdown"):
        assert stdout_of(run(name, "scores.npy", "labels.npy", *options, cwd=here)) == expected


@pytest.mark.slow
def test_evaluate__writes_the_report_of_a_file(here, run, tmp_path):
    done = run("evaluate", "scores.npy", "labels.npy", "-k", "1:2", "--out", tmp_path / "r", "--by", "class", cwd=here)
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "r" / "metrics.json").read_text())["attrs"]["store"] == "scores.npy"
    assert "scores.npy" in (tmp_path / "r" / "report.html").read_text()


def test_transfer_calibrate_sets_compare_info__take_files(here, run, tmp_path):
    assert stdout_of(run("transfer", "scores.npy", "scores.npy", "labels.npy", "-k", 2, cwd=here)) == stdout_of(
        run("transfer", "both.zarr", "both.zarr", "-k", 2, cwd=here)
    )
    stdout_of(run("calibrate", "logits.npy", "labels.npy", "--out", tmp_path / "t.json", cwd=here))
    stdout_of(run("evaluate", "logits.npy", "labels.npy", "--calibration", tmp_path / "t.json", "-k", 1, cwd=here))
    for name in ("scores.npy", "both.zarr"):
        stdout_of(run("sets", name, "-k", 1.5, "--out", tmp_path / f"{name}.sets", cwd=here))
    one, other = (zarr.open_group(tmp_path / f"{name}.sets")["sets"][:] for name in ("scores.npy", "both.zarr"))
    assert np.array_equal(one, other)
    done = run("compare", "scores.npy", "logits.npy", "--labels", "labels.npy", "-k", 1, cwd=here)
    assert " scores " in stdout_of(done)
    assert " logits " in stdout_of(done)
    described = json.loads(stdout_of(run("info", "scores.npy", "labels.npy", "--json", cwd=here)))
    assert (described["zarr_format"], described["n_samples"], described["codecs"]) == (None, 90, ["npy"])
    assert "file: npy" in stdout_of(run("info", "scores.npy", cwd=here))


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["scores.npy", "labels.npy", "--labels", "labels.npy"], "LABELS and --labels are mutually exclusive"),
        (["scores.npy", "lables.npy"], "Did you mean 'labels.npy'"),
        (["score.npy"], "no such file: 'score.npy'. Did you mean 'scores.npy'"),
        (["scores.npy", "--labels", "y"], "is a single array without names; got 'y'"),
        (["both.npz", "--labels", "z"], "has no member 'z'"),
        (["-"], "got - for standard input"),
        (["scores.npy", "scores.npy", "more.npy"], "extra argument"),
    ],
)
def test_evaluate__refuses_in_one_line(here, run, arguments, message):
    done = run("evaluate", *arguments, cwd=here)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr
