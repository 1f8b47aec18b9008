"""``avgk sets`` writes the sets of the functions, and leaves no other files after any failure."""

from __future__ import annotations

import itertools
import tracemalloc

import dask
import numpy as np
import pytest
import xarray as xr
import zarr

import avgk_dask as avgk
from avgk_dask.api.written_sets import SetChoice, write_sets
from avgk_dask.testing import CountingStore

N, C = 57, 11
LAYOUTS = {
    "rows": {"chunks": (10, C)},
    "columns": {"chunks": (9, 4)},
    "shards": {"chunks": (5, 3), "shards": (20, 6)},
    "one": {"chunks": (N, C)},
}


def matrix(kind: str) -> np.ndarray:
    rng = np.random.default_rng(7)
    if kind == "ties":
        return rng.integers(0, 4, (N, C)).astype("u1")
    return rng.standard_normal((N, C)).astype("f4")


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sets")
    for kind in ("ties", "floats"):
        for layout, keywords in LAYOUTS.items():
            group = zarr.open_group(folder / f"{kind}-{layout}.zarr", mode="w")
            group.create_array("scores", data=matrix(kind), **keywords, config={"write_empty_chunks": True})
    return folder


def read_back(path) -> np.ndarray:
    """Give the written sets as booleans, read as any user would."""
    sets = xr.open_zarr(path)
    if "sets" in sets:
        assert sets.sets.dims == ("sample", "class")
        return sets.sets.values
    assert sets.offsets.dtype == np.int64
    assert sets.classes.dtype == np.int32
    out = np.zeros((N, C), bool)
    offsets = sets.offsets.values
    for i in range(N):
        classes = sets.classes.values[offsets[i] : offsets[i + 1]]
        assert (np.diff(classes) > 0).all()
        out[i, classes] = True
    return out


@pytest.mark.slow
@pytest.mark.parametrize("form", ["booleans", "indices"])
@pytest.mark.parametrize("store", ["ties-rows", "ties-columns", "ties-shards", "floats-one"])
def test_sets__read_back_are_those_of_the_functions(stores, tmp_path, run, store, form):
    scores, source = matrix(store.split("-")[0]), stores / f"{store}.zarr"
    asked = [("0.01", "first"), ("2.5", "first"), ("2.5", "spread"), (C, "first")]
    cases = [([f"-k{k}", f"--ties={t}"], avgk.average_k_sets(scores, k, ties=t).compute()) for k, t in asked]
    cases += [(["-k3", "--rule=top"], avgk.top_k_sets(scores, 3).compute())]
    cases += [(["--threshold=1"], avgk.predict_sets(scores, threshold=1).compute())]
    for i, (args, expected) in enumerate(cases):
        out = tmp_path / f"{i}.zarr"
        done = run("sets", source, *args, "--format", form, "--out", out)
        assert (done.returncode, done.stderr) == (0, "")
        assert np.array_equal(read_back(out), expected), args
        assert f"{int(expected.sum()):,} labels in total" in done.stdout
    assert [int(expected.sum()) for _, expected in cases[:4]] == [0, 142, 142, N * C]
    assert avgk.verify(tmp_path / "0.zarr").ok
    assert avgk.verify(tmp_path / "1.zarr").ok


def test_sets__are_chunked_like_the_scores(stores, tmp_path, run):
    for layout, keywords in LAYOUTS.items():
        run("sets", stores / f"floats-{layout}.zarr", "-k", 2, "--out", tmp_path / layout)
        made = zarr.open_group(tmp_path / layout, mode="r")["sets"]
        assert (made.chunks, made.shards) == (keywords["chunks"], keywords.get("shards"))


def test_sets__carry_how_they_came_about(stores, tmp_path, run):
    run("sets", stores / "ties-rows.zarr", "-k", 2.5, "--out", tmp_path / "a.zarr")
    threshold, attrs = avgk.threshold(matrix("ties"), 2.5), dict(zarr.open_group(tmp_path / "a.zarr", mode="r").attrs)
    attrs.pop("avgk_dask")
    assert attrs == {
        "rule": "average", "k": 2.5, "threshold": threshold.value, "n_above": threshold.n_above, "n_ties": threshold.n_ties,
        "n_kept": threshold.n_kept, "ties": "first", "method": None, "alpha": None, "source": str(stores / "ties-rows.zarr"), "made_by": "", "n_left_out": 0, "n_samples": N,
        "n_classes": C, "format": "booleans", "n_labels": 142,
    }  # fmt: skip
    done = run("sets", stores / "ties-rows.zarr", "--threshold", 1, "--out", tmp_path / "b.zarr")
    assert zarr.open_group(tmp_path / "b.zarr", mode="r").attrs["rule"] == "threshold"
    assert "threshold sets of 57 samples x 11 classes" in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("form", ["booleans", "indices"])
