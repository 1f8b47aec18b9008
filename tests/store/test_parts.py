"""Parts: several processes write one store; joining moves chunks and copies only the last ones."""

from __future__ import annotations

import itertools
import shutil
import subprocess
import sys

import numpy as np
import pytest
import xarray as xr

import avgk_dask as avgk
from avgk_dask.store.write import joining

SCORES = np.random.default_rng(1).random((503, 6), dtype=np.float32)
LABELS = np.random.default_rng(2).integers(0, 6, 503)


def write_parts(path, bounds, **options):
    for part, (first, last) in enumerate(itertools.pairwise(bounds)):
        with avgk.ScoreWriter(path, 6, part=part, **options) as writer:
            for i in range(first, last, 17):
                writer.append(SCORES[i : min(i + 17, last)], LABELS[i : min(i + 17, last)])


def joined_order(bounds, chunk_rows):
    """Give the samples in the order of a joined store: whole chunks of all parts, then the remaining rows of each."""
    spans = list(itertools.pairwise(bounds))
    middle = [a + (b - a) // chunk_rows * chunk_rows for a, b in spans]
    whole = [np.arange(a, m) for (a, _), m in zip(spans, middle, strict=True)]
    rest = [np.arange(m, b) for (_, b), m in zip(spans, middle, strict=True)]
    return np.concatenate(whole + rest)


@pytest.mark.sample(2)
@pytest.mark.parametrize("options", [{"chunk_rows": 50}, {"chunk_rows": 20, "shard_chunks": 3}, {}])
@pytest.mark.parametrize("bounds", [[0, 200, 400, 503], [0, 133, 299, 503], [0, 0, 5, 503], [0, 503]])
def test_join__gives_the_store_of_all_samples(tmp_path, bounds, options):
    write_parts(tmp_path / "a.zarr", bounds, **options)
    with pytest.raises(avgk.StoreError, match=r"incomplete.*avgk join"):
        avgk.evaluate(tmp_path / "a.zarr")
    avgk.join_parts(tmp_path / "a.zarr", len(bounds) - 1)
    opened = xr.open_zarr(tmp_path / "a.zarr")
    order = joined_order(bounds, opened.attrs["part_run"])
    assert opened.attrs["part_samples"] == np.diff(bounds).tolist()
    assert np.array_equal(opened.scores.values, SCORES[order])
    assert np.array_equal(opened.labels.values, LABELS[order])
    assert avgk.verify(tmp_path / "a.zarr").ok
    assert not (tmp_path / "a.zarr" / "parts").exists()
    avgk.join_parts(tmp_path / "a.zarr")  # once more: nothing to do


def test_join__moves_whole_chunks_without_copying_them(tmp_path):
    path = tmp_path / "a.zarr"
    write_parts(path, [0, 200, 430, 503], chunk_rows=50)
    inodes = {p.stat().st_ino for p in path.glob("parts/*/scores/c/*/0")}
    avgk.join_parts(path)
    after = [p.stat().st_ino for p in path.glob("scores/c/*/0")]
    assert sum(inode in inodes for inode in after) == 4 + 4 + 1
    assert len(after) == 11


def test_join__may_be_interrupted_and_repeated(tmp_path, monkeypatch):
    write_parts(tmp_path / "a.zarr", [0, 200, 430, 503], chunk_rows=50)
    write_parts(tmp_path / "b.zarr", [0, 200, 430, 503], chunk_rows=50)
    move, moves = joining._move, []

    def stop(*where):
        if len(moves) == 5:
            raise KeyboardInterrupt
        moves.append(where)
        move(*where)

    monkeypatch.setattr(joining, "_move", stop)
    with pytest.raises(KeyboardInterrupt):
        avgk.join_parts(tmp_path / "a.zarr")
    with pytest.raises(avgk.StoreError, match="incomplete"):
        avgk.evaluate(tmp_path / "a.zarr")
    monkeypatch.undo()
    for name in ("a.zarr", "b.zarr"):
        avgk.join_parts(tmp_path / name)
    one, other = (avgk.evaluate(tmp_path / name, k=2).drop_attrs() for name in ("a.zarr", "b.zarr"))
    assert one.identical(other)
    assert avgk.verify(tmp_path / "a.zarr").ok


def test_join__refuses_missing_incomplete_and_unlike_parts(tmp_path):
    write_parts(tmp_path / "a.zarr", [0, 200, 503], chunk_rows=50)
    with pytest.raises(avgk.StoreError, match=r"must be 0\.\.2; got 00000, 00001"):
        avgk.join_parts(tmp_path / "a.zarr", 3)
    writer = avgk.ScoreWriter(tmp_path / "a.zarr", 6, part=2, chunk_rows=50)
    writer.append(SCORES[:60], LABELS[:60])
    with pytest.raises(avgk.StoreError, match=r"part 2 of .* is being written by process"):
        avgk.join_parts(tmp_path / "a.zarr")
    del writer
    with pytest.raises(avgk.StoreError, match=r"part 2 of .* is incomplete"):
        avgk.join_parts(tmp_path / "a.zarr")
    write_parts(tmp_path / "b.zarr", [0, 200], chunk_rows=50)
    with avgk.ScoreWriter(tmp_path / "b.zarr", 6, part=1, chunk_rows=25) as writer:
        writer.append(SCORES[:60], LABELS[:60])
    with pytest.raises(avgk.StoreError, match=r"part 1 of .* differs"):
        avgk.join_parts(tmp_path / "b.zarr")
    with avgk.ScoreWriter(tmp_path / "c.zarr", 6) as writer:
        writer.append(SCORES)
    avgk.join_parts(tmp_path / "c.zarr")  # complete: nothing to do


PART = """
import sys, numpy as np, avgk_dask as avgk
part = int(sys.argv[2])
scores = np.random.default_rng(part).random((300 + part, 6), dtype=np.float32)
with avgk.ScoreWriter(sys.argv[1], n_classes=6, part=part, chunk_rows=64) as writer:
    for i in range(0, len(scores), 50):
        writer.append(scores[i : i + 50], scores[i : i + 50].argmax(1))
"""


def test_parts__may_be_written_by_processes_at_once(tmp_path):
    command = [sys.executable, "-c", PART, str(tmp_path / "a.zarr")]
    running = [subprocess.Popen([*command, str(part)]) for part in range(3)]
    assert [process.wait() for process in running] == [0, 0, 0]
    avgk.join_parts(tmp_path / "a.zarr", 3)
    result = avgk.evaluate(tmp_path / "a.zarr", k=1)
    assert result.attrs["n_samples"] == 903
    assert result.top_k_error.item() == 0


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", ["scores/c/1/0", "scores/c/3/0", "labels/c/0"])
def test_join__refuses_a_part_with_a_damaged_chunk_before_moving_any(tmp_path, name):
    write_parts(tmp_path / "a.zarr", [0, 200, 430, 503], chunk_rows=50)
    chunk = tmp_path / "a.zarr" / "parts" / "00001" / name
    data = chunk.read_bytes()
    chunk.write_bytes(data[:-3])
    with pytest.raises(avgk.StoreError, match=f"00001/{name}"):
        avgk.join_parts(tmp_path / "a.zarr")
    assert len(list(tmp_path.glob("a.zarr/parts/*/scores/c/*/0"))) == 4 + 5 + 2
    chunk.write_bytes(data)
    avgk.join_parts(tmp_path / "a.zarr")
    assert avgk.verify(tmp_path / "a.zarr").ok


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    "options", [{"chunk_rows": 5}, {"chunk_rows": 2, "shard_chunks": 3}, {"chunk_rows": 5, "top_m": 1}]
)
def test_join__writes_chunks_that_hold_nothing_but_the_fill_value(tmp_path, monkeypatch, options):
    """zarr omits such chunks; also when a join is repeated whose arrays exist already."""
    path, labels = tmp_path / "a.zarr", np.zeros(13, np.int64)
    for part in range(3):
        with avgk.ScoreWriter(path, 4, part=part, **options) as writer:
            writer.append(np.zeros((13, 4), np.uint8), labels)
    with monkeypatch.context() as patch:
        patch.setattr(joining, "_check_joined", lambda _: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            avgk.join_parts(path)
    avgk.join_parts(path)
    assert avgk.verify(path).ok
    opened = avgk.open_scores(path)
    assert opened.sizes["sample"] == 39
    assert not any(np.asarray(opened[name]).any() for name in opened)


def test_parts__of_a_finished_store_are_refused_without_a_trace(tmp_path):
    with avgk.ScoreWriter(tmp_path / "a.zarr", 6) as writer:
        writer.append(SCORES)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(avgk.StoreError, match="not written in parts"):
        avgk.ScoreWriter(tmp_path / "a.zarr", 6, part=0)
    assert sorted(tmp_path.rglob("*")) == before


def test_fork__child_cannot_go_on_with_a_writer_and_writes_a_part_of_its_own(tmp_path, forked):
    rows, labels = np.random.default_rng(0).random((60, 6)), np.arange(60) % 6

    def write_part():
        with avgk.ScoreWriter(tmp_path / "a.zarr", 6, part=1, chunk_rows=10) as writer:
            writer.append(rows[30:], labels[30:])

    with avgk.ScoreWriter(tmp_path / "a.zarr", 6, part=0, chunk_rows=10) as writer:
        writer.append(rows[:15], labels[:15])
        for leave in (lambda: writer.append(rows, labels), writer.close):
            error = forked(leave)
            assert isinstance(error, avgk.WriteError)
            assert "forked child" in str(error)
            assert "part=NUMBER" in str(error)
        assert forked(write_part) is None
        writer.append(rows[15:30], labels[15:30])
    avgk.join_parts(tmp_path / "a.zarr")
    np.testing.assert_array_equal(avgk.open_scores(tmp_path / "a.zarr").scores, rows)


def test_fork__child_that_fails_does_not_undo_the_append_of_its_parent(tmp_path, forked):
    rows, labels = np.random.default_rng(0).random((60, 6)), np.arange(60) % 6
    with avgk.ScoreWriter(tmp_path / "a.zarr", 6, chunk_rows=10) as writer:
        writer.append(rows[:25], labels[:25])

    with avgk.ScoreWriter(tmp_path / "a.zarr", append=True) as writer:
        writer.append(rows[25:50], labels[25:50])
        forked(lambda: writer.__exit__(ValueError, ValueError(), None))
        writer.append(rows[50:], labels[50:])
    np.testing.assert_array_equal(avgk.open_scores(tmp_path / "a.zarr").scores, rows)


def test_parts__in_the_place_of_others_are_refused(tmp_path):
    path = tmp_path / "a.zarr"
    write_parts(path, [0, 200, 400], chunk_rows=50)
    for number in (1, 2):
        shutil.copytree(path / "parts" / "00000", path / "parts" / f"{number:05}", dirs_exist_ok=True)
    with pytest.raises(avgk.StoreError, match=r"00001 contains part 0 of its store instead of part 1"):
        avgk.join_parts(path)
    with pytest.raises(avgk.StoreError, match=r"00002 contains part 0 of its store instead of part 2"):
        avgk.ScoreWriter(path, 6, part=2, chunk_rows=50, resume=True)
