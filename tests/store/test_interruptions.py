"""Writing and joining stopped before each single write to the store: incomplete until the last, and resumable from all."""

from __future__ import annotations

import itertools
import pathlib

import numpy as np
import pytest
from zarr.storage import LocalStore

import avgk_dask as avgk
from avgk_dask.store.write.targets import remove_for_good

SCORES = np.random.default_rng(1).random((57, 4), dtype=np.float32)
LABELS = np.random.default_rng(2).integers(0, 4, 57)


def tree(path):
    return {str(p.relative_to(path)): p.read_bytes() for p in sorted(path.rglob("*")) if p.is_file()}


@pytest.fixture
def stop_after(monkeypatch):
    """Give a function that fails after a number of writes and removals of keys, or never if that is None."""
    left = [None]

    def guarded(name):
        original = getattr(LocalStore, name)

        async def call(self, *arguments):
            if left[0] == 0:
                raise OSError("stopped here")
            left[0] = None if left[0] is None else left[0] - 1
            return await original(self, *arguments)

        monkeypatch.setattr(LocalStore, name, call)

    for name in ("set", "delete", "delete_dir"):
        guarded(name)

    def allow(n):
        left[0] = n

    return allow


def write(path, **options):
    with avgk.ScoreWriter(path, 4, chunk_rows=5, shard_chunks=2, resume=True, **options) as writer:
        for i in range(writer.n_samples, 57, 8):
            writer.append(SCORES[i : i + 8], LABELS[i : i + 8])


def stopped(action):
    """Whether an action ended because it was stopped."""
    try:
        action()
    except avgk.StoreError as error:
        if "stopped here" not in str(error):
            raise
        return True
    return False


def is_refused_or_right(path, expected):
    try:
        result = avgk.evaluate(path, k=[1, 2]).drop_attrs()
    except avgk.StoreError as error:
        return "incomplete" in str(error) or "no zarr.json" in str(error) or "no such store" in str(error)
    return result.identical(expected)


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, {"top_m": 2}])
def test_writer__stopped_before_any_write_can_be_resumed(tmp_path, stop_after, options):
    write(tmp_path / "whole.zarr", **options)
    whole = tree(tmp_path / "whole.zarr")
    expected = avgk.evaluate(SCORES, LABELS, [1, 2]).drop_attrs()
    for n in itertools.count():
        path = tmp_path / f"{n}.zarr"
        stop_after(n)
        if not stopped(lambda: write(path, **options)):  # noqa: B023
            break
        stop_after(None)
        if not options:
            assert is_refused_or_right(path, expected)
        write(path, **options)
        assert tree(path) == whole
    assert n > 15


def test_writer__that_failed_writes_no_more(tmp_path, stop_after):
    writer = avgk.ScoreWriter(tmp_path / "a.zarr", 4, chunk_rows=5)
    stop_after(0)
    with pytest.raises(avgk.StoreError, match="stopped here"):
        writer.append(SCORES[:8])
    stop_after(None)
    for use in (lambda: writer.append(SCORES[:8]), writer.close):
        with pytest.raises(avgk.StoreError, match="resume=True"):
            use()


def test_writer__may_take_other_samples_after_a_stopped_close(tmp_path, stop_after):
    """The remains of an interrupted close do not show in later output."""
    for n in range(3, 12):
        path = tmp_path / f"{n}.zarr"
        writer = avgk.ScoreWriter(path, 4)
        writer.append(SCORES[:20], LABELS[:20])
        stop_after(n)
        if not stopped(writer.close):
            break
        stop_after(None)
        with avgk.ScoreWriter(path, 4, resume=True) as again:
            again.append(SCORES[again.n_samples :], LABELS[again.n_samples :])
        with avgk.ScoreWriter(tmp_path / "direct.zarr", 4, overwrite=True) as direct:
            direct.append(SCORES, LABELS)
        assert tree(path) == tree(tmp_path / "direct.zarr")


@pytest.mark.slow
def test_join__stopped_before_any_write_can_be_repeated(tmp_path, stop_after):
    def write_parts(path):
        for part, (first, last) in enumerate([(0, 23), (23, 40), (40, 57)]):
            with avgk.ScoreWriter(path, 4, chunk_rows=5, part=part) as writer:
                writer.append(SCORES[first:last], LABELS[first:last])

    write_parts(tmp_path / "whole.zarr")
    avgk.join_parts(tmp_path / "whole.zarr")
    expected = avgk.evaluate(tmp_path / "whole.zarr", k=[1, 2]).drop_attrs()
    whole = tree(tmp_path / "whole.zarr")
    for n in itertools.count():
        path = tmp_path / f"{n}.zarr"
        write_parts(path)
        stop_after(n)
        if not stopped(lambda: avgk.join_parts(path)):  # noqa: B023
            break
        stop_after(None)
        assert is_refused_or_right(path, expected)
        avgk.join_parts(path)
        assert tree(path) == whole
    assert n > 8


def test_parts__are_refused_if_the_store_is_complete(tmp_path):
    with avgk.ScoreWriter(tmp_path / "a.zarr", 4) as writer:
        writer.append(SCORES)
    with pytest.raises(avgk.StoreError, match="written in parts"):
        avgk.ScoreWriter(tmp_path / "a.zarr", 4, part=0)


def test_labels__beyond_a_million_survive_a_stop(tmp_path, monkeypatch):
    from avgk_dask.store.read import grids as layout
    from avgk_dask.store.write import writer

    for module in (layout, writer):
        monkeypatch.setattr(module, "LABEL_ROWS", 12)
    for name, bounds in (("a.zarr", [0, 57]), ("b.zarr", [0, 33, 57]), ("c.zarr", [0, 12, 48, 57])):
        for _, last in itertools.pairwise(bounds):
            again = None  # the one before lets go of the store
            again = avgk.ScoreWriter(tmp_path / name, 4, chunk_rows=5, resume=True)
            again.append(SCORES[again.n_samples : last], LABELS[again.n_samples : last])
            assert again.n_samples == last
        again.close()
        opened = avgk.open_scores(tmp_path / name)
        assert opened.labels.chunks[0][0] == 12
        assert np.array_equal(opened.labels.values, LABELS)
        assert np.array_equal(opened.scores.values, SCORES)
        assert avgk.verify(tmp_path / name).ok


def test_a_folder__that_a_write_puts_back_during_its_removal_is_removed_again(tmp_path, monkeypatch):
    path = tmp_path / "new"
    is_dir, looks = pathlib.Path.is_dir, []

    def missed_at_first(self):
        looks.append(self)
        return is_dir(self) if len(looks) > 2 else False

    path.mkdir()
    monkeypatch.setattr(pathlib.Path, "is_dir", missed_at_first)
    remove_for_good(path)
    assert not is_dir(path)
