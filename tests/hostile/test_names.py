"""Names that would act on a terminal, a log, a page or a spreadsheet: they are escaped, and messages are short."""

from __future__ import annotations

import base64
import csv
import io
import json
import logging
import os
import pickle
import re
import warnings

import numpy as np
import pytest
import xarray as xr
import zarr
from sound_stores import LABELS, SCORES, write_ours

import avgk_dask as avgk
from avgk_dask.cli import main
from avgk_dask.errors import LeftoverWarning, clean, visible
from avgk_dask.report import render_breakdown, render_comparison, render_report
from avgk_dask.report.frame import downloads
from avgk_dask.results.datasets import to_json

#: Escapes, returns, a bell, DEL, a C1 control, marks that reverse text, line separators, half a character.
ACTS = "\x1b[2J\r\n\x07\x08\x7f\x9b31m\x85\u202e\u2066\u200e\u2028\u2029\ufeff\x1c"
NAME = f"=é{ACTS}中👩\u200d💻"
LONG = f"{NAME}{'x' * 3_000}"
RAW = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]")
#: Characters of a printed line, or of an error.
MOST = 1_400


def check(text: str) -> str:
    """Assert that a text has no control characters and no long line."""
    assert not RAW.search(text), RAW.search(text)
    assert max(map(len, text.split("\n")), default=0) <= MOST
    return text


def check_error(error: BaseException) -> str:
    assert "\n" not in str(error)
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), str(copy)) == (type(error), str(error))
    return check(str(error))


@pytest.fixture
def outcomes(capsys, caplog):
    """Return a function that calls another and returns its error, warnings, output and logs, each checked."""

    def call(function, *args, **kwargs):
        said = []
        with warnings.catch_warnings(record=True) as caught, caplog.at_level(logging.DEBUG, "avgk_dask"):
            warnings.simplefilter("always")
            try:
                said.append(repr(function(*args, **kwargs)))
            except avgk.AvgkError as error:
                said.append(check_error(error))
            except SystemExit:
                pass
        ours = [w for w in caught if function is avgk_command or w.category.__module__.startswith("avgk_dask")]
        said += [check(str(w.message)) for w in ours]
        said += [check(text) for text in (*capsys.readouterr(), *caplog.messages)]
        return "\n".join(said)

    return call


def avgk_command(*words):
    main.main(args=[str(word) for word in words], prog_name="avgk")


def test_commands__show_no_part_of_a_secret_that_was_cut(outcomes):
    secret = "".join(f"{i:04x}" for i in range(1_000))
    said = outcomes(avgk_command, "evaluate", "--storage-option", "secret=", secret)  # parsed as the store
    assert "avgk: " in said
    assert not any(secret[i : i + 20] in said for i in range(len(secret) - 20))


def test_visible__keeps_letters_of_all_scripts_and_emoji():
    for name in ("é", "中文", "👩\u200d💻", "\u0645\u06cc\u200c\u062e", "a\u00a0b", "🏳️\u200d🌈", "e\u0301"):
        assert visible(name) == clean(name) == str(avgk.StoreError(name)) == name
    assert visible("\x00\x1b\x7f\x9b\u202e\udc80\n") == r"\x00\x1b\x7f\x9b\u202e\udc80\n"


@pytest.mark.parametrize(
    "kind",
    [
        c
        for c in vars(avgk.errors).values()
        if isinstance(c, type) and issubclass(c, (avgk.AvgkError, LeftoverWarning, avgk.ResultWarning))
    ],
)
@pytest.mark.parametrize("text", [NAME, LONG, f"\x00{LONG}. Repair it.", "\udc80\udcff"])
def test_errors_and_warnings__are_clean_however_they_are_made(kind, text):
    check_error(kind(text))
    error = kind(text)
    assert check_error(error).endswith(visible(text)[-20:])
    if isinstance(error, avgk.AvgkError):
        with pytest.raises(kind) as caught, avgk.errors.naming(text):
            raise error
        check_error(caught.value)


