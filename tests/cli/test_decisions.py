"""``avgk compare`` and ``avgk breakdown``, and what ``avgk evaluate`` tells of clusters and groups."""

from __future__ import annotations

import json

import numpy as np
import pytest

import avgk_dask as avgk
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
    assert lines[-1].startswith("\N{PLUS-MINUS SIGN} is one standard error")
    page = (stores / "found" / "report.html").read_text()
    assert "Comparison of models" in page
    assert "small" in page
    found = avgk.compare({n: stores / f"{n}.zarr" for n in ("small", "large")}, k=[1, 2], straddle=False)
    data = json.loads((stores / "found" / "metrics.json").read_text())
    assert data["variables"]["difference"]["data"] == found.difference.values.tolist()


def test_compare__names_models_and_refuses(stores, run):
    said = run("compare", "small.zarr", "small.zarr", "-k", "1", "--quiet", cwd=stores).stdout
    assert "small (1)" in said
    for line, words in (
        (["small.zarr", "large.zarr", "--name", "a"], "--name must be given once for each of the 2"),
        (["small.zarr", "large.zarr", "--name", "a", "--name", "a"], "--name must be different"),
    ):
        done = run("compare", *line, cwd=stores)
        assert (done.returncode, words in done.stderr) == (2, True)
    assert run("compare", "small.zarr", cwd=stores).returncode == 2


def test_breakdown__prints_the_worst_and_takes_groups(stores, run):
    said = run("breakdown", "small.zarr", "-k", "1,2", "--worst", "3", "--quiet", cwd=stores).stdout.splitlines()
    assert said[0].split()[0] == "class"
    assert len(said) == 7
    assert said[-2].startswith("At k = 2, the mean over 9 classes")
    said = run("breakdown", "small.zarr", "-k", "2", "--by", "documents.npy", "--quiet", cwd=stores).stdout.splitlines()
    assert said[0].split()[0] == "group"
    assert "30 groups" in said[-2]
    bad = run("breakdown", "small.zarr", "-k", "2", "--by", "colour", cwd=stores)
    assert bad.returncode == 2
    assert "--by must name integers, one a sample, in the store or a file; got 'colour'" in bad.stderr


def test_evaluate__takes_clusters_and_shows_the_worst_classes(stores, run):
    line = "small.zarr", "-k", "1:2", "--clusters", "documents.npy", "--by", "class", "--out", "found", "--quiet"
    said = run("evaluate", *line, cwd=stores).stdout
    assert "over draws of 30 clusters like these" in said
    assert "the mean over 9 classes" in said
    page = (stores / "found" / "report.html").read_text()
    assert "By class" in page
    result = avgk.evaluate(stores / "small.zarr", k=[1, 2], clusters=stores / "documents.npy")
    data = json.loads((stores / "found" / "metrics.json").read_text())
    assert data["variables"]["average_k_error_stderr"]["data"] == result.average_k_error_stderr.values.tolist()
