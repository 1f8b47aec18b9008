"""Edited and damaged metadata: sealed stores refuse edits that change a number; no store raises a foreign exception."""

from __future__ import annotations

import copy
import hashlib
import json
import os
import random

import numpy as np
import pytest
import zarr
from judging import answers, evaluate, judge, outcome

import avgk_dask as avgk

pytestmark = pytest.mark.timeout(120)

#: The replacements for values.
VALUES = [None, True, -1, 0, 10**18, 2.5, "x", [], {}, [[0]], "float64", [0, 0]]


def leaves(document, path=()):
    """Yield the path of every value of a JSON document, except those of the manifest's tables."""
    yield path
    items = (
        document.items() if isinstance(document, dict) else enumerate(document) if isinstance(document, list) else ()
    )
    for name, value in items:
        yield from leaves(value, (*path, name))


def edited(document, path, value):
    """Return a copy of a document with a value replaced, or removed if the new one is ``...``."""
    made = copy.deepcopy(document)
    if not path:
        return {} if value is ... else value
    inner = made
    for name in path[:-1]:
        inner = inner[name]
    if value is ...:
        del inner[path[-1]]
    else:
        inner[path[-1]] = value
    return made


def edits(document, n, seed, keep=lambda path: True):
    """Return ``n`` pairs of a path and a new value, with each path at least once."""
    paths = [path for path in leaves(document) if keep(path)]
    chooser = random.Random(seed)
    pairs = [(path, chooser.choice([..., *VALUES])) for path in paths]
    pairs += [(chooser.choice(paths), chooser.choice([..., *VALUES])) for _ in range(n - len(pairs))]
    return sorted({(path, json.dumps(value) if value is not ... else "...") for path, value in pairs}, key=str)[:n]


def name_edit(pair):
    return f"{'.'.join(map(str, pair[0])) or 'all'}={pair[1]}"


def value_of(pair):
    return ... if pair[1] == "..." else json.loads(pair[1])


def read(path):
    return json.loads(path.read_text())


def write(path, document):
    path.write_text(json.dumps(document))


@pytest.fixture(scope="module")
def sound(masters):
    """Return the answers of each reader for each sound store."""
    return {name: answers(masters / name) for name in ("ours", "sharded", "truncated", "v3", "v2")}


def documents(name):
    """Return the metadata of a sound store, which are used only to list the edits."""
    import tempfile

    from sound_stores import write_foreign, write_ours

    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "a")
        if name.startswith("v"):
            write_foreign(path, int(name[1]))
        else:
            write_ours(path, **{"ours": {}, "sharded": {"shard_chunks": 2}, "truncated": {"top_m": 4}}[name])
        documents = {}
        for key in ("zarr.json", "scores/zarr.json", "scores/.zarray", ".zgroup", "manifest/scores/zarr.json"):
            if os.path.exists(os.path.join(path, key)):
                with open(os.path.join(path, key)) as file:
                    documents[key] = json.load(file)
        return documents


OURS, SHARDED, TRUNCATED, V3, V2 = map(documents, ("ours", "sharded", "truncated", "v3", "v2"))


@pytest.mark.sample(15)
@pytest.mark.parametrize("name, pair", [
    *(("ours", pair) for pair in edits(OURS["scores/zarr.json"], 70, 1)),
    *(("sharded", pair) for pair in edits(SHARDED["scores/zarr.json"], 50, 2)),
], ids=lambda value: value if isinstance(value, str) else name_edit(value))  # fmt: skip
def test_array_metadata__edited_with_their_copy_never_change_a_number(store, sound, name, pair):
    path = store(name)
    root = read(path / "zarr.json")
    made = edited(root["consolidated_metadata"]["metadata"]["scores"], pair[0], value_of(pair))
    root["consolidated_metadata"]["metadata"]["scores"] = made
    write(path / "zarr.json", root)
    write(path / "scores" / "zarr.json", made)
    outcomes = judge(path, sound[name])
    if outcomes["evaluate"][0] == "refused":
        assert outcomes["verify"] != ("answer", "ok")


def in_table(path):
    return len(path) > 3 and path[0] == "consolidated_metadata" and path[2] not in ("scores",)


@pytest.mark.sample(13)
@pytest.mark.parametrize("name, pair", [
    *(("ours", pair) for pair in edits(OURS["zarr.json"], 110, 3, lambda path: not in_table(path))),
    *(("truncated", pair) for pair in edits(TRUNCATED["zarr.json"], 60, 4, lambda path: path[:1] == ("attributes",))),
], ids=lambda value: value if isinstance(value, str) else name_edit(value))  # fmt: skip
def test_root_metadata__edited_never_change_a_number(store, sound, name, pair):
    path = store(name)
    write(path / "zarr.json", edited(read(path / "zarr.json"), pair[0], value_of(pair)))
    judge(path, sound[name])


