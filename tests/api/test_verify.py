"""``verify`` lists every bad chunk of any store, with a manifest or without one, and goes on after each."""

from __future__ import annotations

import json
from itertools import pairwise

import numcodecs
import numpy as np
import pytest
import xarray as xr
import zarr
from click.testing import CliRunner
from zarr.codecs import BloscCodec, Crc32cCodec, GzipCodec, ZstdCodec

import avgk_dask as avgk
from avgk_dask.api import stores
from avgk_dask.cli.main import main
from avgk_dask.store.read.verification import Verification
from avgk_dask.testing import Simulation, simulate_store

SCORES = np.random.default_rng(5).random((60, 24), dtype=np.float32).round(2)
#: Chunks of 5 x 12 scores: 12 x 2 of them. Codecs whose decoding reveals that bytes were changed.
LAYOUTS = {
    "v2 raw": {"zarr_format": 2, "compressors": None},
    "v2 blosc": {"zarr_format": 2, "compressors": numcodecs.Blosc()},
    "v2 zstd": {"zarr_format": 2, "compressors": numcodecs.Zstd()},
    "v2 gzip": {"zarr_format": 2, "compressors": numcodecs.GZip()},
    "v2 filtered": {"zarr_format": 2, "compressors": numcodecs.Zstd(), "filters": [numcodecs.Shuffle(4)]},
    "v3 raw": {"compressors": None},
    "v3 blosc": {"compressors": BloscCodec()},
    "v3 zstd": {"compressors": ZstdCodec()},
    "v3 gzip": {"compressors": GzipCodec()},
    "v3 crc32c": {"compressors": Crc32cCodec()},
    "v3 zstd and crc32c": {"compressors": [ZstdCodec(), Crc32cCodec()]},
}
#: Inner chunks whose changed bytes cannot be decoded.
CHECKED = {"gzip": GzipCodec(), "zstd checksum": ZstdCodec(checksum=True), "crc32c": Crc32cCodec()}


def write(path, **options):
    group = zarr.open_group(path, mode="w", zarr_format=options.pop("zarr_format", 3))
    return group.create_array("scores", data=SCORES, chunks=(5, 12), **options)


def spoil(path, *places):
    """Overwrite bytes of a file, or cut off its end if no place is given."""
    data = bytearray(path.read_bytes())
    for place in places:
        data[place : place + 8] = bytes(255 - byte for byte in data[place : place + 8])
    path.write_bytes(data if places else data[:-3])


@pytest.mark.parametrize("layout", LAYOUTS)
def test_verify__lists_every_chunk_that_cannot_be_decoded(tmp_path, layout):
    array = write(tmp_path / "a.zarr", **LAYOUTS[layout])
    assert avgk.verify(tmp_path / "a.zarr").ok
    bad = [(0, 0), (0, 1), (3, 1), (7, 0), (11, 1)]
    keys = [f"scores/{array.metadata.encode_chunk_key(index)}" for index in bad]
    for key in keys:
        spoil(tmp_path / "a.zarr" / key, *([] if "raw" in layout else [2]))
    verification = avgk.verify(tmp_path / "a.zarr")
    assert [key for key, _ in verification.damaged] == keys
    assert (verification.n_chunks, verification.ok, verification.has_manifest) == (24, False, False)
    assert all(text for _, text in verification.damaged)


@pytest.mark.parametrize("codec", CHECKED)
def test_verify__names_the_inner_chunks_of_foreign_shards_that_cannot_be_decoded(tmp_path, codec):
    write(tmp_path / "a.zarr", shards=(25, 24), compressors=CHECKED[codec])
    folder = tmp_path / "a.zarr" / "scores" / "c"
    bad = {"0/0": [(0, 1), (3, 0)], "2/0": [(11, 1)]}
    for key, indices in bad.items():
        # The index is at the end of a shard: where each of its 5 x 2 inner chunks begins, and its length; then a checksum.
        entries = np.frombuffer((folder / key).read_bytes()[-164:-4], "<u8").reshape(5, 2, 2)
        spoil(folder / key, *(int(entries[row % 5, column, 0]) + 12 for row, column in indices))
    verification = avgk.verify(tmp_path / "a.zarr")
    assert [key for key, _ in verification.damaged] == [f"scores/c/{key}" for key in bad]
    for (_, text), indices in zip(verification.damaged, bad.values(), strict=True):
        assert "cannot be decoded" in text
        assert text.endswith(f"Bad inner chunks: {', '.join(map(str, indices))}.")
    assert (verification.n_chunks, verification.has_manifest) == (3, False)


