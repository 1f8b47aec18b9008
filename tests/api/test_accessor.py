"""The accessor ``.avgk``, and how result objects look in a notebook."""

from __future__ import annotations

import inspect
import subprocess
import sys

import numpy as np
import pytest
import xarray as xr

import avgk_dask as avgk
from avgk_dask.testing import simulate
from avgk_dask.xarray import METHODS


@pytest.fixture(scope="module")
def dataset():
    return simulate(200, 12)[["scores", "labels"]]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("imports", "is_there"),
    [
        ("import xarray as xr, avgk_dask", True),
        ("import avgk_dask, xarray as xr", False),
        ("import avgk_dask, avgk_dask.xarray, xarray as xr", True),
        ("import xarray as xr, avgk_dask, avgk_dask.xarray", True),
    ],
)
def test_accessor__is_there_if_xarray_was_imported_before_or_by_its_own_module(imports, is_there):
    code = (
        f"{imports}, numpy as np\n"
        "scores = xr.DataArray(np.eye(3), dims=('sample', 'class'))\n"
        "if hasattr(scores, 'avgk'):\n"
        "    print(scores.avgk.threshold(1).n_above, xr.Dataset({'scores': scores}).avgk.threshold(1).n_above)"
    )
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout == ("3 3\n" if is_there else "")


def test_package__leaves_the_import_system_alone_and_xarray_unimported():
    code = (
        "import sys; before = list(sys.meta_path)\n"
        "import avgk_dask\n"
        "print(sys.meta_path == before, 'xarray' in sys.modules, 'avgk_dask.xarray' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout == "True False False\n"


def test_package__imports_without_xarray():
    code = "import sys; sys.modules['xarray'] = None; import avgk_dask; print(avgk_dask.__version__)"
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout == f"{avgk.__version__}\n"


def test_accessor__returns_the_results_of_the_functions(dataset):
    assert dataset.avgk.evaluate(k=[1, 2.5]).identical(avgk.evaluate(dataset, k=[1, 2.5]))
    assert dataset.avgk.error_curve().identical(avgk.error_curve(dataset))
    sets = dataset.scores.avgk.average_k_sets(2)
    assert isinstance(sets, xr.DataArray)
    assert sets.identical(avgk.average_k_sets(dataset.scores, 2))
    labels = dataset.labels.values
    assert dataset.scores.avgk.evaluate(labels, k=1).identical(avgk.evaluate(dataset.scores, labels, k=1))


def test_accessor__offers_every_function_of_scores(dataset):
    firsts = {"scores", "eta", "calibration_scores"}
    ours = {
        name
        for name in avgk.__all__
        if inspect.isfunction(function := getattr(avgk, name))
        and next(iter(inspect.signature(function).parameters)) in firsts
    }
    assert ours - {"ingest"} == set(METHODS) == set(dir(dataset.avgk))


def test_accessor__has_the_help_of_the_functions(dataset):
    assert dataset.avgk.evaluate.__doc__ == avgk.evaluate.__doc__
    assert "scores" not in inspect.signature(dataset.avgk.evaluate).parameters
    with pytest.raises(AttributeError, match=r"evaluat.*not a function of"):
        _ = dataset.avgk.evaluat


@pytest.mark.slow
def test_results__are_tables_in_a_notebook_and_escape_names():
    shown = avgk.threshold(np.eye(1000), 1)._repr_html_()
    assert "<td style='text-align:left'>1,000</td>" in shown
    from avgk_dask.store.read.verification import Verification

    hostile = Verification(1, 10, (("<script>", "bad"),), True)._repr_html_()
    assert "<script>" not in hostile
    assert "&lt;script&gt;" in hostile


def test_datasets__look_good_in_a_notebook(dataset):
    shown = dataset.avgk.evaluate(k=1)._repr_html_()
    assert "average-k error" in shown  # the long names
    assert "Fraction of labelled samples" in shown  # the descriptions
