"""``dask avgk`` is ``avgk``: the same output, the same one-line errors, the same exit statuses."""

from __future__ import annotations

import importlib.metadata
import pathlib
import re
import signal
import tomllib

import click
import dask.cli
import pytest
from click.shell_completion import ShellComplete

from avgk_dask.cli import main

ROOT = pathlib.Path(__file__).resolve().parents[2]
GROUP = "dask_cli"


@pytest.fixture
def dask_command(monkeypatch):
    """Return Dask's command with the entry point that pyproject.toml declares."""
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"][GROUP]
    monkeypatch.setattr(dask.cli.cli, "commands", {**dask.cli.cli.commands})
    dask.cli.cli.commands.pop("avgk", None)
    for name, value in declared.items():
        dask.cli._register_command_ep(dask.cli.cli, importlib.metadata.EntryPoint(name, value, GROUP))
    return dask.cli.cli


@pytest.fixture
def run_in_dask(run, dask_command):
    """Give a function that runs ``dask avgk`` with these arguments."""
    return lambda *args, cwd=None: run("avgk", *args, cwd=cwd, command=dask_command, name="dask")


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    "line, status",
    [
        ("evaluate scores.zarr -k 1:3 --quiet", 0),
        ("evaluate scores.zarr -k 2 --json --quiet", 0),
        ("threshold scores.zarr -k 5", 0),
        ("info scores.zarr", 0),
        ("schema evaluate", 0),
        ("evaluate score.zarr", 2),
        ("evaluate -- -k", 2),
        ("evaluate scores.zarr -k 99", 2),
        ("evaluate scores.zarr --jsn", 2),
        ("evaluate", 2),
        ("evalute scores.zarr", 2),
        ("--nosuch", 2),
        ("evaluate damaged.zarr --quiet", 1),
    ],
)
def test_dask_avgk__prints_and_exits_as_avgk(run, run_in_dask, own_folder, line, status):
    (own_folder / "scores.zarr").rename(own_folder / "damaged.zarr")
    ingested = run("ingest", "scores.npy", "labels.npy", "--chunk-rows", 25, "--out", "scores.zarr", cwd=own_folder)
    assert ingested.returncode == 0
    next(p for p in (own_folder / "damaged.zarr" / "scores" / "c").rglob("*") if p.is_file()).write_bytes(b"no chunk")
    alone = run(*line.split(), cwd=own_folder)
    assert run_in_dask(*line.split(), cwd=own_folder) == alone
    assert alone.returncode == status
    assert alone.stderr.count("\n") == (status != 0)


@pytest.mark.sample(1)
@pytest.mark.parametrize("number, status, said", [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "terminated")])  # fmt: skip
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_dask_avgk__ends_as_avgk_when_interrupted(run_in_dask, own_folder, interrupt_at, number, status, said):
    interrupt_at(3, number)
    done = run_in_dask("simulate", "--samples", 3000, "--classes", 20, "--out", "new.zarr", cwd=own_folder)
    assert (done.returncode, done.stderr) == (status, f"avgk: {said}\n")
    assert not (own_folder / "new.zarr").exists()


@pytest.mark.parametrize("name", ["", *main.commands])
def test_dask_avgk__has_the_help_of_every_command(run, run_in_dask, name):
    words = [*name.split(), "--help"]
    alone, inside = run(*words), run_in_dask(*words)
    usage = f"Usage: dask avgk {name}".strip()
    assert inside.stdout.startswith(usage)
    assert inside.returncode == 0
    assert inside.stdout.split("Options:")[1] == alone.stdout.split("Options:")[1]


def test_dask_help__names_the_command_uncut(dask_command):
    listed = dask_command.get_help(click.Context(dask_command, info_name="dask", terminal_width=80))
    assert re.search(r"^  avgk +Evaluate average-k and top-k classification\.$", listed, re.M)


def test_dask_completion__knows_the_commands_and_options(dask_command):
    completion = ShellComplete(dask_command, {}, "dask", "_DASK_COMPLETE")
    assert [item.value for item in completion.get_completions(["avgk"], "eva")] == ["evaluate"]
    assert [item.value for item in completion.get_completions(["avgk", "evaluate"], "--js")] == ["--json"]
