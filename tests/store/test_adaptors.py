"""The private interfaces of other libraries that we use work in the installed versions."""

from __future__ import annotations

import inspect
import uuid

import dask
import dask.array as da
import numpy as np
import pytest
import zarr
from dask.delayed import delayed
from zarr.storage import FsspecStore, LocalStore, MemoryStore, WrapperStore, ZipStore

from avgk_dask.api.sets import wait_for
from avgk_dask.engine.tasks import as_delayed, constant, task, token_of
from avgk_dask.sources.reading import Key
from avgk_dask.store.where import addresses as fsspec_calls
from avgk_dask.store.where.addresses import get, inner_store, metadata_bytes, read_key, wait, write_key, zip_entries


@pytest.mark.parametrize("make", [MemoryStore, lambda: None])
def test_zarr_calls__read_and_write_keys_of_stores_that_are_not_open(make, tmp_path):
    store = make() or LocalStore(tmp_path / "a")
    assert read_key(store, "x/y") is None
    write_key(store, "x/y", b"abc")
    assert read_key(store, "x/y") == b"abc"
    assert wait(get(store, "x/y"), timeout=60).to_bytes() == b"abc"


def test_zarr_calls__look_inside_wrappers_and_at_metadata():
    store = MemoryStore()
    assert inner_store(WrapperStore(store)) is store
    assert inner_store(store) is None
    array = zarr.create_array(store, name="a", shape=(3,), chunks=(2,), dtype="f4")
    assert metadata_bytes(array) == read_key(store, "a/zarr.json")


@pytest.mark.parametrize("form", ["path", "open file"])
def test_zarr_calls__list_zip_files(form, tmp_path):
    with ZipStore(tmp_path / "a.zip", mode="w") as written:
        zarr.create_array(written, name="a", data=np.arange(5), chunks=(2,))
    if form == "path":
        names = {entry.filename for entry in zip_entries(ZipStore(tmp_path / "a.zip"))}
    elif "IO[" not in str(inspect.signature(ZipStore).parameters["path"].annotation):
        pytest.skip("this zarr takes no open files")
    else:
        with open(tmp_path / "a.zip", "rb") as file:
            names = {entry.filename for entry in zip_entries(ZipStore(file))}
    assert {"a/c/0", "a/c/1", "a/c/2"} <= names


def test_fsspec_calls__find_copy_and_create():
    store = FsspecStore.from_url(f"memory://{uuid.uuid4().hex}")
    write_key(store, "a/b", b"1")
    wait(fsspec_calls.copy(store, "a/b", "a/c"))
    assert read_key(store, "a/c") == b"1"
    assert sorted(name.rpartition("/")[2] for name in wait(fsspec_calls.find_files(store, "a"))) == ["b", "c"]
    wait(fsspec_calls.list_bucket(store))
    if wait(fsspec_calls.create(store, "a/d", b"2")):  # False if conditions are not supported
        assert read_key(store, "a/d") == b"2"
        wait(fsspec_calls.create(store, "a/d", b"3"))
        assert read_key(store, "a/d") == b"2"
    else:
        assert read_key(store, "a/d") is None


def test_dask_tasks__take_keys_in_lists_and_values_as_they_are():
    given = delayed(7, name="seven")
    graph = {
        "plan": constant("plan", ("not", "a", "task")),
        "sum": task("sum", lambda plan, parts: (plan, sum(parts[0]) + parts[1]), Key("plan"), [[Key("seven"), 1], 2]),
    }
    (found,) = as_delayed(["sum"], graph, [given], "layer")
    for scheduler in ("synchronous", "threads"):
        assert dask.compute(found, scheduler=scheduler)[0] == (("not", "a", "task"), 10)


def test_dask_tasks__name_the_same_alike():
    assert token_of("a", np.arange(3)) == token_of("a", np.arange(3)) != token_of("a", np.arange(4))


def test_waiting__arrays_are_computed_after_the_task():
    seen = []
    first = delayed(lambda: seen.append("task"), pure=False)()
    array = da.ones((4, 2), chunks=(2, 2)).map_blocks(lambda block: (seen.append("block"), block)[1], dtype=float)
    seen.clear()
    assert wait_for(array, first).sum().compute(scheduler="synchronous") == 8
    assert seen == ["task", "block", "block"]
