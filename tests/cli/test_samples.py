"""``--where`` and ``--ignore-index``: the commands leave out what the functions do."""

from __future__ import annotations

import json

import numpy as np
import pytest
import zarr

import avgk_dask as avgk

RNG = np.random.default_rng(3)
SCORES = RNG.integers(0, 40, (60, 8)).astype("f4")
LABELS = RNG.integers(0, 8, 60)
WHERE = LABELS != 3


@pytest.fixture
def store(tmp_path):
    group = zarr.open_group(tmp_path / "a.zarr", mode="w")
    for name, data in (("scores", np.where(WHERE[:, None], SCORES, np.nan)), ("labels", LABELS), ("exists", WHERE)):
        group.create_array(name, data=data, chunks=(25, 8)[: data.ndim], config={"write_empty_chunks": True})
    np.save(tmp_path / "exists.npy", WHERE)
    zarr.create_array(tmp_path / "exists.zarr", data=WHERE, chunks=(9,), config={"write_empty_chunks": True})
    return tmp_path / "a.zarr"


def ways(store):
    where = ["exists", store.parent / "exists.npy", store.parent / "exists.zarr"]
    return [*(["--where", name] for name in where), ["--ignore-index", 3], ["--where", "exists", "--ignore-index", 3]]


def test_evaluate__leaves_out_samples_that_do_not_exist(store, run):
    expected = avgk.evaluate(SCORES[WHERE], LABELS[WHERE], 2)
    for way in ways(store):
        done = run("evaluate", store, "-k", 2, "--json", *way)
        assert done.returncode == 0, done.stderr
        document = json.loads(done.stdout)
        assert document["attrs"]["n_samples"] == WHERE.sum()
        assert document["variables"]["average_k_error"]["data"] == expected.average_k_error.values.tolist()


def test_threshold__leaves_out_samples_that_do_not_exist(store, run):
    expected = avgk.threshold(SCORES[WHERE], 2)
    for way in ways(store):
        (row,) = json.loads(run("threshold", store, "-k", 2, "--json", *way).stdout)
        assert (row["threshold"], row["n_above"], row["n_kept"]) == (expected.value, expected.n_above, expected.n_kept)


def test_sets__of_samples_that_do_not_exist_are_empty(store, run, tmp_path):
    expected = np.zeros(SCORES.shape, bool)
    expected[WHERE] = np.asarray(avgk.average_k_sets(SCORES[WHERE], 2))
    for i, way in enumerate(ways(store)):
        done = run("sets", store, "-k", 2, "--out", tmp_path / f"{i}.zarr", *way)
        assert done.returncode == 0, done.stderr
        assert np.array_equal(zarr.open_group(tmp_path / f"{i}.zarr", mode="r")["sets"][:], expected)


@pytest.mark.parametrize(
    ("way", "text"),
    [
        (["--where", "labels"], "where must be boolean"),
        (["--where", "nothing"], "nothing"),
        (["--ignore-index", "x"], "not a valid integer"),
    ],
)
def test_where__is_refused_in_one_line(store, run, way, text):
    done = run("evaluate", store, "-k", 2, *way)
    assert done.returncode == 2
    assert text in done.stderr
    assert "Traceback" not in done.stderr
