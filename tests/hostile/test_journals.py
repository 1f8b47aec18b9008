"""Journals and drafts that are edited, swapped or damaged: a writer that resumes refuses them before it writes."""

from __future__ import annotations

import itertools
import json
from contextlib import suppress

import numpy as np
import pytest
from judging import check_error, evaluate
from sound_stores import LABELS, SCORES

import avgk_dask as avgk
from avgk_dask.store.read.manifest import digest_of
from avgk_dask.store.write.journal import JournalRecord

pytestmark = pytest.mark.timeout(120)


def tree(path):
    return {str(p.relative_to(path)): p.read_bytes() for p in sorted(path.rglob("*")) if p.is_file()}


def resume(path, **options):
    with avgk.ScoreWriter(path, 5, chunk_rows=16, resume=True, **options) as writer:
        n = writer.n_samples
        writer.append(SCORES[n:], LABELS[n:])
    return evaluate(path)


def check_resumed(path, sound, must_refuse=True):
    """Assert that resuming is refused without changes, or gives the right answer."""
    before = tree(path)
    try:
        result = resume(path)
    except avgk.AvgkError as error:
        check_error(error, path)
        assert tree(path) == before
        return
    assert not must_refuse
    assert result.identical(sound)
    assert avgk.verify(path).ok


@pytest.fixture(scope="module")
def sound():
    return avgk.evaluate(SCORES, LABELS, [0.5, 1], straddle=False).drop_attrs()


def record_of(path, number):
    return path / "scores" / "journal" / f"{number:010}"


def test_a_sound_draft__is_resumed(store, sound):
    check_resumed(store("draft"), sound, must_refuse=False)


BYTES = {
    "shortened": lambda data: data[:-5],
    "longer": lambda data: data + b"12345678",
    "text": lambda data: b"hello",
    "list": lambda data: b"[1]\n[2]\n",
    "bit in the digest": lambda data: bytes([data[1] ^ 1]) + data[1:],
    "bit in a label": lambda data: data[:-2] + bytes([data[-2] ^ 4]) + data[-1:],
    "no lines": lambda data: data.replace(b"\n", b" "),
    "null": lambda data: b"null\nnull\n",
    "deep": lambda data: b"[" * 100_000,
}


@pytest.mark.sample(17)
@pytest.mark.parametrize("number", [0, 1, 2])
@pytest.mark.parametrize("kind", BYTES)
def test_records__of_other_bytes_are_refused_by_name(store, sound, kind, number):
    path = store("draft")
    record = record_of(path, number)
    record.write_bytes(BYTES[kind](record.read_bytes()))
    with pytest.raises(avgk.StoreError, match=record.name):
        resume(path)
    check_resumed(path, sound)


@pytest.mark.sample(15)
@pytest.mark.parametrize("number", [0, 1, 2])
@pytest.mark.parametrize("name, value", [
    ("n_rows", 15), ("n_rows", -16), ("n_rows", 0), ("n_rows", "16"), ("n_rows", 10**12), ("number", 7), ("number", -1),
    ("first_row", 1), ("first_row", -16), ("labelled", False), ("digests", {}), ("digests", []), ("digests", {"x": 1}),
    ("forms", {"scores": "0"}), ("forms", None),
])  # fmt: skip
def test_record_heads__edited_are_refused(store, sound, number, name, value):
    """Each edit is tested with the old digest and a new one."""
    path = store("draft")
    record = record_of(path, number)
    _, head, labels = record.read_bytes().split(b"\n", 2)
    body = json.dumps({**json.loads(head), name: value}).encode() + b"\n" + labels
    record.write_bytes(json.dumps([1, 2]).encode() + b"\n" + body)
    check_resumed(path, sound)
    record.write_bytes(json.dumps(digest_of(body)).encode() + b"\n" + body)
    check_resumed(path, sound)


@pytest.mark.parametrize("first, second", [(0, 1), (1, 2), (0, 2)])
def test_records__that_are_swapped_are_refused(store, sound, first, second):
    path = store("draft")
    a, b = record_of(path, first).read_bytes(), record_of(path, second).read_bytes()
    record_of(path, first).write_bytes(b)
    record_of(path, second).write_bytes(a)
    check_resumed(path, sound)


@pytest.mark.parametrize("number", [0, 1, 2])
def test_records__that_are_gone_or_empty_mean_rows_to_append_again(store, sound, number):
    path = store("draft")
    record_of(path, number).write_bytes(b"")
    with avgk.ScoreWriter(path, 5, chunk_rows=16, resume=True) as writer:
        assert writer.n_samples == 16 * number
        writer.append(SCORES[16 * number :], LABELS[16 * number :])
    assert evaluate(path).identical(sound)
    assert avgk.verify(path).ok


@pytest.mark.parametrize("name, value", [
    ("data_type", "float64"), ("data_type", "int32"), ("data_type", 7), ("shape", [0, 4]), ("shape", None),
    ("codecs", []), ("fill_value", 1.0), ("dimension_names", ["class", "sample"]),
    ("chunk_grid", {"name": "regular", "configuration": {"chunk_shape": [8, 5]}}), ("attributes", {"scale_factor": 2.0}),
    ("node_type", "group"),
])  # fmt: skip
def test_arrays_of_drafts__edited_are_refused(store, sound, name, value):
    path = store("draft")
    document = json.loads((path / "scores" / "zarr.json").read_text())
    (path / "scores" / "zarr.json").write_text(json.dumps({**document, name: value}))
    check_resumed(path, sound)