def test_log__is_clean(outcomes, capsys):
    from avgk_dask.engine.progress import LOGGER, Bar, Progress

    for text in (NAME, LONG):
        outcomes(Progress().say, text)
        outcomes(LOGGER.info, "%s and %s", text, 1)
        bar = Bar()
        bar.begin("scan", "B", 3)
        bar.say(text)
        bar.close()
        assert not RAW.search(capsys.readouterr().err.replace("\r", ""))  # the bar's returns


READERS = {
    "evaluate": lambda path: ("evaluate", path, "-k", 1, "--no-straddle"),
    "info": lambda path: ("info", path),
    "verify": lambda path: ("verify", path),
    "json": lambda path: ("info", path, "--json"),
    "debug": lambda path: ("evaluate", path, "--debug"),
    "labels": lambda path: ("evaluate", path, "--labels", NAME),
    "scores": lambda path: ("evaluate", path, "--scores", LONG),
    "ingest": lambda path: ("ingest", path, "--out", f"{path}{NAME}"),
}


def edit(path, change):
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))


def codec(document):
    document["codecs"] = [{"name": NAME, "configuration": {LONG: 1}}]


def forged(key, value):
    return lambda document: document.__setitem__(key, value)


#: Metadata with names: of the group, then of its scores.
STORES = {
    "attributes": ("zarr.json", forged("attributes", {NAME: NAME, "class_names": [NAME, LONG, "c", "d", "e"]})),
    "class names": ("scores/zarr.json", forged("attributes", {"class_names": [NAME, LONG, "-1", "@", "e"], NAME: LONG})),
    "a key": ("zarr.json", forged(NAME, NAME)),
    "a key of the scores": ("scores/zarr.json", forged(LONG, {"must_understand": True})),
    "codecs": ("scores/zarr.json", codec),
    "dtype": ("scores/zarr.json", forged("data_type", NAME)),
    "long dtype": ("scores/zarr.json", forged("data_type", LONG)),
    "dimensions": ("scores/zarr.json", forged("dimension_names", [NAME, LONG])),
    "fill": ("scores/zarr.json", forged("fill_value", LONG)),
    "grid": ("scores/zarr.json", forged("chunk_grid", {"name": NAME, "configuration": {}})),
    "kind": ("scores/zarr.json", forged("node_type", LONG)),
    "format": ("zarr.json", forged("zarr_format", NAME)),
}  # fmt: skip


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", STORES)
@pytest.mark.parametrize("master", ["v3", "ours"])
def test_commands__show_no_name_of_metadata_as_it_is(store, outcomes, master, name):
    path = store(master)
    place, change = STORES[name]
    edit(path / place, change)
    for words in READERS.values():
        outcomes(avgk_command, *words(path))