def test_sets__of_a_conformal_predictor_are_those_that_it_gives(stores, tmp_path, run, form):
    rng = np.random.default_rng(3)
    scores, labels, groups = matrix("floats"), rng.integers(0, C, N), rng.integers(0, 2, N)
    np.save(tmp_path / "groups.npy", groups)
    for by, more in ((None, []), (groups, ["--groups", tmp_path / "groups.npy"])):
        predictor = avgk.conformal.calibrate(scores, labels, 0.25, by=by)
        predictor.save(tmp_path / "found.json")
        expected = predictor.sets(scores, groups=by).compute()
        line = stores / "floats-columns.zarr", "--conformal", tmp_path / "found.json", *more
        done = run("sets", *line, "--format", form, "--out", tmp_path / "a.zarr", "--overwrite")
        assert (done.returncode, done.stderr) == (0, "")
        assert np.array_equal(read_back(tmp_path / "a.zarr"), expected)
        assert 0 < expected.sum() < expected.size
        attrs = zarr.open_group(tmp_path / "a.zarr", mode="r").attrs
        assert (attrs["rule"], attrs["method"], attrs["alpha"]) == ("conformal", "lac", 0.25)
    refused = run("sets", *line[:3], "--out", tmp_path / "b.zarr")
    assert (refused.returncode, "groups are required" in refused.stderr) == (2, True)


@pytest.mark.slow
def test_sets__of_many_bands_take_several_windows_and_two_reads(tmp_path):
    store = CountingStore(zarr.storage.MemoryStore())
    scores = np.random.default_rng(0).random((4000, 100), dtype=np.float32)  # too many for no pilot
    zarr.create_array(store, data=scores, chunks=(50, 100))
    array = zarr.open_array(store, mode="r")
    store.reads.clear()
    with dask.config.set({"avgk.window-bytes": 3000}):  # in bits, four bands
        write_sets(array, tmp_path / "a.zarr", SetChoice(k=2))
    reads = store.chunk_reads()
    assert sum(reads.values()) <= 2 * 80 + 8
    assert np.array_equal(xr.open_zarr(tmp_path / "a.zarr").sets.values, avgk.average_k_sets(scores, 2).compute())


@pytest.mark.slow
@pytest.mark.parametrize("form", ["booleans", "indices"])
def test_sets__are_written_in_bounded_memory(tmp_path, form):
    n, c = 60_000, 1000
    array = zarr.create_array(tmp_path / "a.zarr", shape=(n, c), chunks=(500, c), dtype="u1", fill_value=1)
    with dask.config.set({"scheduler": "threads", "num_workers": 2, "avgk.window-bytes": 1 << 20}):
        tracemalloc.start()
        try:
            choice = SetChoice("threshold", threshold=0)  # every class of every sample
            written = write_sets(avgk.open_scores(array, missing="fill"), tmp_path / "out.zarr", choice, format=form)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert written.n_labels == n * c
    assert peak < n * c  # bytes: less than the booleans alone would take, and an eighth of the keys
    assert peak < 60e6


