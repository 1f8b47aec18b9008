"""``--activation`` and ``--temperature``: the same numbers as the functions give."""

from __future__ import annotations

import json

import numpy as np
import pytest
import xarray as xr
from click.testing import CliRunner

import avgk_dask as avgk
from avgk_dask.cli import main


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    rng = np.random.default_rng(4)
    logits = (rng.standard_normal((300, 12)) * 3).astype("f4")
    path = tmp_path_factory.mktemp("logits") / "logits.zarr"
    with avgk.ScoreWriter(path, n_classes=12, dtype="float32", chunk_rows=70) as writer:
        writer.append(logits, logits.argmax(1))
    return path


def run(*arguments):
    return CliRunner().invoke(main, [str(a) for a in arguments])


@pytest.mark.slow
def test_evaluate__takes_logits(store, tmp_path):
    done = run(
        "evaluate", store, "-k", "1,2", "--activation", "softmax", "--temperature", "1.5", "--out", tmp_path / "out"
    )
    assert done.exit_code == 0, done.output
    document = json.loads((tmp_path / "out" / "metrics.json").read_text())
    expected = avgk.evaluate(avgk.softmax(store, temperature=1.5), k=[1, 2])
    assert document["variables"]["threshold"]["data"] == expected.threshold.values.tolist()
    assert document["attrs"]["made_by"] == "softmax, temperature 1.5"
    assert "softmax, temperature 1.5" in (tmp_path / "out" / "report.html").read_text()
    assert "not probabilities" not in done.output
    assert "--activation softmax" in run("evaluate", store, "-k", "1").stdout
    done = run("evaluate", store, "-k", "1", "--json")
    assert "--activation softmax" in done.stderr
    assert json.loads(done.stdout)["attrs"]["score_kind"] == "outside [0, 1]"


def test_threshold_and_sets__take_logits(store, tmp_path):
    (row,) = json.loads(run("threshold", store, "-k", "2", "--activation", "sigmoid", "--json").output)
    assert row["threshold"] == avgk.threshold(avgk.sigmoid(store), 2).value
    done = run("sets", store, "-k", "2", "--activation", "softmax", "--out", tmp_path / "sets.zarr")
    assert done.exit_code == 0, done.output
    expected, sets = avgk.average_k_sets(avgk.softmax(store), 2).compute(), xr.open_zarr(tmp_path / "sets.zarr")
    np.testing.assert_array_equal(sets.sets.values, expected)
    assert (sets.attrs["made_by"], sets.attrs["n_left_out"]) == ("softmax, temperature 1.0", 0)
    np.save(tmp_path / "where.npy", np.arange(300) % 3 > 0)
    done = run("sets", store, "-k", "2", "--where", tmp_path / "where.npy", "--out", tmp_path / "fewer.zarr", "--json")
    assert (json.loads(done.stdout)["made_by"], json.loads(done.stdout)["n_left_out"]) == ("", 100)


def test_temperature__needs_an_activation(store):
    done = run("threshold", store, "-k", "2", "--temperature", "2")
    assert done.exit_code == 2
    assert "--temperature needs --activation" in done.output
    assert run("threshold", store, "-k", "2", "--activation", "tanh").exit_code == 2


@pytest.mark.slow
def test_evaluate__shows_calibration_in_the_report(store, tmp_path):
    done = run("evaluate", store, "-k", "1,2", "--activation", "softmax", "--reliability", "--out", tmp_path / "out")
    assert done.exit_code == 0, done.output
    page = (tmp_path / "out" / "report.html").read_text()
    assert "<h2>Calibration</h2>" in page
    assert page.count("Reliability of the highest scores") >= 1
    assert "Calibration at the threshold" in page
    plain = run("evaluate", store, "-k", "1,2", "--activation", "softmax", "--out", tmp_path / "other")
    assert plain.exit_code == 0
    assert "<h2>Calibration</h2>" not in (tmp_path / "other" / "report.html").read_text()


def test_evaluate__takes_a_calibrator(store, tmp_path):
    done = run("calibrate", store, "--out", tmp_path / "t.json")
    assert done.exit_code == 0, done.output
    done = run("threshold", store, "-k", "2", "--calibration", tmp_path / "t.json", "--json")
    fitted = avgk.calibration.load(tmp_path / "t.json")
    assert json.loads(done.output)[0]["threshold"] == avgk.threshold(fitted.transform(store), 2).value
    done = run("threshold", store, "-k", "2", "--calibration", tmp_path / "t.json", "--activation", "softmax")
    assert done.exit_code == 2
    assert "--calibration cannot be combined with" in done.output