@pytest.mark.slow
def test_commands__show_no_name_of_an_array_or_a_file_as_it_is(tmp_path, outcomes):
    group = zarr.open_group(tmp_path / f"a{NAME}.zarr", mode="w")
    for name in (f"b{ACTS}", f"c{ACTS}"):
        group.create_array(name, data=SCORES)
    for words in READERS.values():
        outcomes(avgk_command, *words(tmp_path / f"a{NAME}.zarr"))
    write_ours(tmp_path / f"b{NAME}.zarr")
    os.remove(tmp_path / f"b{NAME}.zarr" / "scores" / "c" / "1" / "0")
    for words in READERS.values():
        outcomes(avgk_command, *words(tmp_path / f"b{NAME}.zarr"))
    for path in (tmp_path / f"{NAME}.npy", os.fsdecode(b"\xff\x1b.npy"), LONG, f"{NAME}://{NAME}@{NAME}/{LONG}"):
        for words in READERS.values():
            said = outcomes(avgk_command, *words(path))
            assert "avgk: " in said
    np.save(tmp_path / f"{NAME}.npy", SCORES)
    np.save(tmp_path / "labels.npy", LABELS)
    outcomes(
        avgk_command, "evaluate", tmp_path / f"{NAME}.npy", tmp_path / "labels.npy", "--out", tmp_path / f"out{NAME}"
    )
    assert "is a store or a file" in outcomes(
        avgk_command, "evaluate", tmp_path / f"{NAME}.npy", "--out", tmp_path / f"{NAME}.npy"
    )
    outcomes(avgk_command, "evaluate", tmp_path / f"{NAME}.npy", "--no-straddle", "--storage-option", f"{NAME}={LONG}")
    for words in (("--storage-option", NAME[1:]), ("-k", NAME), (LONG,), (f"--{LONG}",)):
        assert "avgk: " in outcomes(avgk_command, "evaluate", tmp_path / f"{NAME}.npy", *words)
    assert "avgk: " in outcomes(avgk_command, LONG)


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".arrow", ".npz"])
def test_commands__show_no_column_as_it_is(tmp_path, outcomes, suffix):
    names = [NAME, f"{ACTS}b", LONG, "+1", "é"]
    path = tmp_path / f"a{suffix}"
    if suffix == ".npz":
        np.savez(path, **{name.replace("x", ""): SCORES for name in names})
    else:
        pa = pytest.importorskip("pyarrow")
        table = pa.table(dict(zip(names, SCORES.T, strict=True)))
        if suffix == ".csv":
            with open(path, "w", newline="", encoding="utf-8") as file:
                csv.writer(file).writerows([names, *SCORES.tolist()])
        elif suffix == ".parquet":
            import pyarrow.parquet

            pyarrow.parquet.write_table(table, path)
        else:
            import pyarrow.feather

            pyarrow.feather.write_feather(table, path, compression="uncompressed")
    for words in READERS.values():
        outcomes(avgk_command, *words(path))
    outcomes(avgk_command, "ingest", path, "--labels", NAME, "--out", tmp_path / "b.zarr")


def test_texts_as_labels__are_refused_without_their_controls(tmp_path, outcomes):
    texts = np.array([NAME] * 60)
    said = outcomes(avgk.evaluate, SCORES, texts, 1)
    assert "labels" in said
    np.save(tmp_path / "labels.npy", texts)
    np.save(tmp_path / "scores.npy", SCORES)
    outcomes(avgk_command, "evaluate", tmp_path / "scores.npy", tmp_path / "labels.npy")
    (tmp_path / "labels.csv").write_text(f"label\n{visible(NAME)}\x1b[31m\n")
    outcomes(avgk_command, "evaluate", tmp_path / "scores.npy", tmp_path / "labels.csv")
    (tmp_path / "numbers.txt").write_text(f"{NAME}\n")
    outcomes(avgk_command, "evaluate", tmp_path / "scores.npy", "--balanced", tmp_path / "numbers.txt")


def test_arguments__of_functions_are_shown_without_their_controls(outcomes):
    scores = xr.DataArray(SCORES, dims=(NAME, LONG))
    for call in (
        lambda: avgk.evaluate(scores, LABELS, 1),
        lambda: avgk.evaluate(SCORES, xr.DataArray(LABELS, dims=(NAME,), coords={NAME: [NAME] * 60}), 1),
        lambda: avgk.evaluate(SCORES, LABELS, NAME),
        lambda: avgk.evaluate(SCORES, LABELS, 1, ties=LONG),
        lambda: avgk.open_scores("memory://a", storage_options={NAME: LONG}),
        lambda: avgk.ScoreWriter(LONG, 3, codec=NAME),
        lambda: avgk.breakdown(SCORES, LABELS, 1, by=NAME),
        lambda: avgk.compare({NAME: SCORES, LONG: SCORES[:5]}, LABELS, k=1),
        lambda: avgk.report.write_report(avgk.evaluate(SCORES, LABELS, 1), f"/dev/null/{LONG}"),
    ):
        outcomes(call)


