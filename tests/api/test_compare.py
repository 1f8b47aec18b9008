"""Comparisons of models, against their definition sample by sample."""

from __future__ import annotations

import math
from fractions import Fraction

import dask
import dask.array as da
import numpy as np
import pytest
import xarray as xr
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

import avgk_dask as avgk
from avgk_dask.api.comparison import mcnemar
from avgk_dask.testing import (
    Simulation,
    oracle_average_k_sets,
    oracle_influences,
    oracle_stderr,
    oracle_top_k_sets,
    simulate,
    strategies,
)

ENGINES = {
    "rows": {"avgk.small-scores": 0},
    "few rows kept": {"avgk.small-scores": 0, "avgk.kept-bytes": 200, "avgk.pilot-least": 1, "avgk.pilot-share": 0.0},
    "events": {"avgk.small-scores": 0, "avgk.kept-bytes": 0},
    "counted ties": {"avgk.small-scores": 0, "avgk.kept-bytes": 0, "avgk.max-events": 0, "avgk.least-events": 0},
}


def right_of(scores, labels, k, rule):
    sets = oracle_average_k_sets(scores, k) if rule == "average" else oracle_top_k_sets(scores, int(k))
    return np.array([label >= 0 and sets[i, label] for i, label in enumerate(labels.tolist())])


def check_pair(result, scores, labels, k, i, clusters):
    for rule in ("top", "average"):
        one = result.sel(rule=rule, model="a", other="b").isel(k=i)
        if rule == "top" and Fraction(str(k)).denominator != 1:
            assert np.isnan(one.difference)
            continue
        right = {name: right_of(scores[name], labels, k, rule) for name in "ab"}
        assert int(one.discordant) == (right["a"] & ~right["b"]).sum()
        n = (labels >= 0).sum()
        difference = Fraction(int(right["b"].sum()) - int(right["a"].sum()), int(n))
        assert float(one.difference) == float(difference)
        psi = [oracle_influences(scores[name], labels, k, rule) for name in "ab"]
        labelled = labels >= 0
        n_units = labelled.sum() if clusters is None else np.unique(clusters[labelled]).size
        stderr = oracle_stderr([x - y for x, y in zip(*psi, strict=True)], clusters) if n_units > 1 else math.nan
        assert float(one.difference_stderr) == pytest.approx(stderr, rel=1e-12, abs=1e-15, nan_ok=True)


@pytest.mark.slow
@pytest.mark.parametrize("engine", ENGINES)
@given(data=st.data())
def test_compare__equals_the_definition(engine, data):
    first = data.draw(strategies.score_matrices())
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    scores = {"a": first, "b": first[rng.permutation(len(first))].astype(first.dtype)}
    labels = data.draw(strategies.hard_labels(first.shape))
    if not (labels >= 0).any():
        labels[0] = 0
    ks = data.draw(strategies.budgets(first.shape[1], first))
    clusters = rng.integers(0, 3, len(first)) if data.draw(st.booleans()) else None
    lazy = {n: da.from_array(s, chunks=data.draw(strategies.chunkings(s.shape))) for n, s in scores.items()}
    with dask.config.set(ENGINES[engine]), dask.config.set(scheduler="synchronous"):
        result = avgk.compare(lazy, labels, ks, straddle=False, clusters=clusters)
        alone = avgk.evaluate(lazy["a"], labels, ks, straddle=False, clusters=clusters)
    for i, k in enumerate(ks):
        check_pair(result, scores, labels, k, i, clusters)
    first = result.sel(model="a", size=alone["size"])
    for name in alone:
        assert np.array_equal(first[name].values, alone[name].values, equal_nan=first[name].dtype.kind == "f"), name


def test_compare__reads_each_model_once_and_has_the_variables_of_evaluate():
    scores, labels, _ = Simulation(3_000, 30).rows(0, 3_000)
    result = avgk.compare({"a": scores, "b": scores**2, "c": scores[:, ::-1].copy()}, labels, k=range(1, 4))
    assert result.attrs["reads"] == 1
    alone = avgk.evaluate(scores**2, labels, k=range(1, 4))
    assert set(alone.data_vars) <= set(result.data_vars)
    assert result.straddle_bound.sel(model="b").equals(alone.straddle_bound.assign_coords(model="b"))
    assert (result.difference.sel(rule="top", model="a", other="b") == 0).all()  # squares rank as their roots do
    assert (result.mcnemar_p.sel(rule="top", model="a", other="b") == 1).all()
    worse = result.sel(rule="average", model="c", other="a")
    assert (worse.difference > 5 * worse.difference_stderr).all()
    assert (worse.mcnemar_p_adjusted >= worse.mcnemar_p).all()
    assert result.difference.equals(
        -result.difference.transpose("rule", "other", "model", "k").rename(model="other", other="model")
    )


