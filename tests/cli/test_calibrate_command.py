"""``avgk calibrate``: what the library fits, in a file that it loads."""

from __future__ import annotations

import json

import numpy as np
import pytest

import avgk_dask as avgk


@pytest.fixture
def logits(tmp_path):
    rng = np.random.default_rng(0)
    values = rng.standard_normal((200, 5)).astype("f4")
    with avgk.ScoreWriter(tmp_path / "a.zarr", 5, chunk_rows=30) as writer:
        writer.append(values, (2 * values + rng.gumbel(size=values.shape)).argmax(1))
    return tmp_path / "a.zarr"


@pytest.mark.sample(1)
@pytest.mark.parametrize("method", ["temperature", "vector", "matrix"])
def test_calibrate__writes_what_the_library_fits(method, logits, tmp_path, run):
    done = run("calibrate", logits, "--method", method, "--out", tmp_path / "c.json", "--json", "--quiet")
    assert done.returncode == 0
    document = json.loads(done.stdout)
    kinds = {"temperature": "TemperatureScaling", "vector": "VectorScaling", "matrix": "MatrixScaling"}
    calibrator, expected = (
        avgk.calibration.load(tmp_path / "c.json"),
        getattr(avgk.calibration, kinds[method])().fit(logits),
    )
    assert repr(calibrator) == repr(expected)
    assert document["nll_after"] == expected.nll_after < document["nll_before"]
    assert document["n_reads"] == expected.n_reads
    assert document["temperature"] == getattr(expected, "temperature", None)


def test_calibrate__tells_the_nll_before_and_after(logits, tmp_path, run):
    done = run("calibrate", logits, "--out", tmp_path / "c.json")
    calibrator = avgk.calibration.load(tmp_path / "c.json")
    assert done.stdout.startswith(
        f"TemperatureScaling: temperature {calibrator.temperature:.6g}, NLL {calibrator.nll_before:.6g} to"
    )
    assert f"{calibrator.n_reads} reads" in done.stdout


@pytest.mark.parametrize(
    "options, text",
    [
        (["--penalty", 1], "--penalty does not apply to --method temperature"),
        (["--method", "vector", "--bias-penalty", 1], "--bias-penalty does not apply to --method vector"),
        (["--method", "matrix", "--penalty", -1], "penalty must be"),
        (["--max-iterations", 0], "--max-iterations"),
    ],
)
def test_calibrate__refuses_options_that_do_not_fit(options, text, logits, tmp_path, run):
    done = run("calibrate", logits, "--out", tmp_path / "c.json", *options)
    assert done.returncode == 2
    assert text in done.stderr
    assert not (tmp_path / "c.json").exists()


@pytest.mark.sample(1)
@pytest.mark.parametrize("method", ["temperature", "vector"])
def test_calibration__is_what_other_commands_make_probabilities_with(method, logits, tmp_path, run):
    run("calibrate", logits, "--method", method, "--out", tmp_path / "c.json", "--quiet")
    (row,) = json.loads(run("threshold", logits, "-k", 2, "--calibration", tmp_path / "c.json", "--json").stdout)
    lazy = avgk.calibrated(logits, avgk.calibration.load(tmp_path / "c.json"))
    assert row["threshold"] == avgk.threshold(lazy, 2).value
    done = run("evaluate", logits, "-k", "1,2", "--calibration", tmp_path / "c.json", "--json", "--quiet")
    expected = avgk.evaluate(lazy, k=[1, 2]).average_k_error.values.tolist()
    assert json.loads(done.stdout)["variables"]["average_k_error"]["data"] == expected


def test_calibration__comes_alone_and_is_refused_where_it_is_damaged(logits, tmp_path, run):
    (tmp_path / "c.json").write_text("{}")
    assert run("threshold", logits, "-k", 2, "--calibration", tmp_path / "c.json").returncode == 2
    done = run("threshold", logits, "-k", 2, "--calibration", tmp_path / "c.json", "--activation", "softmax")
    assert done.returncode == 2
    assert "--calibration cannot be combined with" in done.stderr
