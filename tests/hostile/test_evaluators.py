"""Forged files of evaluators with a valid hash: each is refused by name, or loads to a usable evaluator."""

from __future__ import annotations

import json
import random
import tracemalloc

import dask
import numpy as np
import pytest
import xxhash
from test_metadata import VALUES, edited, leaves

import avgk_dask as avgk

pytestmark = [pytest.mark.filterwarnings("ignore::avgk_dask.ResultWarning"), pytest.mark.timeout(300)]

#: Settings with which few rows suffice to fill all parts of a state.
TINY = {"avgk.small-scores": 8, "avgk.task-bytes": 400, "avgk.least-events": 4, "avgk.tie-groups": 2}
RNG = np.random.default_rng(0)
SCORES = RNG.integers(0, 6, (240, 5)).astype(np.float32)
LABELS = RNG.integers(-1, 5, 240)
SOFT = RNG.dirichlet(np.ones(5), 240)
#: Further values: numbers beyond any integer, budgets and names.
MORE = [*VALUES, 1 << 62, -(1 << 63), 10**30, 1e308, "1e999999999", "1/0", "uint8", "hard labels", "groups", [1, 2, 3]]
#: Memory allowed for one forged file: some tables of a scan take a few MB.
MOST_BYTES = 150_000_000


#: Settings, options, labels and sizes of the evaluators.
KINDS = {
    "waiting": ({}, {"k": [1, 2.5]}, {"labels": LABELS}, 3),
    "hard": (TINY | {"avgk.max-events": 1 << 20}, {"k": [1, 2.5], "straddle": True}, {"labels": LABELS}, 240),
    "narrowed": (TINY | {"avgk.max-events": 60}, {"k": [1, 2.5], "straddle": True}, {"labels": LABELS}, 240),
    "binned": (TINY | {"avgk.max-events": 400, "avgk.ranked-bytes": 0}, {"k": 2, "straddle": True}, {}, 240),
    "soft": (TINY | {"avgk.max-events": 200}, {"k": 2}, {"labels": SOFT}, 240),
    "class": (TINY | {"avgk.max-events": 1 << 20}, {"k": 2, "by": "class"}, {"labels": LABELS}, 240),
    "clusters": (TINY | {"avgk.max-events": 300}, {"k": 2}, {"labels": LABELS, "clusters": np.arange(240) // 7}, 240),
}


def fill(evaluator, given, first, last):
    for a in range(first, last, 40):
        mine = slice(a, min(a + 40, last))
        evaluator.update(SCORES[mine], **{name: values[mine] for name, values in given.items()})
    return evaluator


@pytest.fixture(scope="module")
def masters(tmp_path_factory):
    """Return the bytes of a sound file of each kind, and of a second run."""
    folder, files = tmp_path_factory.mktemp("evaluators"), {}
    for name, (settings, options, given, n) in KINDS.items():
        with dask.config.set(settings):
            made = fill(avgk.Evaluator(5, **options), given, 0, n)
            made.save(folder / name)
            files[name] = (folder / name).read_bytes()
            if name == "narrowed":
                fill(avgk.Evaluator(5, **options, like=made), given, 0, n).save(folder / "again")
                files["again"] = (folder / "again").read_bytes()
    return files


def take_apart(data):
    """Return the form of a file, the descriptions of its arrays, and their bytes."""
    place = 24 + int.from_bytes(data[16:24], "little")
    form, descriptions = json.loads(data[24:place])
    arrays = []
    for *_, n_bytes in descriptions:
        arrays.append(data[place : place + n_bytes])
        place += n_bytes
    return form, descriptions, arrays


def put_together(form, descriptions, arrays):
    head = json.dumps([form, descriptions]).encode()
    body = b"".join([len(head).to_bytes(8, "little"), head, *arrays])
    return xxhash.xxh3_128(body).digest() + body


def forged_array(description, data, chooser):
    """Return an array of another dtype, shape, length or content."""
    name, dtype, shape, _ = description
    array = np.frombuffer(data, dtype).reshape(shape).copy()
    flat = array.reshape(-1)
    what = chooser.choice(
        ["dtype", "shape", "shorter", "longer", "value", "value", "value", "all", "shuffled", "empty"]
    )
    if what == "dtype":
        array = array.astype(chooser.choice(["<i8", "<i4", "|u1", "<f8", "|b1", "<u8", "<f4", "<i2"]))
    elif what == "shape":
        array = chooser.choice([array.reshape(-1, 1), array.reshape(1, -1), array.reshape(-1)])
    elif what == "shorter":
        array = array[: len(array) // 2]
    elif what == "longer":
        array = np.concatenate([array, array, np.ones_like(array[:1])])
    elif what == "empty":
        array = array[:0]
    elif what == "shuffled":
        array = array[::-1]
    elif flat.size and array.dtype.kind in "iu":
        limits = np.iinfo(array.dtype)
        value = chooser.choice([limits.max, limits.min, 0, 1, limits.max // 2, 37, limits.max - 1, 100])
        flat[... if what == "all" else chooser.randrange(flat.size)] = value
    elif flat.size:
        flat[chooser.randrange(flat.size)] = (
            chooser.choice([0, 1]) if array.dtype.kind == "b" else chooser.choice([np.nan, np.inf, -1, 7.5])
        )
    array = np.ascontiguousarray(array)
    return [name, array.dtype.str, list(array.shape), array.nbytes], array.tobytes()


def forged(data, chooser):
    """Return a file with one change and a new hash."""
    form, descriptions, arrays = take_apart(data)
    what = chooser.random()
    if what < 0.5:
        form = edited(form, chooser.choice(list(leaves(form))), chooser.choice([..., *MORE]))
    elif what < 0.6:
        descriptions = edited(descriptions, chooser.choice(list(leaves(descriptions))), chooser.choice([..., *MORE]))
    elif what < 0.65:
        shape = (
            next(path for path in leaves(form) if path[-1:] == ("shape",) and isinstance(value_at(form, path), str))
            if "Wave" in str(form)
            else ()
        )
        if shape:
            inner = json.loads(value_at(form, shape))
            form = edited(
                form, shape, json.dumps(edited(inner, chooser.choice(list(leaves(inner))), chooser.choice(MORE)))
            )
    else:
        i = chooser.randrange(len(descriptions))
        descriptions[i], arrays[i] = forged_array(descriptions[i], arrays[i], chooser)
    return put_together(form, descriptions, arrays)


def value_at(form, path):
    for name in path:
        form = form[name]
    return form


def refusal(call, *arguments):
    """Return the AvgkError that a call raises, or None."""
    try:
        call(*arguments)
    except avgk.AvgkError as error:
        return error
    return None


def go_on(path, name):
    """Use a file in all ways; only an AvgkError may be raised, and errors about its content name it."""
    _, options, given, n = KINDS["narrowed" if name == "again" else name]
    for use in (
        lambda one: one.result(),
        lambda one: (fill(one, given, 0, 80), one.result()),
        lambda one: (one.merge(fill(avgk.Evaluator(5, **options), given, 0, n)), one.result()),
        lambda one: fill(avgk.Evaluator(5, **options), given, 0, n).merge(one).result(),
        lambda one: fill(avgk.Evaluator(5, **options, like=one), given, 0, 80).result(),
        lambda one: (repr(one), one.save(path.with_name("copy")), avgk.Evaluator.load(path.with_name("copy"))),
    ):
        error = refusal(avgk.Evaluator.load, path)
        assert error is None or (type(error) is avgk.ReadError and path.name in str(error))
        if error is None:
            error = refusal(use, avgk.Evaluator.load(path))
            assert type(error) is not avgk.ReadError or path.name in str(error) or "copy" in str(error)


@pytest.mark.slow
@pytest.mark.parametrize("n_forged", [5, pytest.param(150, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", [*KINDS, "again"])
def test_evaluator_files__that_are_forged_raise_no_foreign_error(masters, tmp_path, name, n_forged):
    chooser = random.Random(f"{name} {n_forged}")
    path = tmp_path / "forged.avgk"
    settings = KINDS["narrowed" if name == "again" else name][0]
    tracemalloc.start()
    try:
        with dask.config.set(settings):
            for _ in range(n_forged):
                path.write_bytes(forged(masters[name], chooser))
                go_on(path, name)
        assert tracemalloc.get_traced_memory()[1] < MOST_BYTES
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("name", [*KINDS, "again"])
def test_evaluator_files__that_are_sound_are_take_apart_and_put_together(masters, tmp_path, name):
    path = tmp_path / "same.avgk"
    path.write_bytes(put_together(*take_apart(masters[name])))
    with dask.config.set(KINDS["narrowed" if name == "again" else name][0]):
        assert avgk.Evaluator.load(path).n_samples == KINDS.get(name, (0, 0, 0, 240))[3]
