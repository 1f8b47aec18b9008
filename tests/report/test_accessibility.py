"""Pages through axe-core, in Chromium, light, dark and narrow: no violations."""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess

import numpy as np
import pytest

import avgk_dask as avgk
from avgk_dask.report import write_comparison, write_report
from avgk_dask.testing import simulate

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def axe(tmp_path_factory):
    """The text of axe-core: of AVGK_AXE, or fetched by npm."""
    if "AVGK_AXE" in os.environ:
        return pathlib.Path(os.environ["AVGK_AXE"]).read_text(encoding="utf-8")
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("npm is not installed (or AVGK_AXE=the path of axe.min.js)")
    folder = tmp_path_factory.mktemp("axe")
    done = subprocess.run(
        [npm, "install", "--no-save", "--no-audit", "--no-fund", "--prefix", folder, "axe-core"],
        capture_output=True,
        check=False,
    )
    if done.returncode:
        pytest.skip("npm could not fetch axe-core (or AVGK_AXE=the path of axe.min.js)")
    return (folder / "node_modules" / "axe-core" / "axe.min.js").read_text(encoding="utf-8")


def violations(page, axe):
    """Return what axe-core finds wrong, with everything unfolded."""
    page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    page.add_script_tag(content=axe)
    result = page.evaluate("axe.run()")
    assert len(result["passes"]) > 30  # the audit ran
    return [(rule["id"], node["html"][:200]) for rule in result["violations"] for node in rule["nodes"]]


def report_of_hostile_names():
    toy = simulate(500, 40)
    curve = avgk.evaluate(toy.scores, toy.labels, k=range(1, 41), straddle=False)
    result = avgk.evaluate(toy.scores, toy.labels, k=range(1, 21))
    result.attrs |= {"store": "<b>" + "x" * 10_000, "note": "y" * 10_000}
    return lambda path: write_report(result, path, curve=curve)


def report_without_labels():
    result = avgk.evaluate(simulate(500, 40).scores, None, k=[1, 2.5])
    return lambda path: write_report(result, path)


def comparison():
    toy = simulate(300, 20)
    models = {f"model {i}": np.roll(np.asarray(toy.scores), i, axis=1) for i in range(4)}
    result = avgk.compare(models, toy.labels, k=[1, 2, 3])
    return lambda path: write_comparison(result, path)


@pytest.mark.parametrize(
    "write", [report_of_hostile_names, report_without_labels, comparison], ids=lambda f: f.__name__
)
@pytest.mark.parametrize(("scheme", "width"), [("light", 1200), ("dark", 1200), ("light", 360)])
def test_pages__violate_nothing_that_axe_knows(write, scheme, width, opened, axe):
    options = {"bypass_csp": True, "color_scheme": scheme, "viewport": {"width": width, "height": 900}}
    assert violations(opened(write(), **options), axe) == []
