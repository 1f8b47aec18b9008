"""Opening stores: a path, a URL, a Zarr group or array becomes score and label arrays, reads checked."""

from __future__ import annotations

import asyncio
import difflib
import json
import os
import warnings
from dataclasses import dataclass, replace
from typing import Any

import zarr
from zarr.abc.store import Store
from zarr.codecs import BloscCodec
from zarr.core.buffer import default_buffer_prototype
from zarr.core.sync import sync
from zarr.storage import FsspecStore, ObjectStore, StorePath

from ..errors import AvgkError, OptionError, ScoresError, StoreError
from .checked import CheckedStore, Checks, bare_store
from .failures import advice
from .locations import inner_root, locate
from .manifest import ATTRIBUTE, GROUP, Manifest, Table, table_digest
from .shards import ShardIndex
from .showing import Options, secrets_of, shown

#: A store that has not answered its first request by then is given up.
_OPEN_SECONDS = 20
_WRITE_FIRST = "Check the path, or write a store first (avgk simulate, avgk ingest or ScoreWriter)."


@dataclass(frozen=True)
class StoredArrays:
    """The arrays of a score store, not read yet."""

    scores: Any
    labels: Any | None
    location: str
    #: Of a truncated store: the class of each score kept, and the number of classes there were.
    class_index: Any | None = None
    n_classes: int | None = None

    @property
    def fingerprint(self) -> str:
        """The SHA-256 of the manifest of the scores: of what is stored; empty where there is none."""
        checks = getattr(self.scores.store, "checks", None)
        return "" if checks is None or checks.manifest is None else table_digest(checks.manifest.table)


def is_zarr(value: Any) -> bool:
    """Whether the value is something zarr has opened, or a store it can open."""
    return isinstance(value, (zarr.Array, zarr.Group, Store, StorePath))


def open_arrays(
    store: Any,
    *,
    scores: str | None = None,
    labels: str | None = None,
    storage_options: Options | None = None,
    missing: str | None = None,
    own_labels: bool = True,
) -> StoredArrays:
    """Open the scores, and the labels where present, of a store; reads metadata only.

    ``scores`` and ``labels`` name the arrays inside a group (by default ``scores`` and ``labels``;
    labels are looked for beside the scores). ``missing`` is what a chunk that is not there means:
    ``"raise"`` an error (the default), ``"fill"`` the array's fill value. Without ``own_labels``
    labels that are not named are not looked for.

    Raises
    ------
    StoreError
        Where there is no store, no array of that name in it, or its writer did not finish.

    """
    node, root = open_node(store, storage_options, missing)
    location = root.checks.location
    if isinstance(node, zarr.Array):
        if scores is not None or labels is not None:
            raise StoreError(f"store must be a group to hold named arrays; got the array {location}. Drop the names.")
        return StoredArrays(_by_sample(node, location), None, location)
    folder = f"{(scores or '').rpartition('/')[0]}/".removeprefix("/")
    found = open_array(node, root, scores or "scores")
    has_labels = labels is not None or (own_labels and f"{folder}labels" in node)
    mine = open_array(node, root, labels or f"{folder}labels") if has_labels else None
    if f"{folder}class_index" not in node:
        return StoredArrays(_by_sample(found, location), mine, location)
    index = open_array(node, root, f"{folder}class_index")
    n_classes = (node[folder] if folder else node).attrs.get("n_classes")
    if index.shape != found.shape or not isinstance(n_classes, int):
        raise ScoresError(
            "a truncated store must have class_index of the scores' shape and an attribute n_classes; "
            f"got {location} without. Write it with ScoreWriter(..., top_m=...)."
        )
    return StoredArrays(found, mine, location, index, n_classes)


def open_all(store: Any, *, storage_options: Options | None = None, missing: str | None = None) -> list[Any]:
    """Open every array of a store, those of its inner groups included, or the array it is."""
    node, root = open_node(store, storage_options, missing)
    if isinstance(node, zarr.Array):
        return [node]
    names = _array_names(node)
    if not names:
        raise StoreError(f"{root.checks.location} holds no arrays. Check the path.")
    return [open_array(node, root, name) for name in names]


