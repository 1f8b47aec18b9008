"""Project files are consistent: versions, requirements, checks, workflows, links."""

from __future__ import annotations

import importlib
import pathlib
import re
import subprocess
import sys
import tomllib

import pytest

import avgk_dask

ROOT = pathlib.Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PYTHONS = re.findall(r"Python :: (3\.\d+)", "\n".join(PROJECT["classifiers"]))
#: Lower bounds by the name of the library.
BOUNDS = {re.match(r"[\w-]+", line)[0]: line.partition(">=")[2] for line in PROJECT["dependencies"]}
WORKFLOWS = [f".github/workflows/{name}.yml" for name in ("docs", "nightly", "release", "tests")]
PAGES = [
    ".github/PULL_REQUEST_TEMPLATE.md",
    *(
        f".github/ISSUE_TEMPLATE/{name}.yml"
        for name in ("bug_report", "config", "feature_request", "question", "wrong_result")
    ),
    *("CHANGELOG.md", "CODE_OF_CONDUCT.md", "CONTRIBUTING.md", "SECURITY.md", "docs/support.md"),
]


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


def test_citation__agrees_with_pyproject():
    citation = read_yaml("CITATION.cff")
    assert (citation["title"], citation["license"]) == (PROJECT["name"], PROJECT["license"])
    assert (citation["abstract"], citation["keywords"]) == (PROJECT["description"], PROJECT["keywords"])
    assert citation["repository-code"] == citation["url"] == PROJECT["urls"]["Source"]
    assert citation["authors"] == PROJECT["authors"]


def test_version__is_the_same_everywhere():
    version = PROJECT["version"]
    assert avgk_dask.__version__ == version
    assert read_yaml("CITATION.cff")["version"] == version
    newest, day = re.search(r"^## (\S+) \((\S+)\)$", (ROOT / "CHANGELOG.md").read_text(), re.M).groups()
    assert newest == version
    assert str(read_yaml("CITATION.cff").get("date-released", "unreleased")) == day


def test_contributing__names_existing_files():
    named = set(
        re.findall(r"(?:avgk_dask|benchmarks|docs|tests)/[\w/]+\.\w+|\w+\.md", (ROOT / "CONTRIBUTING.md").read_text())
    )
    assert len(named) > 10
    assert [name for name in sorted(named) if not (ROOT / name).is_file()] == []


def test_breakdown__times_existing_functions(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    parts = importlib.import_module("breakdown").PARTS
    assert [name for name, (home, attribute) in parts.items() if attribute not in vars(home)] == []


def steps_of(job: dict, action: str) -> list[dict]:
    """Return the inputs of each step of a job that uses an action."""
    return [step.get("with", {}) for step in job["steps"] if step.get("uses", "").startswith(f"{action}@")]


def commands_of(job: dict) -> str:
    return "\n".join(step["run"] for step in job["steps"] if "run" in step)


@pytest.mark.parametrize("name", WORKFLOWS)
def test_workflows__have_least_permissions_and_timeouts(name):
    workflow = read_yaml(name)
    assert sorted(ROOT.glob(".github/workflows/*")) == [ROOT / name for name in WORKFLOWS]
    assert workflow["permissions"] == {"contents": "read"}
    assert "group" in workflow["concurrency"]
    for title, job in workflow["jobs"].items():
        assert job.get("permissions", {}) == ({"id-token": "write"} if title == "publish" else {})
        assert job["timeout-minutes"] <= 300
        assert all(inputs["persist-credentials"] is False for inputs in steps_of(job, "actions/checkout"))


def test_workflows__test_the_declared_pythons_and_the_lowest_libraries():
    jobs = read_yaml(".github/workflows/tests.yml")["jobs"]
    assert jobs["newest"]["strategy"]["matrix"]["python"] == PYTHONS
    assert f">={PYTHONS[0]}" == PROJECT["requires-python"]
    assert [inputs["python-version"] for inputs in steps_of(jobs["lowest"], "actions/setup-python")] == [PYTHONS[0]]
    assert re.search(r"\.ci/lowest\.py > (\S+)\n.* install -c \1 -e '\.\[test\]'", commands_of(jobs["lowest"]))
    assert commands_of(jobs["checks"]).splitlines()[1:] == checks_of_the_readme()
    used = [
        inputs["python-version"]
        for name in WORKFLOWS
        for job in read_yaml(name)["jobs"].values()
        for inputs in steps_of(job, "actions/setup-python")
    ]
    assert set(used) <= {*PYTHONS, "${{ matrix.python }}"}


def test_site__is_built_in_the_same_way_by_read_the_docs():
    hosted = read_yaml(".readthedocs.yaml")
    (job,) = read_yaml(".github/workflows/docs.yml")["jobs"].values()
    assert hosted["sphinx"] == {"configuration": "docs/conf.py", "fail_on_warning": True}
    assert [hosted["build"]["tools"]["python"]] == [
        inputs["python-version"] for inputs in steps_of(job, "actions/setup-python")
    ]
    (installed,) = hosted["python"]["install"]
    assert f"install -e '.[{','.join(installed['extra_requirements'])}]'" in commands_of(job)
    assert "python -m sphinx -W --keep-going docs docs/_build/html" in commands_of(job)


@pytest.mark.parametrize("name", PAGES)
def test_project_files__link_to_existing_files(name):
    text, source = (ROOT / name).read_text(), PROJECT["urls"]["Source"]
    absolute = re.findall(rf"{re.escape(source)}/blob/main/([\w./-]+)", text)
    relative = re.findall(r"\]\((?!https?:)([^)#]+)", text)
    paths = [*(ROOT / path for path in absolute), *((ROOT / name).parent / path for path in relative)]
    assert [path for path in paths if not path.is_file()] == []


def test_conda_recipe__requires_what_pyproject_requires():
    recipe = read_yaml("conda/recipe.yaml")
    conda_names = {"dask": "dask-core", "matplotlib": "matplotlib-base", "xxhash": "python-xxhash"}
    assert recipe["context"] == {"version": PROJECT["version"], "python_min": PYTHONS[0]}
    assert recipe["requirements"]["run"] == [
        "python >=${{ python_min }}",
        *(f"{conda_names.get(library, library)} >={bound}" for library, bound in BOUNDS.items()),
    ]
    assert recipe["build"]["python"]["entry_points"] == [f"avgk = {PROJECT['scripts']['avgk']}"]
    about = {"summary": "description", "license": "license"}
    assert {name: recipe["about"][name] for name in about} == {name: PROJECT[key] for name, key in about.items()}


def test_support_page__names_the_lowest_versions():
    rows = re.findall(r"^\| (\w+) \| ([\d.]+) \|", (ROOT / "docs" / "support.md").read_text(), re.M)
    lowest = {"python": PYTHONS[0], **BOUNDS}
    assert len(rows) == 6
    assert {name.lower(): bound for name, bound in rows}.items() <= lowest.items()
    assert f"Python {PYTHONS[0]} to {PYTHONS[-1]}" in (ROOT / "docs" / "support.md").read_text()


def test_prose__has_no_more_of_the_phrases_that_readers_stumble_over():
    if not (ROOT / ".git").exists():
        pytest.skip("the script asks git for the files, and this is not a clone")
    done = subprocess.run([sys.executable, ROOT / ".ci" / "words.py"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
