"""Colours differ on white and on dark paper, for eyes of all kinds."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from avgk_dask.plot import canvas as palette

pytest.importorskip("matplotlib")

#: Linear RGB to XYZ (D65), and what dichromats see: Machado, Oliveira and Fernandes 2009, severity 1.
XYZ = np.array(
    [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.1191920, 0.9503041]]
)
SEEN = {
    "all colours": np.eye(3),
    "protanopia": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
    "deuteranopia": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
}
NAMED = [palette.AVERAGE_K, palette.TOP_K, palette.GAIN, palette.BUDGET]


def linear(color: str) -> np.ndarray:
    value = np.array([int(color[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    return np.where(value <= 0.04045, value / 12.92, ((value + 0.055) / 1.055) ** 2.4)


def lab(color: str, seen: str) -> np.ndarray:
    part = XYZ @ np.clip(SEEN[seen] @ linear(color), 0, 1) / (XYZ @ np.ones(3))
    f = np.where(part > 216 / 24389, np.cbrt(part), (24389 / 27 * part + 16) / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def least_distance(colors, seen: str) -> float:
    return min(float(np.linalg.norm(lab(a, seen) - lab(b, seen))) for a, b in itertools.combinations(colors, 2))


def contrast(color: str, paper: str) -> float:
    low, high = sorted(float(XYZ[1] @ linear(one)) for one in (color, paper))
    return (high + 0.05) / (low + 0.05)


def test_lab__is_that_of_the_definition():
    assert lab("#ffffff", "all colours") == pytest.approx([100, 0, 0], abs=0.01)
    assert lab("#ff0000", "all colours") == pytest.approx([53.24, 80.09, 67.20], abs=0.02)
    red, green = "#d62728", "#8a7000"  # which look alike to those who lack the cones for green
    assert least_distance([red, green], "deuteranopia") < least_distance([red, green], "all colours") / 3


@pytest.mark.parametrize("seen", SEEN)
def test_colors__that_stand_side_by_side_differ(seen):
    assert least_distance(NAMED, seen) > 25
    assert least_distance(palette.SERIES, seen) > 25
    assert least_distance(palette.ordered_colors(6), seen) > 15
    assert least_distance(palette.ordered_colors(2), seen) > 60


@pytest.mark.parametrize("seen", SEEN)
@pytest.mark.parametrize("n", [2, 6, 10, 100])
def test_ordered_colors__of_the_first_and_last_budget_differ(n, seen):
    colors = palette.ordered_colors(n)
    assert len(set(colors)) == n
    assert least_distance([colors[0], colors[-1]], seen) > 60  # k = 1 and k = 10


@pytest.mark.parametrize("paper", ["#ffffff", "#000000", "#14181d"])
def test_colors__are_seen_on_light_and_dark_paper(paper):
    assert min(contrast(color, paper) for color in (*NAMED, *palette.SERIES)) >= 3
    assert min(contrast(color, paper) for color in palette.ordered_colors(6)) >= 2.2


def test_series__are_none_of_the_colours_that_the_report_replaces():
    assert not {*palette.SERIES, *palette.ordered_colors(6)} & set(NAMED)
