"""``avgk compare``, ``avgk breakdown``, and ``avgk evaluate`` with clusters and groups."""

from __future__ import annotations

import json

import numpy as np
import pytest

import avgk_dask as avgk
from avgk_dask.api.probabilities import count_labels_by_class
from avgk_dask.testing import simulate


@pytest.fixture
def stores(tmp_path):
    toy = simulate(600, 9)
    for name, scores in (("small", toy.scores**2), ("large", toy.scores)):
        with avgk.ScoreWriter(tmp_path / f"{name}.zarr", n_classes=9) as writer:
            writer.append(scores, toy.labels)
    np.save(tmp_path / "documents.npy", np.arange(600) // 20)
    return tmp_path


def test_compare__prints_both_tables_and_writes_a_page(stores, run):
    done = run("compare", "small.zarr", "large.zarr", "-k", "1,2", "--out", "found", "--quiet", cwd=stores)
    lines = done.stdout.splitlines()
    assert lines[0].split() == ["k", "model", "top-k", "error", "avg-k", "error", "gain"]
    assert lines[6].split() == ["k", "rule", "model", "other", "difference", "discordant", "p"]
    assert max(map(len, lines[:12])) <= 80
    assert any(line.startswith("At k = 2") for line in lines)
    assert lines[-2].startswith("\N{PLUS-MINUS SIGN} is one standard error")
    page = (stores / "found" / "report.html").read_text()
    assert "Comparison of models" in page
    assert "small" in page
    comparison = avgk.compare({n: stores / f"{n}.zarr" for n in ("small", "large")}, k=[1, 2], straddle=False)
    data = json.loads((stores / "found" / "metrics.json").read_text())
    assert data["variables"]["difference"]["data"] == comparison.difference.values.tolist()


def test_compare__names_models_and_refuses(stores, run):
    said = run("compare", "small.zarr", "small.zarr", "-k", "1", "--quiet", cwd=stores).stdout
    assert "small (1)" in said
    for line, words in (
        (["small.zarr", "large.zarr", "--name", "a"], "--name must be repeated for each of the 2"),
        (["small.zarr", "large.zarr", "--name", "a", "--name", "a"], "--name must be different"),
    ):
        done = run("compare", *line, cwd=stores)
        assert (done.returncode, words in done.stderr) == (2, True)
    assert run("compare", "small.zarr", cwd=stores).returncode == 2


def test_breakdown__prints_the_worst_and_takes_groups(stores, run):
    said = run("breakdown", "small.zarr", "-k", "1,2", "--worst", "3", "--quiet", cwd=stores).stdout.splitlines()
    assert said[0].split()[0] == "class"
    assert len(said) == 9
    assert said[-4].startswith("At k = 2, the mean average-k error of 9 classes")
    assert said[-1].startswith("The table is for the largest budget")
    said = run("breakdown", "small.zarr", "-k", "2", "--by", "documents.npy", "--quiet", cwd=stores).stdout.splitlines()
    assert said[0].split()[0] == "group"
    assert "30 groups" in said[-3]
    assert said[-1] == "All samples share one threshold, for k labels per sample on average."
    own = run("breakdown", "small.zarr", "-k", "2", "--thresholds", "own", "--quiet", cwd=stores).stdout
    assert own.splitlines()[0].endswith("threshold")
    assert "Each class has its own threshold" in own
    bad = run("breakdown", "small.zarr", "-k", "2", "--by", "colour", cwd=stores)
    assert bad.returncode == 2
    assert "--by must name one integer per sample, in the store or a file; got 'colour'" in bad.stderr


@pytest.mark.slow
def test_evaluate__takes_clusters_and_shows_the_worst_classes(stores, run):
    line = "small.zarr", "-k", "1:2", "--clusters", "documents.npy", "--by", "class", "--out", "found", "--quiet"
    said = run("evaluate", *line, cwd=stores).stdout
    assert "another 30 clusters of samples" in said
    assert "the mean average-k error of 9 classes" in said
    page = (stores / "found" / "report.html").read_text()
    assert "By class" in page
    result = avgk.evaluate(stores / "small.zarr", k=[1, 2], clusters=stores / "documents.npy")
    data = json.loads((stores / "found" / "metrics.json").read_text())
    assert data["variables"]["average_k_error_stderr"]["data"] == result.average_k_error_stderr.values.tolist()


def test_breakdown__writes_a_page_with_pairs_of_classes(stores, run):
    line = "small.zarr", "-k", "1,2", "--pairs", "3", "--out", "found"
    said = run("breakdown", *line, cwd=stores)
    assert "wrote found/report.html, metrics.json and metrics.zarr" in said.stderr
    assert "\nAt k = 2, 36 pairs of classes share" in said.stdout
    page = (stores / "found" / "report.html").read_text()
    for words in ("Errors by class", "Classes that share sets", "<h2>Means</h2>"):
        assert words in page
    pairs = avgk.set_pairs(stores / "small.zarr", 2, n_pairs=3)
    assert f"<td>{int(pairs['count'][0]):,}</td>" in page
    refused = run("breakdown", "small.zarr", "-k", "2", "--pairs", "3", "--json", cwd=stores)
    assert (refused.returncode, "avgk pairs" in refused.stderr) == (2, True)


def test_breakdown__does_not_mix_sets_of_own_thresholds_with_pairs_of_others(stores, run):
    line = "small.zarr", "-k", "2", "--thresholds", "own", "--out", "own"
    assert run("breakdown", *line, cwd=stores).returncode == 0
    assert "has its own threshold" in (stores / "own" / "report.html").read_text()
    refused = run("breakdown", *line[:-1], "both", "--pairs", "3", cwd=stores)
    assert (refused.returncode, "--pairs and --thresholds own are mutually exclusive" in refused.stderr) == (2, True)


def test_pairs__prints_the_most_frequent_pairs(stores, run):
    said = run("pairs", "small.zarr", "-k", "2", "--most", "4", "--quiet", cwd=stores).stdout.splitlines()
    pairs = avgk.set_pairs(stores / "small.zarr", 2, n_pairs=4)
    rows = [[int(word) for word in line.split()[:3]] for line in said[1:5]]
    assert rows == [[int(pairs[n][i]) for n in ("class_a", "class_b", "count")] for i in range(4)]
    refused = run("pairs", "small.zarr", "-k", "1,2", cwd=stores)
    assert (refused.returncode, "-k must be one budget for pairs; got 2" in refused.stderr) == (2, True)


@pytest.mark.sample(1)
@pytest.mark.parametrize("kind", ["labels", "npy", "text"])
def test_balanced__divides_by_the_frequencies_of_classes(stores, run, kind):
    labels = np.asarray(avgk.open_scores(stores / "small.zarr").labels)
    counts = np.bincount(labels, minlength=9)
    np.save(stores / "counts.npy", counts)
    np.savetxt(stores / "counts.txt", counts)
    name = {"labels": "labels", "npy": "counts.npy", "text": "counts.txt"}[kind]
    line = "small.zarr", "-k", "1", "--balanced", name, "--json", "--quiet"
    scores = avgk.balanced(stores / "small.zarr", counts)
    evaluated = json.loads(run("evaluate", *line, cwd=stores).stdout)
    assert (
        evaluated["variables"]["average_k_error"]["data"] == avgk.evaluate(scores, k=1).average_k_error.values.tolist()
    )
    broken = json.loads(run("breakdown", *line, cwd=stores).stdout)
    expected = avgk.breakdown(scores, k=1).macro_average_k_error.values.tolist()
    assert broken["variables"]["macro_average_k_error"]["data"] == expected
    document = json.loads(run("threshold", *line, cwd=stores).stdout)
    assert document[0]["threshold"] == float(avgk.threshold(scores, 1).value)


def test_balanced__counts_the_labels_of_samples_that_exist(stores):
    labels = np.asarray(avgk.open_scores(stores / "small.zarr").labels)
    where = np.arange(600) % 3 > 0
    counts = count_labels_by_class(stores / "small.zarr", where=where)
    assert counts.tolist() == np.bincount(labels[where], minlength=9).tolist()
    counts = count_labels_by_class(stores / "small.zarr", ignore_index=2)
    assert counts.tolist() == np.bincount(labels[labels != 2], minlength=9).tolist()


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    "content, words",
    [
        (None, "no such file"),
        ("1\n2\nmany\n", "must have one number per line"),
        ("1\n2\n", "frequencies must have 9 numbers, one per class; got 2"),
        ("-1\n" * 9, "frequencies must be nonnegative numbers"),
        (np.eye(9), "must hold a vector of numbers; it has shape (9, 9)"),
    ],
)
def test_balanced__refuses_what_are_no_frequencies(stores, run, content, words):
    name = "counts.npy" if isinstance(content, np.ndarray) else "counts.txt"
    if isinstance(content, np.ndarray):
        np.save(stores / name, content)
    elif content is not None:
        (stores / name).write_text(content)
    done = run("evaluate", "small.zarr", "--balanced", name, cwd=stores)
    assert (done.returncode, done.stdout) == (2, "")
    assert words in done.stderr


