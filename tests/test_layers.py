"""Imports point down, and only the named layers know dask, zarr and the others."""

from __future__ import annotations

import ast
import functools
import pathlib
import re
import subprocess
import sys

import pytest

import avgk_dask

PACKAGE = pathlib.Path(avgk_dask.__file__).parent

#: Lower numbers may not import higher ones.
LAYERS = {
    "arrays": 0,
    "axis_names": 1,
    "credentials": 0,
    "errors": -1,
    "reuse": 0,
    "settings": 0,
    "threads": 0,
    "kernels": 1,
    "masks": 1,
    "records": 1,
    "exact": 2,
    "files": 2,
    "results": 2,
    "plot": 3,
    "states": 3,
    "ambiguity": 4,
    "scans": 4,
    "store": 4,
    "report": 5,
    "searches": 5,
    "sources": 5,
    "passes": 6,
    "rules": 7,
    "api": 8,
    "testing": 8,
    "calibration": 9,
    "conformal": 9,
    "losses": 9,
    "cli": 10,
    "__main__": 11,
}
#: The rooms inside the store, in the same way.
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
    "dask": {"settings", "threads", "sources", "passes", "rules", "api", "testing"},
    "distributed": {"passes", "rules", "cli"},
    "xarray": {"results", "store", "api", "plot", "report", "testing"},
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
    r"zarr\.core\b|_ensure_open|buffer_prototype|\._store\b(?=.*WrapperStore)": "store/where/zarr_calls.py",
    r"dask\._|clone_key\b.* import|import .*clone_key": "passes/dask_tasks.py",
    r"\.fs\._": "store/where/fsspec_calls.py",
}


def test_private_interfaces__are_known_to_one_module_each():
    for private, owner in PRIVATE.items():
        found = {str(path.relative_to(PACKAGE)) for path in modules() if re.search(private, path.read_text())}
        importers = {"passes/waiting.py"} if "dask" in private else set()
        assert owner in found
        assert found <= {owner} | importers


def test_file_names__tell_one_idea_each():
    names = [path.name for path in modules() if path.name != "__init__.py"]
    assert sorted(name for name in set(names) if names.count(name) > 1) == []


def table() -> dict[str, set[str] | None]:
    """Return what each room may import by DESIGN.md, beside the ground floor; None for all."""
    text = (PACKAGE.parent / "DESIGN.md").read_text()
    rows = [
        line.split("|")[1:4] for line in text.partition("## The rooms")[2].partition("Outside of this")[0].splitlines()
    ]
    found: dict[str, set[str] | None] = {}
    for name, _, allowed in (row for row in rows if len(row) == 3 and "`" in row[0]):
        for room in NAMED.findall(name):
            found[room] = None if "all" in allowed else set(NAMED.findall(allowed))
    return found


NAMED = re.compile(r"`(\w+)(?:/|\.py)?`")
GROUND_FLOOR = {name for name in LAYERS if (PACKAGE / f"{name}.py").exists()} - {
    "calibration",
    "conformal",
    "losses",
    "plot",
    "__main__",
}


@pytest.mark.skipif(not (PACKAGE.parent / "DESIGN.md").exists(), reason="the package is not in a clone")
def test_rooms__import_what_the_table_in_design_says():
    rooms = table()
    assert set(rooms) == set(LAYERS) - GROUND_FLOOR - {"testing", "__main__"}
    for module, mine, name, own in all_imports():
        allowed = rooms.get(mine)
        if own and allowed is not None and name != mine:
            assert name in allowed | GROUND_FLOOR, f"{module} imports {name}"


def test_layers__cover_the_package():
    assert {layer_of(path) for path in modules()} == set(LAYERS)


def test_public_names__are_all_there_and_imported_late():
    for name in avgk_dask.__all__:
        assert getattr(avgk_dask, name) is not None
    assert set(avgk_dask.__all__) <= set(dir(avgk_dask))
    code = (
        "import sys, avgk_dask, avgk_dask.passes.band_tasks\n"
        "print(sorted({'xarray', 'pandas', 'matplotlib', 'distributed'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "[]"