# Ctrl-C may come between the opening of a file and the statement that closes it.
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("form", ["booleans", "indices"])
def test_sets__interrupted_at_any_write_leave_nothing_behind(stores, tmp_path, run, interrupt_at, form):
    source, out = stores / "ties-rows.zarr", tmp_path / "a.zarr"
    args = ["-k", 5, "--format", form, "--out", out]
    with dask.config.set({"avgk.window-bytes": 1}):
        for n in itertools.count(1):
            left = interrupt_at(n)
            done = run("sets", source, *args)
            if left[0] > 0:
                break
            assert (done.returncode, done.stdout, done.stderr) == (130, "", "avgk: interrupted\n")
            assert not list(tmp_path.iterdir())
    assert done.returncode == 0
    assert n > 5
    before = read_back(out)
    for at in (1, n // 2, n - 1):  # and a store that was to be replaced stays
        interrupt_at(at)
        assert run("sets", source, "-k", 2, "--format", form, "--out", out, "--overwrite").returncode == 130
        assert [p.name for p in tmp_path.iterdir()] == ["a.zarr"]
        assert np.array_equal(read_back(out), before)


@pytest.mark.sample(1)
@pytest.mark.parametrize("overwrite", [False, True])
def test_sets__that_fail_leave_nothing_behind(tmp_path, run, overwrite):
    scores = np.ones((30, 4), "f4")
    scores[25, 2] = np.nan
    zarr.create_array(tmp_path / "nan.zarr", data=scores, chunks=(10, 4))
    out = tmp_path / "a.zarr"
    if overwrite:
        run("sets", tmp_path / "nan.zarr", "-k", 1, "--nan-policy", "lowest", "--out", out)
    before = sorted(tmp_path.rglob("*"))
    for args in (["-k", 1], ["-k", 1, "--rule", "top"], ["--threshold", 0.5, "--format", "indices"]):
        done = run("sets", tmp_path / "nan.zarr", *args, "--out", out, *["--overwrite"][: int(overwrite)])
        assert done.returncode == 2
        assert "sample 25, class 2" in done.stderr
        assert "--nan-policy lowest" in done.stderr
        assert sorted(tmp_path.rglob("*")) == before


def test_sets__replace_stores_only_and_only_when_told(stores, tmp_path, run):
    source = stores / "floats-rows.zarr"
    for _ in range(2):
        done = run("sets", source, "-k", 2, "--out", tmp_path / "a.zarr", "--overwrite")
        assert done.returncode == 0
    refused = run("sets", source, "-k", 1, "--out", tmp_path / "a.zarr")
    assert (refused.returncode, refused.stderr.count("\n")) == (2, 1)
    assert "--overwrite" in refused.stderr
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("precious")
    for out in (tmp_path / "mine", tmp_path / "mine" / "thesis.txt"):
        refused = run("sets", source, "-k", 1, "--out", out, "--overwrite")
        assert refused.returncode == 2
        assert "it is not a Zarr store" in refused.stderr
    assert (tmp_path / "mine" / "thesis.txt").read_text() == "precious"
    refused = run("sets", source, "-k", 1, "--out", source, "--overwrite")
    assert refused.returncode == 2
    assert "--out must not overlap with the scores" in refused.stderr
    assert np.array_equal(zarr.open_group(source, mode="r")["scores"][:], matrix("floats"))


def test_sets__go_to_and_come_from_urls_without_showing_credentials(run):
    source, out = "memory://me:secret@sets-test/scores.zarr", "memory://me:secret@sets-test/sets.zarr"
    with avgk.ScoreWriter(source, C) as writer:
        writer.append(matrix("ties"))
    for form in ("booleans", "indices"):
        done = run("sets", source, "-k", 2, "--out", out, "--overwrite", "--json", "--format", form)
        assert done.returncode == 0, done.stderr
        assert "secret" not in done.stdout
    assert "secret" not in run("sets", source, "-k", 2, "--out", out).stderr
    made = zarr.open_group(out, mode="r")
    assert made.attrs["source"] == "memory://***@sets-test/scores.zarr"
    assert made["offsets"][-1] == made.attrs["n_labels"] == 2 * N
    assert avgk.verify(out).ok


@pytest.mark.parametrize(
    "args, message",
    [
        (["-k", "1,2"], "one budget for sets; got 2"),
        ([], "a budget (-k 5), a threshold"),
        (["-k", "1", "--threshold", "2"], "a budget (-k 5), a threshold"),
        (["--rule", "top", "--threshold", "2"], "a budget (-k 5), a threshold"),
        (["--rule", "top", "-k", "1.5"], "Use --rule average for a fractional k"),
        (["--threshold", "much"], "a threshold must be a number such as 0.25; got 'much'"),
        (["--threshold", "nan"], "--threshold must be a number"),
        (["-k", "12"], "Pass numbers above 0, up to 11"),
        (["-k", "1", "--conformal", "a.json"], "a budget (-k 5), a threshold"),
        (["-k", "1", "--groups", "labels"], "--groups needs --conformal"),
        (["--conformal", "a.json"], "a.json"),
    ],
)
def test_sets__refuse_what_makes_no_sense(stores, tmp_path, run, args, message):
    done = run("sets", stores / "ties-rows.zarr", *args, "--out", tmp_path / "a.zarr")
    assert (done.returncode, done.stderr.count("\n"), list(tmp_path.iterdir())) == (2, 1, [])
    assert message in done.stderr


def test_sets__have_the_names_of_the_classes(tmp_path):
    with avgk.ScoreWriter(tmp_path / "s.zarr", 3, attributes={"class_names": ["a", "b", "c"]}) as writer:
        writer.append(np.eye(3, dtype=np.float32))
    write_sets(tmp_path / "s.zarr", tmp_path / "o.zarr", SetChoice(k=1))
    assert zarr.open_group(tmp_path / "o.zarr", mode="r").attrs["class_names"] == ["a", "b", "c"]
