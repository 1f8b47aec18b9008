"""``avgk conformal``: output, files and errors."""

from __future__ import annotations

import json

import numpy as np

import avgk_dask as avgk
from avgk_dask.results.datasets import from_json


def test_conformal__prints_the_results_of_the_functions(folder, run):
    done = run("conformal", "scores.zarr", "scores.zarr", "--alpha", "0.2", cwd=folder)
    predictor = avgk.conformal.calibrate(folder / "scores.zarr", alpha="0.2")
    result = predictor.evaluate(folder / "scores.zarr")
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    assert lines[0] == f"lac, alpha 0.2, threshold {predictor.threshold:.6g}, rank {predictor.rank} of 60"
    assert lines[3].split()[0] == f"{100 * float(result.coverage):.2f}"
    assert f"{int(result.n_hits)} of 60 labels are inside" in done.stdout
    assert len(lines) == 9  # a pipe does not wrap


def test_conformal__without_a_second_store_calibrates_and_writes_a_file(own_folder, run):
    line = [
        "conformal",
        "logits.zarr",
        "--activation",
        "softmax",
        "--method",
        "raps",
        "--penalty",
        "0.1",
        "--k-reg",
        "2",
    ]
    done = run(*line, "--seed", "4", "--out", "sets.json", cwd=own_folder)
    assert (done.returncode, done.stderr.splitlines()[-1]) == (0, "wrote sets.json")
    expected = avgk.conformal.calibrate(
        avgk.softmax(own_folder / "logits.zarr"), None, 0.1, "raps", None, 4, penalty=0.1, k_reg=2
    )
    assert avgk.conformal.load(own_folder / "sets.json") == expected
    assert done.stdout.splitlines() == [repr(expected).partition(": ")[2]]


def test_conformal__prints_one_json_document(own_folder, run):
    line = ["conformal", "scores.zarr", "scores.zarr", "--alpha", "0.5", "--by", "class", "--json", "--quiet"]
    done = run(*line, cwd=own_folder)
    document = json.loads(done.stdout)
    assert (done.returncode, done.stderr, len(document["threshold"]), document["by"]) == (0, "", 20, "class")
    predictor = avgk.conformal.calibrate(own_folder / "scores.zarr", alpha=0.5, by="class")
    result = predictor.evaluate(own_folder / "scores.zarr")
    assert from_json(json.dumps(document["result"])).equals(result)


def test_conformal__takes_labels_of_the_second_store_from_elsewhere(own_folder, run):
    np.save(own_folder / "other.npy", np.zeros(60, int))
    line = ["conformal", "scores.zarr", "scores.zarr", "--labels", "labels.npy", "--json"]
    done = run(*line, "--new-labels", "other.npy", cwd=own_folder)
    result = from_json(json.dumps(json.loads(done.stdout)["result"]))
    assert int(result.class_n_labelled[0]) == 60


def test_conformal__refuses_in_the_words_of_the_command_line(own_folder, run):
    for options, text in (
        (["--alpha", "2"], "--alpha must be a number between 0 and 1; got '2'"),
        (["--seed", "1"], "--seed must be None for the method 'lac'"),
        (["--penalty", "1"], "--penalty must be None for the method 'lac'"),
        (["--k-reg", "1"], "--k-reg must be None for the method 'lac'"),
    ):
        done = run("conformal", "scores.zarr", *options, cwd=own_folder)
        assert (done.returncode, text in done.stderr) == (2, True), done.stderr
    done = run("conformal", "logits.zarr", "--method", "aps", cwd=own_folder)
    assert (done.returncode, "must be probabilities that sum to 1" in done.stderr) == (2, True)


def test_conformal__by_group_takes_the_groups_of_both_stores_and_writes_a_page(own_folder, run):
    groups = np.arange(60) % 3
    np.save(own_folder / "a.npy", groups)
    np.save(own_folder / "b.npy", groups[::-1])
    line = ["conformal", "scores.zarr", "scores.zarr", "--alpha", "0.4", "--by", "a.npy", "--new-by", "b.npy"]
    done = run(*line, "--report", "page.html", "--json", cwd=own_folder)
    document = json.loads(done.stdout)
    predictor = avgk.conformal.calibrate(own_folder / "scores.zarr", alpha="0.4", by=groups)
    result = predictor.evaluate(own_folder / "scores.zarr", groups=groups[::-1])
    assert (document["by"], document["groups"]) == ("group", [0, 1, 2])
    assert from_json(json.dumps(document["result"])).equals(result)
    page = (own_folder / "page.html").read_text().replace("\u00a0", " ")
    assert "By group" in page
    assert f"{100 * float(result.coverage):.2f} % of the sets hold the label of their sample (target: 60.00 %)" in page


def test_conformal__refuses_groups_and_pages_without_a_second_store(own_folder, run):
    np.save(own_folder / "a.npy", np.arange(60) % 3)
    for line, words in (
        (["scores.zarr", "--report", "a.html"], "--report needs STORE"),
        (["scores.zarr", "--by", "a.npy", "--new-by", "a.npy"], "--new-by needs STORE and --by NAME"),
        (["scores.zarr", "scores.zarr", "--new-by", "a.npy"], "--new-by needs STORE and --by NAME"),
        (["scores.zarr", "scores.zarr", "--by", "a.npy"], "Name those of STORE with --new-by"),
        (["scores.zarr", "--by", "colour"], "--by must name one integer per sample"),
    ):
        done = run("conformal", *line, cwd=own_folder)
        assert (done.returncode, words in done.stderr) == (2, True), done.stderr
        assert not (own_folder / "a.html").exists()


def test_conformal__prints_the_coverage_of_groups_with_standard_errors(own_folder, run):
    np.save(own_folder / "a.npy", np.arange(60) % 3)
    line = ["conformal", "scores.zarr", "scores.zarr", "--alpha", "0.4", "--by", "a.npy", "--new-by", "a.npy"]
    lines = run(*line, cwd=own_folder).stdout.splitlines()
    assert lines[-6].split() == ["group", "labelled", "coverage", "set", "size", "p"]
    assert all("±" in row for row in lines[-5:-2])
    assert lines[-1].startswith("p: probability of a coverage this low")


def test_conformal__refuses_a_file_of_labels_for_two_stores(own_folder, run):
    done = run("conformal", "scores.zarr", "scores.zarr", "--labels", "labels.npy", cwd=own_folder)
    assert (done.returncode, "Name those of STORE with --new-labels" in done.stderr) == (2, True)
