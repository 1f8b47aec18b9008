"""Stores to damage: sealed ones in each form, and foreign ones; written once, copied for each case."""

from __future__ import annotations

import shutil

import pytest
from sound_stores import write_draft, write_foreign, write_ours


@pytest.fixture(scope="session")
def masters(tmp_path_factory):
    """Return the folder of sound stores."""
    folder = tmp_path_factory.mktemp("masters")
    write_ours(folder / "ours")
    write_ours(folder / "sharded", shard_chunks=2)
    write_ours(folder / "truncated", top_m=4)
    write_draft(folder / "draft")
    write_foreign(folder / "v3", 3)
    write_foreign(folder / "v2", 2)
    return folder


@pytest.fixture
def store(masters, tmp_path):
    """Return a function that copies a sound store for a test to damage."""

    def copy(name):
        shutil.copytree(masters / name, tmp_path / "a.zarr")
        return tmp_path / "a.zarr"

    return copy