def test_leases__name_their_host_without_its_controls(tmp_path, outcomes):
    writer = avgk.ScoreWriter(tmp_path / "a.zarr", 5)
    leases = [path for path in tmp_path.rglob("*") if path.is_file() and b'"process"' in path.read_bytes()]
    assert leases
    for path in leases:
        edit(path, lambda document: document["process"].update(host=NAME))
    assert visible(NAME) in outcomes(avgk.ScoreWriter, tmp_path / "a.zarr", 5)
    outcomes(avgk_command, "ingest", tmp_path / "x.npy", "--out", tmp_path / "a.zarr", "--overwrite")
    for path in leases:
        edit(path, lambda document: document.update(lasts=0, since=0, renewed=0))
        os.utime(path, (0, 0))
    assert visible(NAME) in outcomes(avgk.ScoreWriter, tmp_path / "a.zarr", 5, resume=True)
    outcomes(writer.__exit__, KeyboardInterrupt, KeyboardInterrupt(), None)


@pytest.fixture(scope="module")
def results():
    """Return results with hostile names of classes, groups, models and attributes."""
    names = [NAME, LONG, f"\x00{NAME}", "\t=1", "é"]
    by_class = avgk.breakdown(SCORES, LABELS, 1, by="class", names=names)
    by_group = avgk.breakdown(SCORES, LABELS, 1, by=np.arange(60) % 3, names=[NAME, LONG, "\x00@é"])
    by_group.attrs["by"] = by_group.attrs["store"] = LONG
    models = avgk.compare({NAME: SCORES, "\x00=": SCORES[:, ::-1]}, LABELS, k=1)
    result = avgk.evaluate(SCORES, LABELS, 1)
    result.attrs |= {"store": NAME, NAME: LONG, "versions": NAME}
    return {"class": by_class, "group": by_group, "models": models, "result": result}


PAGES = {
    "class": render_breakdown,
    "group": render_breakdown,
    "models": render_comparison,
    "result": render_report,
}


@pytest.mark.sample(1)
@pytest.mark.filterwarnings("ignore:Glyph")
@pytest.mark.parametrize("name", PAGES)
def test_pages__show_no_name_as_it_is(results, name):
    page = PAGES[name](results[name])
    assert not RAW.search(page)
    assert "é" in page


@pytest.mark.parametrize("width", [None, 60])
def test_tables__show_no_name_as_it_is(results, width):
    for text in (
        avgk.report.print_table(results["result"], width=width, colour=True),
        avgk.report.print_breakdown(results["class"], width=width, colour=True),
        avgk.report.print_breakdown(results["group"], width=width, colour=True),
        avgk.report.print_comparison(results["models"], width=width, colour=True),
    ):
        plain = re.sub("\x1b\\[[0-9]+m", "", text)  # remove our colours
        assert not RAW.search(plain)
        assert max(map(len, plain.splitlines())) <= MOST


def test_json__holds_names_as_escapes(results):
    text = to_json(results["class"])
    assert not RAW.search(text)
    assert json.loads(text)["variables"]["name"]["data"][0] == NAME


def test_downloads__hold_no_formula():
    names = ["=1", "+1", "-1", "@a", "\t=1", "\r=1", " =1", "\x00=1", "\u200b=1", "\n+1", "\uff1d1", "a=1", "é"]
    numbers = [-0.5, "-inf", None, *range(10)]
    table, _ = downloads({"models": {"model": names, "gain": numbers}}, {})
    text = base64.b64decode(table.url.partition("base64,")[2]).decode()
    assert not RAW.search(text)
    rows = list(csv.DictReader(io.StringIO(text)))
    assert [row["model"] for row in rows] == [*(f"'{visible(name)}" for name in names[:-2]), "a=1", "é"]
    assert [row["gain"] for row in rows] == ["-0.5", "-inf", "", *map(str, range(10))]
