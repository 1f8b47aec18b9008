"""The recipes of examples/deploy are complete and valid. On a cluster, if one is available, they give the results of threads."""

from __future__ import annotations

import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

import avgk_dask as avgk
from avgk_dask.testing import Simulation, simulate_store

pytestmark = pytest.mark.slow

DEPLOY = pathlib.Path(__file__).resolve().parents[1] / "examples" / "deploy"
RECIPES = sorted(path for path in DEPLOY.iterdir() if path.name != "README.md" and path.is_file())
README = (DEPLOY / "README.md").read_text()
#: Commands installed with this Python come before those of the system.
PATH = os.pathsep.join([str(pathlib.Path(sys.executable).parent), os.environ.get("PATH", "")])


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """Return a small store of several chunks."""
    path = tmp_path_factory.mktemp("deploy") / "scores.zarr"
    simulate_store(path, Simulation(3_000, 20), chunks=(250, 20))
    return path


def table_of(store):
    return avgk.report.print_table(avgk.evaluate(store, k=range(1, 11)))


def run(*command, cwd):
    """Run a recipe and return its output."""
    done = subprocess.run(
        [*map(str, command)], cwd=cwd, env={**os.environ, "PATH": PATH}, capture_output=True, text=True, timeout=400
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_readme__states_whether_each_recipe_was_run():
    sections = dict(re.findall(r"^## .*?`(\S+)`.*?\n(.*?)(?=^## |\Z)", README, re.M | re.S))
    assert sorted(sections) == [path.name for path in RECIPES]
    for name, text in sections.items():
        assert re.search(r"^\*\*(Run|Not run) here", text, re.M), name
        assert re.search(r"^```bash\n.+?```", text, re.M | re.S), name


@pytest.mark.parametrize("path", RECIPES, ids=lambda p: p.name)
def test_recipes__are_valid(path):
    text = path.read_text()
    if path.suffix == ".py":
        compile(text, path.name, "exec")
        command = [line for line in text.split('"""')[1].splitlines() if f"examples/deploy/{path.name}" in line]
        assert len(command) == 1
    elif path.suffix == ".sh":
        assert subprocess.run(["bash", "-n", path]).returncode == 0
    elif path.suffix == ".yaml":
        assert list(pytest.importorskip("yaml").safe_load_all(text))


@pytest.mark.parametrize("path", [p for p in RECIPES if p.suffix == ".py"], ids=lambda p: p.name)
def test_scripts__do_not_hide_libraries(path):
    """A script's folder comes first among those that Python imports from: ssh.py may not hide a library ``ssh``."""
    imported = {name for other in RECIPES for name in re.findall(r"^(?:import|from) (\w+)", other.read_text(), re.M)}
    assert path.stem not in imported | {"coiled", "kubernetes", "mpi4py"}


def test_kubernetes__uses_one_image_and_one_service():
    service, scheduler, worker, job = pytest.importorskip("yaml").safe_load_all(
        (DEPLOY / "kubernetes.yaml").read_text()
    )
    pods = [one["spec"]["template"]["spec"] for one in (scheduler, worker, job)]
    containers = [c for pod in pods for c in (*pod["containers"], *pod.get("initContainers", []))]
    assert len({c["image"] for c in containers}) == 1
    assert service["spec"]["selector"] == scheduler["spec"]["template"]["metadata"]["labels"]
    named = {name for c in containers for name in re.findall(r"tcp://([^'\"\s:]+):8786", " ".join(c["args"]))}
    assert named == {service["metadata"]["name"]}
    assert f"wait_for_workers({worker['spec']['replicas']})" in " ".join(containers[-1]["args"])
    assert not any(pod["enableServiceLinks"] for pod in pods)


def test_scheduler_file__gives_the_results_of_threads(store, tmp_path):
    pytest.importorskip("distributed")
    shown = run("bash", DEPLOY / "scheduler_file.sh", store, 2, "--quiet", cwd=tmp_path)
    assert shown.strip() == table_of(store).strip()
    assert list(tmp_path.iterdir()) == []


def test_scheduler_file__reports_an_error_and_ends(store, tmp_path):
    pytest.importorskip("distributed")
    done = subprocess.run(
        ["bash", DEPLOY / "scheduler_file.sh", store, "1", "-k", "99"],
        cwd=tmp_path, env={**os.environ, "PATH": PATH}, capture_output=True, text=True, timeout=400,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (2, "")
    assert re.fullmatch(r"avgk: dashboard .*\navgk: -k must .*\n", done.stderr)


def test_mpi__gives_the_results_of_threads(store, tmp_path):
    pytest.importorskip("dask_mpi", reason="dask-mpi is not installed")
    if shutil.which("mpiexec", path=PATH) is None:
        pytest.skip("mpiexec is not on PATH")
    shown = run("mpiexec", "-n", 4, sys.executable, DEPLOY / "mpi.py", store, cwd=tmp_path)
    assert shown.startswith("2 workers, ")
    assert table_of(store) in shown


def test_slurm__gives_the_results_of_threads(store, tmp_path):
    pytest.importorskip("dask_jobqueue", reason="dask-jobqueue is not installed")
    if shutil.which("sbatch") is None:
        pytest.skip("sbatch is not on PATH")
    shown = run(sys.executable, DEPLOY / "slurm.py", store, "--memory", "2GB", "--out", "result.zarr", cwd=tmp_path)
    assert table_of(store) in shown
    assert "2 jobs, " in shown