def _array_names(group: Any) -> list[str]:
    """Give the paths of all arrays below a group, but for those of manifests."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of objects that are no Zarr nodes
        try:
            nodes = [name for name, node in group.members(max_depth=None) if isinstance(node, zarr.Array)]
        except Exception:  # a store that cannot list
            nodes = [name for name in ("scores", "class_index", "labels") if name in group]
    return sorted(name for name in nodes if GROUP not in name.split("/")[:-1])


def open_labels(store: Any, storage_options: Options | None = None, missing: str | None = None) -> Any:
    """Open labels kept on their own: an array, or the array ``labels`` of a group; reads metadata only."""
    node, root = open_node(store, storage_options, missing)
    return node if isinstance(node, zarr.Array) else open_array(node, root, "labels")


def open_node(store: Any, storage_options: Options | None = None, missing: str | None = None) -> tuple[Any, Any]:
    """Open a Zarr group or array; give it with the checked store its arrays are read through."""
    if missing not in (None, "raise", "fill"):
        raise OptionError(f"missing must be 'raise' or 'fill'; got {missing!r}. Leave it out to refuse missing chunks.")
    if isinstance(store, zarr.Array) and isinstance(store.store_path.store, CheckedStore):
        checked = store.store_path.store.with_checks(missing=missing or store.store_path.store.checks.missing)
        return _through(store, checked), checked
    bare, path, location = _find(store, storage_options)
    checked = CheckedStore(bare, Checks(location, missing or "raise", secrets=secrets_of(storage_options)))
    # A group opened without consolidated metadata stays so.
    given = isinstance(store, zarr.Group) and store.metadata.consolidated_metadata is None
    node = _open(checked, path, use_consolidated=False if given else None)
    if isinstance(node, zarr.Group):
        refuse_incomplete(node, checked.checks)
        return node, checked
    if not path and isinstance(store, (str, os.PathLike)):
        checked, path = _outer_store(os.fspath(store), storage_options, checked)
    group, name = _parent(checked, path), path.rpartition("/")[2]
    return with_checks(node, checked, path, _table(group, name, checked.checks)), checked


def _outer_store(path: str, options: Options | None, checked: CheckedStore) -> tuple[CheckedStore, str]:
    """Give the store of ours that the array at a path lies in, and its path there; the given store, if it lies in none."""
    outer, _, name = (path.rstrip("/") if "://" in path else os.path.abspath(path)).rpartition("/")
    try:
        store = locate(outer, options)
        data = sync(store.get("zarr.json", default_buffer_prototype()))
        if data is not None and ATTRIBUTE in json.loads(data.to_bytes()).get("attributes", {}):
            return CheckedStore(store, checked.checks), name
    except Exception:  # nothing there, or nothing that may be read
        pass
    return checked, ""


def _find(store: Any, storage_options: Options | None) -> tuple[Store, str, str]:
    """Give the store, the path in it and its name of whatever a user may pass."""
    if isinstance(store, (zarr.Array, zarr.Group)):
        store = store.store_path
    if isinstance(store, StorePath):
        return store.store, store.path, shown(str(store))
    if isinstance(store, Store):
        return store, "", shown(str(store))
    found = locate(store, storage_options)
    return found, inner_root(found), shown(store)


def _open(store: CheckedStore, path: str, use_consolidated: bool | None = None) -> Any:
    location = store.checks.location
    try:
        sync(_probe(store, path), timeout=None)
        if use_consolidated is False:
            return zarr.open_group(store, path=path, mode="r", use_consolidated=False)
        return zarr.open(store, path=path, mode="r")
    except TimeoutError:
        raise StoreError(
            f"could not open {location}: no answer within {_OPEN_SECONDS} s. Check the endpoint and the network."
        ) from None
    except AvgkError as error:
        why = str(error).partition(": ")[2].rstrip(".") or str(error)
        todo = advice(why, _WRITE_FIRST)
        raise StoreError(
            f"could not open {location}: {why.removesuffix(todo.rstrip('.')).rstrip('. ')}. {todo}"
        ) from None
    except Exception as error:
        why = store.checks.scrub(error)
        raise StoreError(
            f"store must be a Zarr array or group; could not open {location} ({why}). {advice(why, _WRITE_FIRST)}"
        ) from None


async def _probe(store: CheckedStore, path: str) -> None:
    """Ask for the root's metadata, one after the other: a store out of reach fails at once, and with one error."""
    prefix = f"{path}/" if path else ""
    async with asyncio.timeout(_OPEN_SECONDS):
        await store._ensure_open()
        for name in ("zarr.json", ".zgroup", ".zarray"):
            if await store.get(prefix + name, default_buffer_prototype()) is not None:
                return
        await _ask_for_bucket(bare_store(store))
    raise StoreError("no zarr.json, .zgroup or .zarray is there")


async def _ask_for_bucket(store: Any) -> None:
    """Let a client that takes an absent bucket for an absent key say that there is no bucket."""
    if isinstance(store, ObjectStore) and type(store.store).__name__ != "HTTPStore":
        async for _ in store.list_dir(""):
            return
    if isinstance(store, FsspecStore) and "s3" in str(store.fs.protocol):
        await store.fs._ls(store.path.split("/")[0])


