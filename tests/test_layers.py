"""Imports point downwards, and each library is imported only by the layers that own it."""

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

#: From the lowest layer up. A folder or module may import those of earlier lines, and itself.
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
#: The layers of the folders inside the store.
STORE = {"where": 0, "read": 1, "write": 2, "__init__": 3}

#: The layers that may import a library.
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
    """Yield (first part of the module, whether it is in this package) for each import, including late ones."""
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
    """Return (module, its layer, first part of the imported module, whether that is in this package) for each import."""
    return [(str(path.relative_to(PACKAGE)), layer_of(path), *each) for path in modules() for each in imports(path)]


def test_modules__import_downwards_only():
    upwards = [
        f"{module} imports {name}"
        for module, layer, name, own in all_imports()
        if own and name != layer and LAYERS[name] >= LAYERS[layer]
    ]
    assert upwards == []


def test_libraries__are_imported_by_the_layers_that_own_them():
    foreign = [
        f"{module} imports {name}"
        for module, layer, name, own in all_imports()
        if not own and layer not in OWNERS.get(name, {layer})
    ]
    assert foreign == []


def test_store__imports_downwards_only():
    upwards = []
    for path in (PACKAGE / "store").rglob("*.py"):
        layer = path.relative_to(PACKAGE / "store").parts[0].removesuffix(".py")
        for node in ast.walk(ast.parse(path.read_text())):
            above = isinstance(node, ast.ImportFrom) and node.level == 2 and layer != "__init__"
            if above and STORE[node.module.split(".")[0]] >= STORE[layer]:
                upwards.append(f"{path.relative_to(PACKAGE)} imports {node.module}")
    assert upwards == []


#: Private interfaces of libraries, and the one module that may use each.
PRIVATE = {
    r"zarr\.core\b|_ensure_open|buffer_prototype|\._store\b(?=.*WrapperStore)": "store/where/addresses.py",
    r"dask\._": "engine/tasks.py",
    r"\.fs\._": "store/where/addresses.py",
}


def test_private_interfaces__are_used_by_one_module_each():
    for private, owner in PRIVATE.items():
        users = {str(path.relative_to(PACKAGE)) for path in modules() if re.search(private, path.read_text())}
        assert users == {owner}


def test_layers__cover_the_package():
    assert {layer_of(path) for path in modules()} == set(LAYERS)


def test_public_names__exist_and_are_imported_late():
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
    homes = [path for path in homes if path.stem not in ("thresholds", "group_search")]  # these only create passes
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
#: How often the path of a score changes the folder. Lower it if the number falls.
MOST_ROOM_CHANGES = 26


def test_evaluate__goes_through_the_rooms_with_few_changes():
    done = subprocess.run([sys.executable, "-c", TRACE], check=True, capture_output=True, text=True)
    rooms = [module.split("/")[0] for module in done.stdout.split() if "/" in module]
    changes = sum(before != after for before, after in itertools.pairwise(rooms))
    assert changes <= MOST_ROOM_CHANGES, " > ".join(room for room, _ in itertools.groupby(rooms))
