"""Pictures of calibration show the values of the tables."""

from __future__ import annotations

import numpy as np
import pytest

import avgk_dask as avgk

RNG = np.random.default_rng(3)
LOGITS = RNG.standard_normal((800, 12)) * 3
LABELS = np.array([RNG.choice(12, p=p) for p in np.asarray(avgk.softmax(LOGITS, temperature=2))])


@pytest.fixture
def ax():
    from matplotlib.figure import Figure

    return Figure().add_subplot()


def line(ax, label):
    (actual,) = [one for one in ax.get_lines() if str(one.get_label()).startswith(label)]
    return actual


def test_temperatures__show_errors_and_the_least_nll(ax):
    curve = avgk.calibration.temperature_curve(LOGITS, LABELS, k=2, temperatures=[4, 1, 2, 0.5])
    assert avgk.plot.temperatures(curve, ax=ax) is ax
    np.testing.assert_array_equal(line(ax, "average-k").get_xdata(), [0.5, 1, 2, 4])
    np.testing.assert_allclose(line(ax, "average-k").get_ydata(), 100 * curve.sortby("temperature").average_k_error)
    assert line(ax, "least NLL").get_xdata().tolist() == [2, 2]
    for value, one in zip(curve.temperature.values, curve.nll.values, strict=True):
        assert one == avgk.losses.nll(avgk.softmax(LOGITS, temperature=value), LABELS)
        expected = avgk.evaluate(avgk.softmax(LOGITS, temperature=value), LABELS, 2, straddle=False)
        assert curve.average_k_error.sel(temperature=value) == expected.average_k_error[0]
    assert len(set(curve.top_k_error.values)) == 1  # no temperature changes it


@pytest.mark.filterwarnings("error::avgk_dask.errors.ResultWarning")
def test_temperature_curve__does_not_warn_of_what_it_makes_itself():
    curve = avgk.calibration.temperature_curve(LOGITS, LABELS, temperatures=[0.005, 1])
    assert curve.nll.values[0] > curve.nll.values[1]


def test_temperature_curve__of_a_fractional_budget_has_no_top_k_error(ax):
    curve = avgk.calibration.temperature_curve(LOGITS, LABELS, k=1.5, temperatures=[1])
    assert np.isnan(curve.top_k_error.values).all()
    avgk.plot.temperatures(curve, ax=ax)
    assert not [one for one in ax.get_lines() if "top-k" in str(one.get_label())]


@pytest.mark.parametrize("bad", [[], [0], [-1], ["warm"], [np.nan], [[1, 2]]])
def test_temperature_curve__refuses_other_temperatures(bad):
    with pytest.raises(avgk.OptionError, match="temperatures must be positive numbers"):
        avgk.calibration.temperature_curve(LOGITS, LABELS, temperatures=bad)


def test_reliability__shows_each_table_with_its_error(ax):
    tables = {
        name: avgk.losses.expected_calibration_error(avgk.softmax(LOGITS, temperature=t), LABELS)
        for name, t in (("before", 1), ("after", 2))
    }
    avgk.plot.reliability(tables, ax=ax)
    for name, table in tables.items():
        some = table["count"].values > 0
        np.testing.assert_array_equal(line(ax, name).get_ydata(), table.accuracy.values[some])
        assert f"{100 * float(table.expected_calibration_error):.2g} %" in line(ax, name).get_label()
    avgk.plot.reliability(tables["before"], ax=ax)


def test_near_threshold__shows_the_bins_and_the_threshold(ax):
    table = avgk.losses.calibration_at_threshold(avgk.softmax(LOGITS), LABELS, 2)
    avgk.plot.near_threshold(table, ax=ax)
    np.testing.assert_array_equal(line(ax, "near the").get_ydata(), table.accuracy.values)
    assert line(ax, "threshold").get_xdata()[0] == float(table.threshold)


def test_pictures__refuse_what_is_no_table(ax):
    result = avgk.evaluate(avgk.softmax(LOGITS), LABELS, 1, straddle=False)
    for draw in (avgk.plot.reliability, avgk.plot.near_threshold, avgk.plot.temperatures):
        with pytest.raises(avgk.OptionError, match="table has no"):
            draw(result, ax=ax)