def _parent(store: CheckedStore, path: str) -> Any | None:
    """Give the group an array lies in; None where it lies in none."""
    if not path:
        return None
    try:
        return zarr.open_group(store, path=path.rpartition("/")[0], mode="r")
    except (FileNotFoundError, KeyError, ValueError):
        return None


def refuse_incomplete(group: Any, checks: Checks) -> None:
    """Raise StoreError for a group whose writer did not finish."""
    state = group.attrs.get(ATTRIBUTE)
    if not isinstance(state, dict) or state.get("complete"):
        return
    how = (
        "join its parts with avgk join once all are written"
        if state.get("parts")
        else "continue it with ScoreWriter(..., resume=True), or write it again"
    )
    raise StoreError(f"{checks.location} is incomplete: its writer did not finish. Wait for it, or {how}.")


def load_table(group: Any, name: str, checks: Checks) -> Table | None:
    """Read the digests of the chunks of an array of a group; None where the group has none for it.

    Raises
    ------
    StoreError
        Where the manifest is damaged.

    """
    state = group.attrs.get(ATTRIBUTE)
    digest = state.get("manifest", {}).get(name) if isinstance(state, dict) else None
    if digest is None:
        return None
    try:
        table: Table = group[f"{GROUP}/{name}"][...]
    except Exception as error:
        raise StoreError(
            f"the manifest of {checks.location} cannot be read: {checks.scrub(error)}. Write the store again."
        ) from None
    if table_digest(table) != digest:
        raise StoreError(f"the manifest of {checks.location} is damaged: {name}. Write the store again.")
    return table


def _table(group: Any | None, name: str, checks: Checks) -> Table | None:
    if group is None:
        return None
    refuse_incomplete(group, checks)
    return load_table(group, name, checks)


def open_array(group: Any, store: CheckedStore, name: str) -> Any:
    """Open an array of a group through the checked store."""
    location = store.checks.location
    try:
        node = group.get(name)
    except Exception as error:
        raise StoreError(
            f"could not open array {name!r} of {location}: {store.checks.scrub(error)}. Its metadata are damaged: write the store again."
        ) from None
    if isinstance(node, zarr.Array):
        folder, _, base = name.rpartition("/")
        return with_checks(node, store, node.path, _table(group[folder] if folder else group, base, store.checks))
    names = _array_names(group)
    near = difflib.get_close_matches(name, names, 1)
    hint = f"Did you mean {near[0]!r}?" if near else "Name the array to use."
    raise StoreError(f"{location} has no array {name!r}; it has {', '.join(names) or 'no arrays'}. {hint}")


def with_checks(array: Any, store: CheckedStore, path: str, table: Table | None) -> Any:
    """Give the array at a path of a store, its reads checked against the digests of its chunks and its shards' indices."""
    _refuse_uneven_chunks(array, store.checks.location)
    index = ShardIndex.of(array)
    index = None if index is None else replace(index, array=path)
    manifest = None if table is None else Manifest(path, table)
    return _through(array, store.with_checks(manifest=manifest, index=index, is_blosc=_is_blosc(array)), path)


def _refuse_uneven_chunks(array: Any, location: str) -> None:
    """Raise StoreError for an array whose chunks have several sizes along an axis, which newer versions of zarr can write."""
    grid = array.metadata.to_dict().get("chunk_grid", {"name": "regular"})
    if grid["name"] != "regular":
        raise StoreError(
            f"array {array.path or '/'!r} of {location} must have chunks of one size; got a {grid['name']} chunk grid. "
            "Write it again with equal chunks."
        )


def _is_blosc(array: Any) -> bool:
    """Whether the last codec of an array is Blosc."""
    if array.metadata.zarr_format == 2:
        return getattr(array.metadata.compressor, "codec_id", None) == "blosc"
    return isinstance(array.metadata.codecs[-1], BloscCodec)


def _through(array: Any, store: CheckedStore, path: str | None = None) -> Any:
    place = StorePath(store, array.path if path is None else path)
    return zarr.Array(zarr.AsyncArray(metadata=array.metadata, store_path=place, config={"order": array.order}))


def _by_sample(array: Any, location: str) -> Any:
    """Refuse scores whose dimensions are named the other way round."""
    names = getattr(array.metadata, "dimension_names", None) or array.attrs.get("_ARRAY_DIMENSIONS")
    if names and tuple(names) == ("class", "sample"):
        raise ScoresError(f"scores must be (sample, class); {location} holds (class, sample). Transpose it first.")
    return array
