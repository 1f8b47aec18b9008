"""The files inside a page: the numbers of ``evaluate`` and ``compare`` to the last bit."""

from __future__ import annotations

import base64
import csv
import io
import json
import re

import numpy as np
import pytest

import avgk_dask as avgk
from avgk_dask.report import render_comparison, render_report
from avgk_dask.testing import simulate


def files(page):
    """Return the files inside a page by name, as text."""
    matches = re.findall(r'<a download="([^"]*)" href="data:[^;]*;charset=utf-8;base64,([^"]*)"', page)
    return {name: base64.b64decode(data).decode() for name, data in matches}


def rows(text):
    return list(csv.DictReader(io.StringIO(text)))


def test_downloads__are_what_evaluate_gives():
    toy = simulate(400, 30)
    result, curve = (avgk.evaluate(toy.scores, toy.labels, k=k) for k in ([2.5, 1], range(1, 11)))
    downloads = files(render_report(result, curve=curve))
    assert list(downloads) == ["average-k.csv", "average-k.json"]
    table = json.loads(downloads["average-k.json"])["tables"]["average-k"]
    read = rows(downloads["average-k.csv"])
    assert table["k"] == [float(row["k"]) for row in read] == [1, 2, 2.5, 3, 4, 5, 6, 7, 8, 9, 10]
    assert [row["asked"] for row in read] == ["1", "0", "1"] + ["0"] * 8
    for i, row in enumerate(read):
        one = (result if row["asked"] == "1" else curve).sel(k=float(row["k"]))
        for name in ("threshold", "top_k_error", "average_k_error_stderr", "relative_gain", "n_ties"):
            if np.isnan(one[name]):
                assert row[name] == ""
                assert table[name][i] is None
            else:
                assert float(row[name]) == float(one[name]) == table[name][i]


@pytest.mark.slow
def test_downloads__leave_out_what_there_is_not():
    toy = simulate(200, 20)
    result = rows(files(render_report(avgk.evaluate(toy.scores, None, k=[1, 2])))["average-k.csv"])
    assert not {"top_k_error", "average_k_error"} & set(result[0])
    logits = 10 * np.asarray(toy.scores)
    with pytest.warns(avgk.ResultWarning):
        result = avgk.evaluate(logits, toy.labels, k=[1, 2])
    page = render_report(result)
    assert "straddle_bound" not in files(page)["average-k.csv"]
    assert "no lower bound on the errors avoided" in page


def test_downloads__of_models_are_what_compare_gives_and_no_formula():
    toy = simulate(300, 10)
    names = ["=cmd()", "plain, with a comma"]
    comparison = avgk.compare({names[0]: toy.scores, names[1]: np.asarray(toy.scores)[:, ::-1]}, toy.labels, k=[1, 2])
    read = files(render_comparison(comparison))
    assert list(read) == ["models.csv", "differences.csv", "models.json"]
    models, differences = rows(read["models.csv"]), rows(read["differences.csv"])
    assert [row["model"] for row in models] == ["'=cmd()", names[1]] * 2
    for row, name in zip(models, names * 2, strict=True):
        assert float(row["average_k_error"]) == float(comparison.average_k_error.sel(k=float(row["k"]), model=name))
    assert len(differences) == 4
    for row in differences:
        one = comparison.sel(k=float(row["k"]), rule=row["rule"], model=names[0], other=names[1])
        assert float(row["difference"]) == float(one.difference)
        assert int(row["discordant_reversed"]) == int(
            comparison.discordant.sel(k=one.k, rule=row["rule"], model=names[1], other=names[0])
        )
    assert json.loads(read["models.json"])["tables"]["models"]["model"] == names * 2