PLANS = {
    "gone": lambda state: state.pop("plan"),
    "a list": lambda state: state.update(plan=[]),
    "another class count": lambda state: state["plan"].update(n_classes=6),
    "text": lambda state: state["plan"].update(n_classes="5"),
    "one more option": lambda state: state["plan"].update(extra=1),
    "one option less": lambda state: state["plan"].pop("codec"),
    "complete is text": lambda state: state.update(complete="false"),
    "an earlier format": lambda state: state.update(format=1),
    "a later format": lambda state: state.update(format=3),
}


@pytest.mark.parametrize("kind", PLANS)
def test_drafts__whose_plan_is_edited_are_refused(store, sound, kind):
    path = store("draft")
    document = json.loads((path / "zarr.json").read_text())
    PLANS[kind](document["attributes"]["avgk_dask"])
    (path / "zarr.json").write_text(json.dumps(document))
    check_resumed(path, sound)


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b"null", b'{"attributes": []}', b'{"attributes": {"avgk_dask": 1}}']
)
def test_drafts__whose_root_is_damaged_are_refused(store, sound, content):
    path = store("draft")
    (path / "zarr.json").write_bytes(content)
    check_resumed(path, sound)


def test_chunks_of_a_draft__changed_under_their_records_are_refused_when_read(store):
    path = store("draft")
    chunk = path / "scores/c/0/0"
    data = chunk.read_bytes()
    chunk.write_bytes(bytes([data[0] ^ 1]) + data[1:])
    with pytest.raises(avgk.ReadError, match="scores/c/0/0"):
        resume(path)  # evaluates the finished store


def test_records__come_back_as_they_were_written():
    record = JournalRecord(3, 48, 16, {"scores/c/3/0": (7, 2**63)}, np.arange(16), {"scores": "ab"})
    back = JournalRecord.from_bytes(record.to_bytes())
    assert (back.number, back.first_row, back.n_rows, back.digests, back.forms) == (
        3,
        48,
        16,
        record.digests,
        record.forms,
    )
    assert back.labels.tolist() == list(range(16))
    for index in range(len(record.to_bytes())):  # a change of any byte is detected
        data = bytearray(record.to_bytes())
        data[index] ^= 1
        with pytest.raises((ValueError, TypeError, KeyError, AttributeError)):
            JournalRecord.from_bytes(bytes(data))


def test_records__of_another_draft_are_refused(tmp_path, sound):
    """Their chunks have the same length, and their labels would be used."""
    for name, labels in (("mine", LABELS), ("other", LABELS[::-1])):
        writer = avgk.ScoreWriter(tmp_path / name, 5, chunk_rows=16, codec="none")
        writer.append(SCORES[:40], labels[:40])
        del writer
    record_of(tmp_path / "mine", 1).write_bytes(record_of(tmp_path / "other", 1).read_bytes())
    with pytest.raises(avgk.StoreError, match="a record of another store"):
        avgk.ScoreWriter(tmp_path / "mine", 5, chunk_rows=16, codec="none", resume=True)


def no_listing(monkeypatch, fails):
    """Let the listings fail for whose number ``fails`` is true."""
    from avgk_dask.store.read import listing

    original, numbers = listing.list_entries, itertools.count(1)

    def list_entries(*arguments):
        if fails(next(numbers)):
            raise OSError("no answer")
        return original(*arguments)

    monkeypatch.setattr(listing, "list_entries", list_entries)


@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_draft__that_cannot_be_listed_is_not_taken_for_an_empty_one(store, sound, monkeypatch, number):
    path = store("draft")
    before = tree(path)
    with monkeypatch.context() as patch:
        no_listing(patch, lambda n: n == number)
        with suppress(avgk.ReadError):  # later attempts may not need that listing
            resume(path)
            before = tree(path)
    assert tree(path) == before
    check_resumed(path, sound, must_refuse=False)


@pytest.mark.sample(1)
@pytest.mark.parametrize("number", range(1, 8))
def test_parts__that_cannot_be_listed_are_not_lost(tmp_path, sound, monkeypatch, number):
    path = tmp_path / "a.zarr"
    for part, rows in enumerate((slice(0, 32), slice(32, 60))):
        with avgk.ScoreWriter(path, 5, chunk_rows=16, part=part) as writer:
            writer.append(SCORES[rows], LABELS[rows])
    with monkeypatch.context() as patch:
        no_listing(patch, lambda n: n == number)
        with suppress(avgk.ReadError):
            avgk.join_parts(path)
    avgk.join_parts(path)
    assert evaluate(path).identical(sound)
    assert avgk.verify(path).ok


def test_parts__whose_number_of_classes_was_edited_are_not_joined(tmp_path):
    path = tmp_path / "a.zarr"
    with avgk.ScoreWriter(path, 5, part=0, top_m=3) as writer:
        writer.append(SCORES, LABELS)
    root = path / "parts" / "00000" / "zarr.json"
    root.write_text(root.read_text().replace('"n_classes": 5', '"n_classes": 3'))
    with pytest.raises(avgk.StoreError, match="number of classes"):
        avgk.join_parts(path)


def test_records__behind_a_chunk_that_is_not_as_told_are_written_again(store):
    path = store("draft")
    with open(path / "scores/c/1/0", "ab") as file:
        file.write(b"more")
    writer = avgk.ScoreWriter(path, 5, chunk_rows=16, resume=True)
    assert writer.n_samples == 16
    writer.append(1 - SCORES[:16], LABELS[:16])
    writer.__exit__(KeyboardInterrupt, KeyboardInterrupt(), None)
    again = avgk.ScoreWriter(path, 5, chunk_rows=16, resume=True)
    assert again.n_samples == 32  # and not 48, with rows of the first attempt at the end
    again.__exit__(KeyboardInterrupt, KeyboardInterrupt(), None)