def test_compare__average_against_top_is_the_difference_of_the_rules():
    scores, labels, _ = Simulation(2_000, 20).rows(0, 2_000)
    result = avgk.compare({"a": scores, "b": scores**3}, labels, k=[2, 2.5], straddle=False)
    gain = result.adaptive_gain.sel(model="a")
    same = result.sel(model="a", other="a")
    assert np.allclose(same.average_against_top, -gain, equal_nan=True)
    assert np.allclose(same.average_against_top_stderr, result.adaptive_gain_stderr.sel(model="a"), equal_nan=True)


@pytest.mark.parametrize("b, c", [(0, 0), (3, 9), (172, 44), (1, 0), (5, 5)])
def test_mcnemar__is_the_exact_binomial_test(b, c):
    expected = binomtest(b, b + c).pvalue if b + c else 1.0
    assert mcnemar(np.array([b]), np.array([c]))[0] == pytest.approx(expected)


def test_compare__with_a_mask_is_that_of_the_samples_that_exist():
    scores, labels, _ = Simulation(900, 10).rows(0, 900)
    kept, clusters = np.arange(900) % 4 > 0, np.arange(900) // 10
    masked = avgk.compare({"a": scores, "b": scores**2}, labels, k=2, where=kept, clusters=clusters)
    bare = avgk.compare({"a": scores[kept], "b": scores[kept] ** 2}, labels[kept], k=2, clusters=clusters[kept])
    assert masked.drop_attrs().identical(bare.drop_attrs())


def test_compare__of_stores_takes_their_labels(tmp_path):
    scores, labels, _ = Simulation(500, 12).rows(0, 500)
    for name, top_m, rows in (("a", None, slice(None)), ("b", 8, slice(None)), ("c", None, slice(None, None, -1))):
        with avgk.ScoreWriter(tmp_path / name, n_classes=12, top_m=top_m) as writer:
            writer.append(scores[rows], labels[rows])
    result = avgk.compare({"a": tmp_path / "a", "b": tmp_path / "b"}, k=[1, 2], straddle=False)
    assert (result.difference == 0).all()
    with pytest.raises(
        avgk.LabelsError, match=r"labels must be the same for all models; those of a and c differ, first at"
    ):
        avgk.compare({"a": tmp_path / "a", "c": tmp_path / "c"}, k=1)


@pytest.mark.parametrize(
    "models, options, error, words",
    [
        ({"a": np.eye(3)}, {}, avgk.OptionError, "models must be a mapping of at least two"),
        ([np.eye(3)], {}, avgk.OptionError, "models must be a mapping of at least two"),
        ({1: np.eye(3), "1": np.eye(3)}, {}, avgk.OptionError, "models must have different names"),
        ({"a": np.eye(3), "b": np.eye(4)}, {}, avgk.LabelsError, "labels must fit"),
        ({"a": np.eye(3), "b": np.ones((3, 4))}, {}, avgk.ScoresError, "models must have scores of the same"),
        ({"a": np.eye(3), "b": np.eye(3)}, {"labels": None}, avgk.LabelsError, "labels are required"),
        ({"a": np.eye(3), "b": np.eye(3)}, {"labels": np.eye(3)}, avgk.LabelsError, "class numbers for compare"),
        ({"a": np.eye(3), "b": np.eye(3)}, {"clusters": [1, 2]}, avgk.LabelsError, "clusters must have"),
    ],
)
def test_compare__refuses(models, options, error, words):
    with pytest.raises(error, match=words):
        avgk.compare(models, **{"labels": [0, 1, 2], "k": 1} | options)


def test_compare__tells_which_model_is_wrong():
    good, bad = np.eye(3), np.where(np.eye(3) > 0, np.nan, 0)
    with pytest.raises(avgk.ScoresError, match=r"^second: scores must not contain NaN"):
        avgk.compare({"first": good, "second": bad}, [0, 1, 2], k=1)
    with pytest.raises(avgk.LabelsError, match=r"^second: labels must fit"):
        avgk.compare({"first": good, "second": np.eye(4)}, [0, 1, 2], k=1)