def test_verify__lists_shards_whose_index_or_inner_chunks_are_lost_once_each(tmp_path):
    array = write(tmp_path / "a.zarr", shards=(25, 24), compressors=None)
    spoil(tmp_path / "a.zarr/scores/c/0/0")
    array[30:35, :12] = 0  # the fill value: zarr leaves that inner chunk out
    verification = avgk.verify(tmp_path / "a.zarr")
    assert [key for key, _ in verification.damaged] == ["scores/c/0/0", "scores/c/1/0"]
    assert "its index does not match" in verification.damaged[0][1]
    assert "1 of its inner chunks is missing" in verification.damaged[1][1]
    assert not any("Bad inner chunks" in text for _, text in verification.damaged)


def test_verify__lists_missing_empty_and_undecodable_chunks_of_all_arrays_together(tmp_path):
    path = tmp_path / "x.zarr"
    labels = np.arange(60) % 24
    xr.Dataset({"scores": (("sample", "class"), SCORES), "labels": (("sample",), labels)}).to_zarr(
        path, encoding={"scores": {"chunks": (5, 24)}, "labels": {"chunks": (10,)}}
    )
    (path / "scores/c/2/0").unlink()
    (path / "scores/c/3/0").write_bytes(b"")
    for key in ("scores/c/7/0", "labels/c/1", "labels/c/4"):
        (path / key).write_bytes(b"nothing that zstd wrote")
    verification = avgk.verify(path)
    expected = {"scores/c/2/0", "scores/c/3/0", "scores/c/7/0", "labels/c/1", "labels/c/4"}
    assert {key for key, _ in verification.damaged} == expected
    assert len(verification.damaged) == 5
    assert verification.n_chunks == 12 + 6


def test_verify__lists_every_chunk_that_is_not_as_the_manifest_says(tmp_path):
    path = tmp_path / "s.zarr"
    simulate_store(path, Simulation(1200, 20), chunks=(100, 20))
    spoil(path / "scores/c/2/0", 100)
    spoil(path / "scores/c/4/0")
    spoil(path / "scores/c/10/0", 7)
    (path / "scores/c/7/0").unlink()
    verification = avgk.verify(path)
    assert sorted(key for key, _ in verification.damaged) == [f"scores/c/{i}/0" for i in (10, 2, 4, 7)]
    assert (verification.ok, verification.has_manifest) == (False, True)


def test_verify__lists_every_bad_chunk_on_the_command_line(tmp_path):
    write(tmp_path / "a.zarr", compressors=GzipCodec())
    keys = [f"scores/c/{i}/{j}" for i, j in ((1, 0), (5, 1), (10, 0))]
    for key in keys:
        spoil(tmp_path / "a.zarr" / key, 2)
    done = CliRunner().invoke(main, ["verify", str(tmp_path / "a.zarr"), "--quiet"])
    assert done.exit_code == 1
    assert all(done.output.count(f"chunk {key} of") == 1 for key in keys)
    assert "24 chunks" in done.output
    assert "3 damaged" in done.output
    printed = json.loads(CliRunner().invoke(main, ["verify", str(tmp_path / "a.zarr"), "--quiet", "--json"]).stdout)
    assert [key for key, _ in printed["damaged"]] == keys


def test_verify__makes_few_small_tasks_for_any_number_of_chunks(monkeypatch):
    array = zarr.create_array({}, shape=(10**11, 10), chunks=(10**4, 10), dtype="f4")
    computed = []

    def compute(tasks, stage):
        computed.extend(tasks)
        return [Verification(0, 0, (), False)]

    monkeypatch.setattr(stores, "verify_listing", lambda array: Verification(0, 0, (), False))
    (opened,) = stores.open_all(array)
    assert stores.verify_array(opened, compute).n_chunks == 10**7
    assert len(computed) == 10_000
    bounds = [task.dask[task.key].args[1:3] for task in computed]
    assert (bounds[0][0], bounds[-1][1]) == (0, 10**7)
    assert all(first[1] == second[0] for first, second in pairwise(bounds))