@pytest.mark.slow
def test_evaluate__tells_utilities(stores, run):
    options = "--utility", "f", "--utility", "u65", "--beta", "2", "--cost", "0.01", "--cost-of", "log"
    said = run("evaluate", "small.zarr", "-k", "1,2", *options, "--out", "found", "--quiet", cwd=stores).stdout
    assert "k  top-k F2  avg-k F2  top-k u65  avg-k u65" in said
    assert "Highest F2 (minus 0.01 per unit of the logarithm of a set's size) at" in said
    result = avgk.evaluate(stores / "small.zarr", k=[1, 2])
    expected = avgk.set_utility(result, ["f", "u65"], beta=2, cost=0.01, cost_of="log")
    data = json.loads((stores / "found" / "metrics.json").read_text())
    assert data["variables"]["average_k_utility"]["data"] == expected.average_k_utility.values.tolist()
    assert data["attrs"]["cost_of"] == "log"
    assert "Utility of the sets" in (stores / "found" / "report.html").read_text()


@pytest.mark.parametrize(
    "options, words",
    [
        (["--beta", "2"], "--beta needs --utility."),
        (["--cost-of", "log"], "--cost-of needs --utility."),
        (["--utility", "u65", "--beta", "2"], "--beta needs --utility f; got --utility u65"),
    ],
)
def test_evaluate__refuses_options_of_utilities_that_say_nothing(stores, run, options, words):
    done = run("evaluate", "small.zarr", *options, cwd=stores)
    assert (done.returncode, words in done.stderr) == (2, True)