@pytest.mark.slow
def test_compare__can_be_shown_from_a_store_and_in_part(tmp_path):
    scores, labels, _ = Simulation(200, 6).rows(0, 200)
    clusters = np.arange(200) // 4
    result = avgk.compare({"a": scores, "b": scores * 3}, labels, k=[1, 2], straddle=False, clusters=clusters)
    assert result.attrs["n_clusters"] == 50
    said = avgk.report.print_comparison(result)
    assert "another 50 clusters of samples" in said
    assert "Not all scores are probabilities" in said
    result.assign({n: result[n].astype(object) for n in ("model", "other", "rule")}).to_zarr(
        tmp_path / "c.zarr", consolidated=False
    )
    back = xr.open_zarr(tmp_path / "c.zarr", consolidated=False)
    assert "Comparison of models" in avgk.report.render_comparison(back)
    assert "top-k error" in avgk.report.print_table(result.isel(model=0))
    for part in (result.isel(k=0), result.sel(rule="top"), result.sel(model="a")):
        with pytest.raises(avgk.OptionError, match=r"result must have the dimension .*isel\("):
            avgk.report.print_comparison(part)


def test_compare__without_labelled_samples_has_no_errors():
    result = avgk.compare({"a": np.eye(3), "b": np.eye(3)}, [-1, -1, -1], k=1, straddle=False)
    assert math.isnan(result.difference[0, 0, 1, 0])
    assert math.isnan(result.mcnemar_p_adjusted[0, 0, 1, 0])


def test_compare__of_very_large_sets_adds_products_up_exactly():
    from avgk_dask.statistics.error_bars import multiply_columns

    a, b = np.array([2**31, 3, 2**30 + 1]), np.array([1, 2**31 - 1, 5])
    wide = [[int(x) for x in column] for column in (a, b)]
    expected = tuple(tuple(sum(x * y for x, y in zip(p, q, strict=True)) for q in wide) for p in wide)
    assert multiply_columns([a, b]) == expected
    assert multiply_columns([np.arange(40_000), np.ones(40_000, bool)])[0] == (
        sum(i * i for i in range(40_000)),
        sum(range(40_000)),
    )


def test_compare__refuses_models_whose_samples_or_classes_are_in_another_order(tmp_path):
    scores, labels = np.array([[0.9, 0.1], [0.8, 0.2], [0.3, 0.7]]), np.array([0, 0, 1])
    frame = xr.DataArray(scores, dims=("sample", "class"), coords={"class": ["cat", "dog"], "sample": [5, 6, 7]})
    for other, name in ((frame[:, ::-1], "class"), (frame[::-1], "sample")):
        with pytest.raises(avgk.ScoresError, match=rf"models\['b'\] must have the {name} names of models\['a'\]"):
            avgk.compare({"a": frame, "b": other}, labels, k=1)
    for name, order in {"a": ["cat", "dog"], "b": ["dog", "cat"]}.items():
        with avgk.ScoreWriter(tmp_path / f"{name}.zarr", 2, attributes={"class_names": order}) as writer:
            writer.append(scores, labels)
    with pytest.raises(
        avgk.ScoresError, match=r"at position 0 there is 'cat' in models\['a'\] and 'dog' in models\['b'\]"
    ):
        avgk.compare({name: tmp_path / f"{name}.zarr" for name in "ab"}, k=1)
    assert (
        avgk.compare({"a": frame, "b": scores}, labels, k=1).sizes["model"] == 2
    )  # the second has no names to compare


def test_compare__does_not_call_truncated_scores_improbable(tmp_path):
    toy = simulate(300, 20)
    scores, labels = toy.scores.values, toy.labels.values
    with avgk.ScoreWriter(tmp_path / "short.zarr", 20, top_m=15) as writer:
        writer.append(scores, labels)
    result = avgk.compare({"whole": scores, "short": tmp_path / "short.zarr"}, labels, k=1)
    assert result.attrs["score_kind"] == "probabilities"
    assert "Not all scores" not in avgk.report.print_comparison(result)


def test_comparison_headline__tells_at_which_budgets_a_model_is_clearly_best():
    toy = simulate(2_000, 20)
    good, labels = toy.scores.values, toy.labels.values
    noise = np.random.default_rng(0).normal(0, 0.7, good.shape)
    result = avgk.compare({"good": good, "bad": good * np.exp(noise)}, labels, k=[1, 2, 19])
    said = avgk.report.print_comparison(result)
    assert "At k = 2, average-k makes the fewest errors with good" in said
    assert "At k = 1, good is clearly best. At k = 19, the best two do not clearly differ." in said
    unsure = result.copy(deep=True)
    unsure["mcnemar_p_adjusted"][:] = 0.06  # by itself the difference is clear, but not among so many
    assert "At k = 19 there is no clear difference" in avgk.report.print_comparison(unsure)
    assert "The same holds at the other budgets." in avgk.report.print_comparison(unsure)
