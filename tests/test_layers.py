"""Imports point down, and only the named layers know dask, zarr and the others."""

from __future__ import annotations

import ast
import functools
import itertools
import pathlib
import re
import subprocess
import sys

import avgk_dask

PACKAGE = pathlib.Path(avgk_dask.__file__).parent

#: From the ground up. A folder or module may import those of earlier lines, and itself.
ORDER = """
errors
arrays credentials settings threads
axis_names masks records kernels
exact files results
store bands plot
sources report
engine
statistics
api testing
calibration conformal losses xarray
cli
__main__
"""
LAYERS = {name: i for i, line in enumerate(ORDER.split("\n")) for name in line.split()}
#: The folders inside the store, in the same way.
STORE = {"where": 0, "read": 1, "write": 2, "__init__": 3}

#: Who may import a library that has a layer of its own.
OWNERS = {
    "numba": {"kernels"},
    "zarr": {"store", "testing"},
    "numcodecs": {"store"},
    "fsspec": {"store"},
    "obstore": {"store"},
    "google_crc32c": {"store"},
    "xxhash": {"store"},
    "pyarrow": {"files"},
    "dask": {"settings", "threads", "sources", "engine", "api", "testing"},
    "distributed": {"engine", "api", "cli"},
    "xarray": {"losses", "results", "store", "api", "plot", "report", "testing", "xarray"},
    "matplotlib": {"plot", "report"},
    "click": {"cli"},
    "jinja2": {"report"},
    "hypothesis": {"testing"},
}


def modules():
    return [p for p in PACKAGE.rglob("*.py") if p.parent != PACKAGE or p.name != "__init__.py"]


def layer_of(path: pathlib.Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imports(path: pathlib.Path):
    """Give (first part of the module, whether it is of this package) of each import, late ones included."""
    parts = path.relative_to(PACKAGE).parts
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from ((name.name.split(".")[0], False) for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield node.module.split(".")[0], False
        elif isinstance(node, ast.ImportFrom) and node.level == len(parts):
            yield from ([*(node.module or name.name).split(".")[0:1], True] for name in node.names)


@functools.cache
def all_imports():
    """Give (module, its layer, first part of what it imports, whether that is of this package) of each import."""
    return [(str(path.relative_to(PACKAGE)), layer_of(path), *found) for path in modules() for found in imports(path)]


def test_modules__import_downwards_only():
    upwards = [
        f"{module} imports {name}"
        for module, mine, name, own in all_imports()
        if own and name != mine and LAYERS[name] >= LAYERS[mine]
    ]
    assert upwards == []


def test_libraries__are_imported_by_the_layers_that_own_them():
    foreign = [
        f"{module} imports {name}"
        for module, mine, name, own in all_imports()
        if not own and mine not in OWNERS.get(name, {mine})
    ]
    assert foreign == []


def test_store__imports_downwards_only():
    upwards = []
    for path in (PACKAGE / "store").rglob("*.py"):
        mine = path.relative_to(PACKAGE / "store").parts[0].removesuffix(".py")
        for node in ast.walk(ast.parse(path.read_text())):
            above = isinstance(node, ast.ImportFrom) and node.level == 2 and mine != "__init__"
            if above and STORE[node.module.split(".")[0]] >= STORE[mine]:
                upwards.append(f"{path.relative_to(PACKAGE)} imports {node.module}")
    assert upwards == []


#: Interfaces that libraries keep to themselves, and the one module that may use each.
PRIVATE = {
    r"zarr\.core\b|_ensure_open|buffer_prototype|\._store\b(?=.*WrapperStore)": "store/where/addresses.py",
    r"dask\._": "engine/tasks.py",
    r"\.fs\._": "store/where/addresses.py",
}


def test_private_interfaces__are_known_to_one_module_each():
    for private, owner in PRIVATE.items():
        found = {str(path.relative_to(PACKAGE)) for path in modules() if re.search(private, path.read_text())}
        assert found == {owner}


def test_layers__cover_the_package():
    assert {layer_of(path) for path in modules()} == set(LAYERS)


def test_public_names__are_all_there_and_imported_late():
    for name in avgk_dask.__all__:
        assert getattr(avgk_dask, name) is not None
    assert set(avgk_dask.__all__) <= set(dir(avgk_dask))
    code = (
        "import sys, avgk_dask, avgk_dask.engine.tasks, avgk_dask.sources.transforms\n"
        "print(sorted({'xarray', 'pandas', 'matplotlib', 'distributed'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "[]"


def test_workers__import_neither_xarray_nor_pandas_for_any_pass():
    passes = re.compile(r"\bPass\(|^from .*\bPass\b", re.M)
    homes = [path for path in modules() if layer_of(path) == "statistics" and passes.search(path.read_text())]
    homes = [path for path in homes if path.stem not in ("thresholds", "group_search")]  # they only ask for passes
    names = [".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts) for path in homes]
    assert len(names) >= 10
    code = (
        "import importlib, sys\n"
        f"for name in {names!r}:\n"
        "    importlib.import_module(name)\n"
        "    print(*({'xarray', 'pandas', 'matplotlib', 'dask.array'} & set(sys.modules)), *[name] * ('xarray' in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.split() == []


#: Prints the modules in the order in which one evaluation of a local store first calls them.
TRACE = """
import pathlib, sys, tempfile
import dask
import avgk_dask as avgk
from avgk_dask.testing import Simulation, simulate_store

package = str(pathlib.Path(avgk.__file__).parent) + "/"
modules = {}

def note(frame, event, argument):
    if event == "call" and frame.f_code.co_filename.startswith(package) and frame.f_code.co_name != "<module>":
        modules.setdefault(frame.f_code.co_filename.removeprefix(package))

with tempfile.TemporaryDirectory() as folder:
    simulate_store(folder + "/scores.zarr", Simulation(3_000, 200), chunks=(500, 200))
    with dask.config.set({"scheduler": "synchronous", "avgk.small-scores": 1}):
        avgk.evaluate(folder + "/scores.zarr", k=[1, 2, 3])
        sys.setprofile(note)
        avgk.evaluate(folder + "/scores.zarr", k=[1, 2, 3])
        sys.setprofile(None)
print(*modules)
"""
#: How often the way of a score changes the folder. Lower it when it falls.
MOST_ROOM_CHANGES = 32


def test_evaluate__goes_through_the_rooms_with_few_changes():
    done = subprocess.run([sys.executable, "-c", TRACE], check=True, capture_output=True, text=True)
    rooms = [module.split("/")[0] for module in done.stdout.split() if "/" in module]
    changes = sum(before != after for before, after in itertools.pairwise(rooms))
    assert changes <= MOST_ROOM_CHANGES, " > ".join(room for room, _ in itertools.groupby(rooms))