@pytest.mark.sample(15)
@pytest.mark.parametrize("pair", edits(OURS["manifest/scores/zarr.json"], 40, 5), ids=name_edit)
def test_table_metadata__edited_never_change_a_number(store, sound, pair):
    path = store("ours")
    root = read(path / "zarr.json")
    made = edited(root["consolidated_metadata"]["metadata"]["manifest/scores"], pair[0], value_of(pair))
    root["consolidated_metadata"]["metadata"]["manifest/scores"] = made
    write(path / "zarr.json", root)
    judge(path, sound["ours"])


@pytest.mark.sample(7)
@pytest.mark.parametrize("name, key, pair", [
    *(("v3", "scores/zarr.json", pair) for pair in edits(V3["scores/zarr.json"], 60, 6)),
    *(("v3", "zarr.json", pair) for pair in edits(V3["zarr.json"], 12, 7)),
    *(("v2", "scores/.zarray", pair) for pair in edits(V2["scores/.zarray"], 50, 8)),
    *(("v2", ".zgroup", pair) for pair in edits(V2[".zgroup"], 8, 9)),
], ids=lambda value: value if isinstance(value, str) else name_edit(value))  # fmt: skip
def test_foreign_metadata__edited_end_in_an_answer_or_one_clear_error(store, sound, name, key, pair):
    path = store(name)
    write(path / key, edited(read(path / key), pair[0], value_of(pair)))
    judge(path, sound[name], may_change=True)


CONTENTS = {
    "empty": b"", "shortened": b'{"zarr_format": 3, "node_ty', "binary": bytes(range(256)), "list": b"[1, 2]", "number": b"7",
    "deep": b"[" * 100_000 + b"]" * 100_000, "nan": b"NaN", "not utf-8": b'{"a": "\xff\xfe"}', "null": b"null",
    "huge number": b'{"zarr_format": 1' + b"0" * 5000 + b"}",
}  # fmt: skip


@pytest.mark.sample(9)
@pytest.mark.parametrize("content", CONTENTS)
@pytest.mark.parametrize("name, key", [
    ("ours", "zarr.json"), ("ours", "scores/zarr.json"), ("v3", "zarr.json"), ("v3", "scores/zarr.json"),
    ("v2", "scores/.zarray"), ("v2", ".zgroup"), ("v2", "scores/.zattrs"),
])  # fmt: skip
def test_metadata_files__of_other_content_are_told_in_one_line(store, sound, name, key, content):
    path = store(name)
    (path / key).write_bytes(CONTENTS[content])
    outcomes = judge(path, sound[name], may_change=key.endswith(".zattrs"))
    if key != "scores/zarr.json" or name != "ours":  # sealed stores have the copy in the root
        return
    assert outcomes["verify"][0] == "answer"
    assert "scores/zarr.json" in outcomes["verify"][1]


@pytest.mark.parametrize("kind", ["fifo", "zero", "folder", "dangling", "huge"])
@pytest.mark.parametrize("name, key", [("ours", "zarr.json"), ("v3", "scores/zarr.json"), ("v2", "scores/.zarray")])
def test_metadata_files__that_are_none_are_refused_at_once(store, sound, name, key, kind):
    path = store(name)
    replace(path / key, kind)
    outcomes = judge(path, sound[name])
    assert {outcomes[reader][0] for reader in ("evaluate", "info", "ingest")} == {"refused"}
    assert outcomes["verify"] != ("answer", "ok")


def replace(path, kind):
    """Replace a file by something else."""
    path.unlink()
    if kind == "fifo":
        os.mkfifo(path)
    elif kind in ("zero", "null"):
        path.symlink_to(f"/dev/{kind}")
    elif kind == "folder":
        path.mkdir()
    elif kind == "dangling":
        path.symlink_to("nowhere")
    elif kind == "huge":
        with open(path, "wb") as file:
            file.truncate(10 << 30)  # sparse, so it takes no disk space


