"""Temporary failures are retried; a chunk is reported as damaged only if it is so twice."""

from __future__ import annotations

import dask
import numpy as np
import pytest
import zarr
from zarr.storage import LocalStore, MemoryStore, WrapperStore

import avgk_dask as avgk
from avgk_dask.store.read import direct
from avgk_dask.store.where.addresses import may_pass
from avgk_dask.testing import Simulation, simulate_store

SPEC = Simulation(400, 20)


class FaultyStore(WrapperStore):
    """Fails on chunks of scores: ``fault`` maps the number of a read to an error, a bit mask, or None."""

    def __init__(self, store, fault):
        super().__init__(store)
        self.fault, self.counts = fault, {}

    async def get(self, key, prototype, byte_range=None):
        value = await self._store.get(key, prototype, byte_range)
        if not key.startswith("scores/c/"):
            return value
        self.counts[key] = self.counts.get(key, 0) + 1
        outcome = self.fault(self.counts[key])
        if isinstance(outcome, Exception):
            raise outcome
        if outcome is None:
            return value
        data = np.frombuffer(value.to_bytes(), np.uint8).copy()
        data[data.size // 2] ^= outcome
        return prototype.buffer.from_bytes(data.tobytes())


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    path = tmp_path_factory.mktemp("retries") / "s.zarr"
    simulate_store(path, SPEC, chunks=(50, 20))
    return path


def faulty(path, fault):
    return FaultyStore(LocalStore(path, read_only=True), fault)


def evaluate(store):
    with dask.config.set({"avgk.band-bytes": 0}):
        return avgk.evaluate(store, k=[1, 2]).drop_attrs()


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    "fault",
    [
        lambda n: ConnectionResetError("reset by peer") if n == 1 else None,
        lambda n: OSError(5, "Input/output error") if n <= 2 else None,
        lambda n: 1 if n == 1 else None,
        lambda n: n if n <= 2 else None,
    ],
    ids=["reset", "input and output", "one flip", "two flips"],
)
def test_failures__that_pass_change_nothing(path, fault):
    with dask.config.set({"avgk.retry-seconds": 10}):
        assert evaluate(faulty(path, fault)).identical(evaluate(path))


def test_failures__that_stay_are_told_as_they_are(path):
    store = faulty(path, lambda n: ConnectionResetError("reset by peer"))
    with pytest.raises(avgk.ReadError, match=r"could not read scores/c/\d+/0 .*reset by peer.*network") as error:
        evaluate(store)
    assert "damaged" not in str(error.value)
    assert max(store.counts.values()) > 1


def test_failures__that_no_second_try_mends_are_told_at_once(path):
    store = faulty(path, lambda n: PermissionError("403 Forbidden"))
    with pytest.raises(avgk.ReadError, match="credentials"):
        evaluate(store)
    assert set(store.counts.values()) == {1}


def test_chunks__are_damaged_only_where_they_come_so_twice(path):
    with pytest.raises(avgk.ReadError, match=r"scores/c/\d+/0 .* is damaged: its bytes were changed"):
        evaluate(faulty(path, lambda n: 1))
    with pytest.raises(avgk.ReadError, match=r"scores/c/\d+/0 .* different bytes on each read") as error:
        evaluate(faulty(path, lambda n: n % 255 + 1))
    assert "damaged" not in str(error.value)


def test_chunks__without_digests_are_decoded_again(path):
    group = zarr.open_group(memory := MemoryStore(), mode="w")
    codecs = {"compressors": [zarr.codecs.ZstdCodec(), zarr.codecs.Crc32cCodec()]}
    group.create_array("scores", data=SPEC.rows(0, 400)[0], chunks=(50, 20), **codecs)
    group.create_array("labels", data=SPEC.rows(0, 400)[1], chunks=(400,))
    memory = memory.with_read_only(True)
    assert evaluate(FaultyStore(memory, lambda n: 1 if n == 1 else None)).identical(evaluate(path))
    with pytest.raises(avgk.ReadError, match=r"scores/c/\d+/0 .* cannot be decoded"):
        evaluate(FaultyStore(memory, lambda n: 1))


@pytest.mark.parametrize("kind", ["flip", "error"])
def test_files__that_fail_once_are_read_again(path, monkeypatch, kind):
    read, seen = direct._read_file, set()

    def once(name, *arguments):
        data = read(name, *arguments)
        if "/scores/" in name and name not in seen:
            seen.add(name)
            if kind == "error":
                raise OSError(5, "Input/output error")
            data[data.size // 2] ^= 1
        return data

    expected = evaluate(path)
    monkeypatch.setattr(direct, "_read_file", once)
    assert evaluate(path).identical(expected)
    assert len(seen) == 8


def test_may_pass__tells_lasting_failures_from_others():
    assert may_pass(TimeoutError())
    assert may_pass(OSError(5, "Input/output error"))
    assert not any(
        map(may_pass, (KeyError("x"), FileNotFoundError("x"), OSError("NoSuchBucket"), OSError("os error 28")))
    )
