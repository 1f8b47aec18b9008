"""``avgk transfer``: output, files and errors."""

from __future__ import annotations

import json

import numpy as np
import xarray as xr

import avgk_dask as avgk
from avgk_dask.results.datasets import from_json


def test_transfer__prints_what_the_function_gives(folder, run):
    done = run("transfer", "scores.zarr", "scores.zarr", "-k", "1,2.5", cwd=folder)
    assert done.returncode == 0
    lines = [line.split() for line in done.stdout.splitlines()]
    result = avgk.transfer(folder / "scores.zarr", folder / "scores.zarr", k=[1, 2.5])
    for row, i in ((lines[1], 0), (lines[2], 1)):
        assert float(row[0]) == result.k[i]
        assert row[1] == f"{result.threshold[i].item():.6g}"
        digits = len(row[2].partition(".")[2])
        assert row[2] == f"{result.average_set_size[i].item():.{digits}f}"
        assert row[3] == f"\N{PLUS-MINUS SIGN}{result.average_set_size_stderr[i].item():.{digits}f}"
        assert len(row[3].lstrip("\N{PLUS-MINUS SIGN}0.")) == 2  # digits of the standard error
    assert "60 samples x 20 classes; thresholds from 60 calibration samples." in done.stdout


def test_transfer__writes_json_and_zarr_and_writes_over_them_only(own_folder, run):
    line = ["transfer", "scores.zarr", "scores.zarr", "-k", "3", "--guarantee", "expected", "--out", "results"]
    done = run(*line, "--json", cwd=own_folder)
    assert (done.returncode, "wrote results/metrics.json" in done.stderr) == (0, True)
    result = from_json(done.stdout)
    assert result.attrs["guarantee"] == "expected"
    assert sorted(p.name for p in (own_folder / "results").iterdir()) == ["metrics.json", "metrics.zarr"]
    assert json.loads((own_folder / "results/metrics.json").read_text()) == json.loads(done.stdout)
    assert xr.open_zarr(own_folder / "results/metrics.zarr").load().equals(result)
    assert run(*line, cwd=own_folder).returncode == 0
    other = run("evaluate", "scores.zarr", "-k", "1", "--out", "results", cwd=own_folder)
    assert (other.returncode, "has the results of another command" in other.stderr) == (2, True)


def test_transfer__refuses_in_the_words_of_the_command_line(own_folder, run):
    done = run("transfer", "scores.zarr", "scores.zarr", "-k", "0.1", "--guarantee", "expected", cwd=own_folder)
    assert done.returncode == 2
    assert "-k must be at least C / (n + 1) = 20 / 61 for --guarantee expected; got 0.1." in done.stderr
    assert "Give at least 199 calibration samples" in done.stderr
    np.save(own_folder / "few.npy", np.eye(3))
    run("ingest", "few.npy", "--out", "few.zarr", cwd=own_folder)
    done = run("transfer", "few.zarr", "scores.zarr", "-k", "1", cwd=own_folder)
    assert (done.returncode, "CALIBRATION must have 20 classes, like the scores; got 3" in done.stderr) == (2, True)
    assert run("transfer", "scores.zarr", "-k", "1", cwd=own_folder).returncode == 2


def test_transfer__keeps_the_options_of_the_calibration_store_to_itself(own_folder, run):
    line = ["transfer", "memory://none", "scores.zarr", "-k", "1", "--calibration-option", "secret=swordfish"]
    done = run(*line, "--debug", cwd=own_folder)
    assert done.returncode != 0
    assert "swordfish" not in done.stdout + done.stderr
