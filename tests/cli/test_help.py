"""Help texts: readable, complete, and their examples run. Completion and the version of the terminal's own."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys

import click
import pytest

from avgk_dask.cli import main

COMMANDS = sorted(main.commands)


def help_of(name: str) -> str:
    command = main.commands[name] if name else main
    return command.get_help(click.Context(command, info_name=f"avgk {name}".strip(), terminal_width=80))


def examples(name: str) -> list[str]:
    return re.findall(r"^ *Example: avgk (.*)$", help_of(name), re.M)


@pytest.mark.sample(1)
@pytest.mark.parametrize("name", ["", *COMMANDS])
def test_help__carries_examples_that_run(name, own_folder, run):
    assert examples(name)
    for example in examples(name):
        assert (
            f"Example: avgk {example}\n" in ((main.commands[name] if name else main).help or "") + "\n"
        )  # not wrapped
        done = run(*shlex.split(example), cwd=own_folder)
        assert (done.returncode, done.stderr.count("Traceback")) == (0, 0), done.stderr
        assert done.stdout


@pytest.mark.parametrize("name", ["", *COMMANDS])
def test_help__fits_80_columns_and_explains_every_option(name):
    assert max(map(len, help_of(name).splitlines())) <= 80
    command = main.commands[name] if name else main
    for option in (p for p in command.params if isinstance(p, click.Option)):
        assert option.help, f"{name} {option.opts}"


def test_help__lists_every_command_uncut(run):
    listed = run("--help").stdout
    assert "..." not in listed.split("Commands:")[1]
    assert all(re.search(rf"^  {name} ", listed, re.M) for name in COMMANDS)
    assert run().stdout == listed


def test_help__needs_no_heavy_imports():
    code = (
        "import sys, avgk_dask.cli\n"
        "try: avgk_dask.cli.main(['evaluate', '--help'])\n"
        "except SystemExit: pass\n"
        "print(sorted({'numpy', 'xarray', 'dask', 'zarr', 'numba'} & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stderr.strip() == "[]"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion__prints_the_script_of_a_shell(shell, run):
    script = run("completion", shell).stdout
    assert "_AVGK_COMPLETE" in script
    assert f"{shell}_complete" in script


@pytest.mark.parametrize(
    "line, offered",
    [
        ("avgk ev", ["evaluate"]),
        ("avgk s", ["sets", "simulate", "schema"]),
        ("avgk evaluate --nan-policy l", ["lowest"]),
        ("avgk sets --over", ["--overwrite"]),
    ],
)
def test_completion__offers_commands_and_options_in_bash(line, offered, run, monkeypatch):
    monkeypatch.setenv("_AVGK_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", line)
    monkeypatch.setenv("COMP_CWORD", str(line.count(" ")))
    assert [actual.split(",")[1] for actual in run().stdout.split()] == offered


def test_completion__leaves_paths_to_the_shell(run, monkeypatch):
    monkeypatch.setenv("_AVGK_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", "avgk evaluate sc")
    monkeypatch.setenv("COMP_CWORD", "2")
    assert run().stdout.startswith("file,")
