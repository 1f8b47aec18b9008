"""What the files around the package say agrees: versions, checks, addresses."""

from __future__ import annotations

import importlib
import pathlib
import re
import tomllib

import pytest

import avgk_dask

ROOT = pathlib.Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def read_yaml(name: str) -> dict:
    return pytest.importorskip("yaml").safe_load((ROOT / name).read_text())


def checks_of_the_readme() -> list[str]:
    """Return the commands of the README's test command that are neither installation nor tests."""
    command = re.findall(r"```bash\n(.*?)```", (ROOT / "README.md").read_text(), re.S)[1]
    steps = [step.strip().removeprefix(".venv/bin/") for step in command.split("&&")]
    return [step for step in steps if not re.match(r"python|pip", step)]


def test_hooks__are_the_checks_of_the_readme_and_of_contributing():
    (repository,) = read_yaml(".pre-commit-config.yaml")["repos"]
    hooks = repository["hooks"]
    section = (ROOT / "CONTRIBUTING.md").read_text().split("## Check")[1]
    assert repository["repo"] == "local"
    assert all(hook["language"] == "system" and hook["pass_filenames"] is False for hook in hooks)
    commands = [hook["entry"] for hook in hooks]
    assert commands == checks_of_the_readme()
    assert commands == re.search(r"```bash\n(.*?)```", section, re.S)[1].splitlines()


def test_citation__has_what_its_format_requires():
    citation = read_yaml("CITATION.cff")
    assert citation["cff-version"] == "1.2.0"
    assert {"message", "title", "authors"} <= set(citation)
    (paper,) = citation["references"]
    assert {"type", "title", "authors"} <= set(paper)
    assert f"*{paper['title']}*" in (ROOT / "README.md").read_text()


def test_citation__says_what_pyproject_says():
    citation = read_yaml("CITATION.cff")
    assert (citation["title"], citation["license"]) == (PROJECT["name"], PROJECT["license"])
    assert (citation["abstract"], citation["keywords"]) == (PROJECT["description"], PROJECT["keywords"])
    assert citation["repository-code"] == PROJECT["urls"]["Source"]


def test_version__is_the_same_everywhere():
    version = PROJECT["version"]
    assert avgk_dask.__version__ == version
    assert read_yaml("CITATION.cff")["version"] == version
    assert re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.M)[1] == version


def test_contributing__names_files_that_are_there():
    named = set(
        re.findall(r"(?:avgk_dask|benchmarks|docs|tests)/[\w/]+\.\w+|\w+\.md", (ROOT / "CONTRIBUTING.md").read_text())
    )
    assert len(named) > 10
    assert [name for name in sorted(named) if not (ROOT / name).is_file()] == []


def test_breakdown__finds_the_functions_it_times(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    parts = importlib.import_module("breakdown").PARTS
    assert [name for name, (home, attribute) in parts.items() if attribute not in vars(home)] == []
