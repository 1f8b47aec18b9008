"""``avgk evaluate --max-error``: the least budgets for an error."""

from __future__ import annotations

import json
import re

import pytest
from click.testing import CliRunner

import avgk_dask as avgk
from avgk_dask.cli import main
from avgk_dask.testing import Simulation, simulate_store


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    path = tmp_path_factory.mktemp("scores") / "s.zarr"
    simulate_store(path, Simulation(1_000, 30), chunks=(200, 30))
    return path


def run(*arguments):
    return CliRunner().invoke(main, [str(a) for a in arguments])


@pytest.mark.slow
def test_max_error__gives_the_least_budgets_and_what_they_are_worth(store, tmp_path):
    least = avgk.smallest_k(store, max_error=0.1)
    done = run("evaluate", store, "--max-error", "0.1", "--out", tmp_path / "out", "--json", "--quiet")
    assert done.exit_code == 0, done.output
    document = json.loads(done.stdout)
    assert (document["attrs"]["smallest_k"], document["attrs"]["smallest_top_k"]) == (least.k, least.top_k)
    assert document["variables"]["k"]["data"] == [least.k, least.top_k]
    assert document["variables"]["average_k_error"]["data"][0] == least.error <= 0.1
    assert document["variables"]["top_k_error"]["data"][1] == least.top_k_error <= 0.1
    sentence = f"For an error of at most 10.00 %, average-k needs {least.k:.6g} labels per sample and top-k needs {least.top_k}."
    assert sentence in run("evaluate", store, "--max-error", "0.1").stdout
    page = (tmp_path / "out" / "report.html").read_text()
    assert "How many labels per sample keep the error at or below 10.00 %?" in page
    assert sentence in " ".join(re.sub("<[^>]+>", "", page).split())


def test_max_error__of_everything_leaves_the_top_alone(store):
    document = json.loads(run("evaluate", store, "--max-error", "1", "--json").stdout)
    assert document["variables"]["k"]["data"] == [1.0]


@pytest.mark.parametrize("options, text", [(("-k", "2"), "Leave one of them out"), ((), "from 0 to 1")])
def test_max_error__refuses_what_it_cannot_take(store, options, text):
    done = run("evaluate", store, "--max-error", "2", *options)
    assert done.exit_code != 0
    assert text in done.output
    assert "Traceback" not in done.output
