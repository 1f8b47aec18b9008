"""The examples in the README run, and its links lead to existing files. Pages of the site run when the site is built."""

from __future__ import annotations

import pathlib
import re
import runpy
import shlex

import pytest
from click.testing import CliRunner

from avgk_dask.cli import main

ROOT = pathlib.Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.S)


def test_readme__has_two_commands_under_quick_start():
    section = README.split("## Quick start")[1].split("\n## ")[0]
    commands = re.findall(r"```bash\n(.*?)```", section, re.S)
    assert len(commands) == len(blocks("bash")) == 2
    assert all(command.count("\n") == 1 for command in commands)
    assert "avgk demo" in commands[0]
    assert "pytest" in commands[1]


@pytest.mark.slow
def test_readme__python_and_terminal_examples_run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    scope: dict = {}
    for block in blocks("python"):
        exec(compile(block, "README.md", "exec"), scope)
    assert "average_k_error" in capsys.readouterr().out
    commands = [line.split("#")[0] for line in README.splitlines() if line.startswith("avgk ")]
    assert len(commands) == 4
    for command in commands:
        done = CliRunner().invoke(main, shlex.split(command)[1:])
        assert done.exit_code == 0, done.output
    assert (tmp_path / "results" / "report.html").exists()


def test_readme__links_lead_to_files():
    links = re.findall(r"\]\(([^)#]+)", README)
    assert len(links) > 20
    assert [link for link in links if not (ROOT / link).is_file()] == []


def test_readme__is_short_and_names_every_question():
    pages = {path.stem for path in (ROOT / "docs" / "howto").glob("*.md")}
    assert len(README.splitlines()) < 200
    assert set(re.findall(r"docs/howto/(\w+)\.md", README)) == pages


def test_readme__table_is_the_output_of_the_command(data, tmp_path):
    import numpy as np
    import zarr

    import avgk_dask as avgk
    from avgk_dask.report import print_table

    store = zarr.open_group(tmp_path / "imagenet.zarr", mode="w")
    store.create_array("scores", data=np.load(data / "imagenet5k" / "scores.npy"), chunks=(1000, 1000))
    store.create_array("labels", data=np.load(data / "imagenet5k" / "labels.npy"))
    table = print_table(avgk.evaluate(tmp_path / "imagenet.zarr", k=range(1, 6)))
    assert table in README


def test_site__conformal_table_is_the_output_of_the_command(data, tmp_path, monkeypatch):
    import numpy as np
    import zarr

    monkeypatch.chdir(tmp_path)
    scores, labels = (np.load(data / "imagenet5k" / f"{name}.npy") for name in ("scores", "labels"))
    for name, rows in (("calibration", slice(None, 2_500)), ("imagenet", slice(2_500, None))):
        store = zarr.open_group(f"{name}.zarr", mode="w")
        store.create_array("scores", data=scores[rows], chunks=(500, 1000))
        store.create_array("labels", data=labels[rows])
    done = CliRunner().invoke(main, ["conformal", "calibration.zarr", "imagenet.zarr", "--quiet"])
    page = (ROOT / "docs" / "howto" / "coverage.md").read_text()
    assert (done.exit_code, done.output in page) == (0, True)


# Examples with a number reproduce the paper and run in tests/examples.
@pytest.mark.parametrize("example", sorted((ROOT / "examples").glob("evaluate_*.py")), ids=lambda p: p.name)
def test_examples__run(example, capsys):
    runpy.run_path(str(example), run_name="__main__")
    assert capsys.readouterr().out
