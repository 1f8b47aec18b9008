"""What ``--json`` prints: one document on stdout, as its schema says, and nothing else."""

from __future__ import annotations

import json

import numpy as np
import pytest
import zarr

import avgk_dask as avgk
from avgk_dask.cli import main
from avgk_dask.cli.schemas import SCHEMAS

jsonschema = pytest.importorskip("jsonschema")

#: At least one command line of every command that takes --json, run one after the other.
LINES = {
    "evaluate": ["scores.zarr -k 1:3", "scores.zarr -k 1,1.5 --utility f --utility u80 --beta 2 --cost-of log --cost 0.1", "plain.zarr -k 0.5,2 --no-straddle", "infinite.zarr -k 1"],
    "threshold": ["scores.zarr -k 1,2.5", "infinite.zarr -k 1"],
    "transfer": ["scores.zarr scores.zarr -k 1:3", "infinite.zarr infinite.zarr -k 2 --guarantee expected"],
    "conformal": ["scores.zarr", "scores.zarr scores.zarr --alpha 0.5 --by class --out conformal.json",
                  "scores.zarr scores.zarr --method aps --seed 1 --alpha 0.001",
                  "scores.zarr scores.zarr --by labels --out groups.json"],
    "sets": ["scores.zarr -k 2.5 --out a.zarr", "scores.zarr -k 2 --rule top --format indices --out b.zarr",
             "scores.zarr --threshold 0.25 --out c.zarr",
             "scores.zarr --conformal predictor.json --out k.zarr", "infinite.zarr -k 1 --out d.zarr"],
    "compare": ["scores.zarr scores.zarr -k 1,2", "scores.zarr scores.zarr -k 1.5 --name a --name b"],
    "breakdown": ["scores.zarr -k 2", "scores.zarr -k 1,2 --by labels", "scores.zarr -k 2 --thresholds own --balanced labels"],
    "pairs": ["scores.zarr -k 2", "plain.zarr -k 0.5 --most 1"],
    "calibrate": ["logits.zarr --out t.json", "logits.zarr --method vector --max-iterations 3 --out v.json"],
    "ingest": ["scores.npy labels.npy --out e.zarr", "scores.npy --dtype float16 --out f.zarr", "named.csv --out g.zarr",
               "more.npz --out m.zarr"],
    "info": ["scores.zarr", "plain.zarr", "infinite.zarr"],
    "verify": ["scores.zarr", "plain.zarr"],
    "join": ["parts.zarr --parts 2"],
    "simulate": ["--samples 30 --classes 4 --out h.zarr", "--example 2 --samples 30 --soft --out i.zarr"],
    "demo": ["--samples 100 --classes 10"],
}  # fmt: skip


def check(name: str, text: str) -> object:
    jsonschema.Draft202012Validator.check_schema(SCHEMAS[name])
    document = json.loads(text, parse_constant=lambda word: pytest.fail(f"{word} is not JSON"))
    jsonschema.Draft202012Validator(SCHEMAS[name]).validate(document)
    return document


@pytest.fixture
def files(own_folder):
    zarr.open_group(own_folder / "plain.zarr", mode="w").create_array("scores", data=np.eye(4, dtype="f4"))
    zarr.create_array(own_folder / "infinite.zarr", data=np.array([[np.inf, np.inf], [np.inf, -np.inf]]))
    (own_folder / "named.csv").write_text("cat,dog\n0.25,0.75\n0.5,0.5\n")
    avgk.conformal.calibrate(own_folder / "scores.zarr").save(own_folder / "predictor.json")
    np.savez(own_folder / "more.npz", probs=np.eye(3), y=np.arange(3), ids=np.arange(3), extra=np.eye(3))
    return own_folder


def test_schemas__are_there_for_every_command_with_json():
    takes_json = {name for name, c in main.commands.items() if any("--json" in p.opts for p in c.params)}
    assert takes_json == set(SCHEMAS) == set(LINES)


@pytest.mark.sample(1)
@pytest.mark.parametrize("name", LINES)
def test_json__is_what_the_schema_says_and_alone_on_stdout(name, files, run):
    for line in LINES[name]:
        if ".csv" in line:
            pytest.importorskip("pyarrow")
        done = run(name, *line.split(), "--json", "--quiet", cwd=files)
        assert (done.returncode, done.stderr) == (0, "")
        check(name, done.stdout)


def test_json__of_a_damaged_store_is_printed_too(files, run):
    chunk = files / "scores.zarr" / "scores" / "c" / "0" / "0"
    chunk.write_bytes(chunk.read_bytes()[::-1])
    done = run("verify", "scores.zarr", "--json", cwd=files)
    assert done.returncode == 1
    assert check("verify", done.stdout)["damaged"][0][0] == "scores/c/0/0"


def test_schema__is_printed_and_lists_what_there_is(run):
    assert run("schema").stdout.split() == list(SCHEMAS)
    assert json.loads(run("schema", "sets").stdout) == SCHEMAS["sets"]
    assert run("schema", "completion").returncode == 2


@pytest.mark.sample(1)
@pytest.mark.parametrize("name", sorted(LINES))
def test_quiet__leaves_stderr_empty_and_results_on_stdout(name, files, run, monkeypatch):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    shown = run(name, *LINES[name][0].split(), cwd=files)
    line = LINES[name][0].replace("--out ", "--out q")
    done = run(name, *line.split(), *(["--out", "q"] if name == "demo" else []), "--quiet", cwd=files)
    assert shown.stderr or name in ("info", "join")  # a bar
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout


def test_evaluate__without_labels_says_how_to_give_them(files, run):
    done = run("evaluate", "plain.zarr", "-k", 1, cwd=files)
    assert (done.returncode, "4 samples x 4 classes" in done.stdout) == (0, True)
    assert "--labels labels.npy" in done.stderr
    assert run("evaluate", "plain.zarr", "-k", 1, "--quiet", cwd=files).stderr == ""


def test_ingest__tells_what_it_did_not_use(files, run):
    done = run("ingest", "more.npz", "--out", "m.zarr", "--json", cwd=files)
    document = check("ingest", done.stdout)
    assert (document["has_labels"], document["ignored"]) == (True, ["ids", "extra"])
    done = run("ingest", "more.npz", "--out", "n.zarr", cwd=files)
    assert "with labels to n.zarr" in done.stdout
    assert "not used: ids, extra\n" in done.stdout
    assert "not used" not in run("ingest", "scores.npy", "--out", "o.zarr", cwd=files).stdout