def renewed(path, change):
    """Change the seal of a store and renew its digest, as anyone who knows the format could."""
    root = read(path / "zarr.json")
    state = root["attributes"]["avgk_dask"]
    change(state, root)
    if state.pop("seal", None) is None:
        write(path / "zarr.json", root)
        return
    state["seal"] = hashlib.sha256(json.dumps(state, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
    write(path / "zarr.json", root)


@pytest.mark.parametrize("rows", [0, 1, 3, 5])
def test_manifest_tables__of_another_length_are_refused_even_with_renewed_digests(store, sound, rows):
    path = store("ours")
    table = zarr.open_group(path, mode="r")["manifest/scores"][:]
    made = np.resize(table, (rows, 1, 2)).astype("<u8")
    folder = zarr.open_group(path, mode="r+", use_consolidated=False)["manifest"]
    chunks = tuple(max(1, n) for n in made.shape)
    folder.create_array("scores", data=made, chunks=chunks, overwrite=True)
    document = read(path / "manifest" / "scores" / "zarr.json")

    def change(state, root):
        state["manifest"]["scores"] = hashlib.sha256(made.tobytes()).hexdigest()
        root["consolidated_metadata"]["metadata"]["manifest/scores"] = document

    renewed(path, change)
    outcomes = judge(path, sound["ours"])
    assert {kind for kind, _ in outcomes.values()} == {"refused"}


STATES = {
    "complete is text": lambda state, root: state.update(complete="false"),
    "complete is 1": lambda state, root: state.update(complete=1),
    "not complete": lambda state, root: state.update(complete=False),
    "a later format": lambda state, root: state.update(format=999),
    "format is text": lambda state, root: state.update(format="2"),
    "format is true": lambda state, root: state.update(format=True),
    "format 0": lambda state, root: state.update(format=0),
    "fewer chunks": lambda state, root: state["n_chunks"].update(scores=3),
    "no chunks": lambda state, root: state["n_chunks"].update(scores=0),
    "negative chunks": lambda state, root: state["n_chunks"].update(scores=-4),
    "no digest of metadata": lambda state, root: state["metadata"].pop("scores"),
    "a list": lambda state, root: state.update(manifest=["scores"]),
    "said to be of the first format": lambda state, root: state.update(format=1),
}


@pytest.mark.parametrize("name", STATES)
def test_states__that_cannot_be_are_refused_even_with_renewed_digests(store, sound, name):
    path = store("ours")
    renewed(path, STATES[name])
    outcomes = judge(path, sound["ours"])
    assert {kind for kind, _ in outcomes.values()} == {"refused"}


def test_a_state__that_is_gone_is_missed(store):
    path = store("ours")
    root = read(path / "zarr.json")
    del root["attributes"]["avgk_dask"]
    write(path / "zarr.json", root)
    with pytest.raises(avgk.StoreError, match="a manifest but no seal"):
        evaluate(path)


@pytest.mark.parametrize("n_classes", [2, 0, -5, "5", True, None, 4, 6])
def test_truncated_stores__need_their_own_number_of_classes(store, n_classes):
    path = store("truncated")
    write(path / "zarr.json", edited(read(path / "zarr.json"), ("attributes", "n_classes"), n_classes))
    kind, text = outcome(evaluate, path)
    assert kind == "refused"
    assert "a.zarr" in text


def test_notes_of_users__do_not_break_a_seal(store, sound):
    path = store("ours")
    group = zarr.open_group(path, mode="r+", use_consolidated=False)
    group["scores"].attrs["model"] = "resnet"
    root = read(path / "zarr.json")
    root["attributes"]["author"] = "me"
    write(path / "zarr.json", root)
    outcomes = judge(path, sound["ours"])
    assert outcomes["verify"] == ("answer", "ok")
    assert {kind for kind, _ in outcomes.values()} == {"answer"}


def test_consolidating_again__does_not_break_a_seal(store, sound):
    path = store("ours")
    zarr.consolidate_metadata(path)
    root = read(path / "zarr.json")
    for document in root["consolidated_metadata"]["metadata"].values():  # in the spelling of another version
        if document["node_type"] == "array":
            document.setdefault("attributes", {})["note"] = "spelled anew"
            document["fill_value"] = int(document["fill_value"])
    write(path / "zarr.json", root)
    outcomes = judge(path, sound["ours"])
    assert {kind for kind, _ in outcomes.values()} == {"answer"}
    root["consolidated_metadata"]["metadata"]["scores"]["data_type"] = "float64"
    write(path / "zarr.json", root)
    assert judge(path, sound["ours"])["verify"][1].startswith("(('zarr.json', 'its copy of the metadata of scores")


def test_stores_of_the_first_format__are_read_and_said_to_be_less_sure(store, sound):
    path = store("ours")

    def downgrade(state, root):
        state["format"] = 1
        for name in ("metadata", "n_chunks", "seal"):
            del state[name]

    renewed(path, downgrade)
    assert evaluate(path).identical(sound["ours"]["evaluate"])
    assert avgk.verify(path).ok
    assert not avgk.verify(path).has_manifest


def as_int32(path):
    """Change the dtype of an array to integers in all copies of its metadata."""
    root = read(path / "zarr.json")
    made = edited(root["consolidated_metadata"]["metadata"]["scores"], ("data_type",), "int32")
    root["consolidated_metadata"]["metadata"]["scores"] = made | {"fill_value": 0}
    write(path / "zarr.json", root)
    write(path / "scores" / "zarr.json", made | {"fill_value": 0})


@pytest.mark.parametrize("opened", [str, zarr.open_array, lambda path: zarr.open_array(path).store])
def test_arrays_of_our_stores__are_checked_however_they_are_opened(store, opened):
    path = store("ours")
    assert avgk.threshold(opened(path / "scores"), 1).value == avgk.threshold(path, 1).value
    as_int32(path)
    with pytest.raises(avgk.StoreError, match=r"metadata of array 'scores' .* changed after they were written"):
        avgk.threshold(opened(path / "scores"), 1)


@pytest.mark.parametrize("content", [b"", b"{", b"[]"])
def test_arrays_of_our_stores__are_refused_where_what_tells_of_them_is_damaged(store, content):
    path = store("ours")
    (path / "zarr.json").write_bytes(content)
    with pytest.raises(avgk.StoreError, match=r"zarr\.json .* is damaged"):
        avgk.threshold(path / "scores", 1)
