"""Text that fits a width."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from avgk_dask.results.text import Screen, Table, display_width, drop_empty_columns, fit_table, shorten, wrap

TABLE = Table(
    ("k", "name", "error", "ties"),
    [("1", "北極熊", "5.94 ±0.33 %", "1,000,000,000"), ("2.5", "bear", "", "1")],
    least=("ties",),
    names=("name",),
    tones={(0, "error"): "good"},
)


def test_table__is_aligned_by_what_is_seen():
    assert Screen().table(TABLE) == [
        "  k    name         error           ties",
        "  1  北極熊  5.94 ±0.33 %  1,000,000,000",
        "2.5    bear                            1",
    ]


def test_table__loses_the_least_columns_first_and_says_so():
    assert Screen(39).table(TABLE) == [
        "  k    name         error",
        "  1  北極熊  5.94 ±0.33 %",
        "2.5    bear",
        "left out: ties; use a wider terminal or",
        "--json",
    ]
    assert fit_table(TABLE, 40) == (TABLE, [])
    assert fit_table(TABLE, None) == (TABLE, [])


def test_table__that_has_no_room_side_by_side_is_told_row_by_row():
    assert Screen(20).table(replace(TABLE, least=())) == [
        "k 1, name 北極熊,",
        "  error",
        "  5.94 ±0.33 %, ties",
        "  1,000,000,000",
        "k 2.5, name bear,",
        "  error , ties 1",
    ]


def test_names__are_cut_before_anything_is_left_out_and_further_after():
    table = replace(TABLE, rows=[("1", "y" * 50, "5 %", "1")])
    for width, cut, lost in ((40, 24, []), (32, 16, []), (31, 21, ["ties"]), (18, 8, ["ties"])):
        shown, left_out = fit_table(table, width)
        assert (display_width(shown.rows[0][1]), left_out) == (cut, lost)
        assert "…" in shown.rows[0][1]


def test_empty_columns__are_left_out_without_a_word():
    table = Table(("k", "gain", "ties"), [("1", "", "3"), ("2", "", "4")])
    assert drop_empty_columns(table).header == ("k", "ties")
    assert Screen(80).table(table) == ["k  ties", "1     3", "2     4"]
    assert drop_empty_columns(replace(table, rows=[])).header == table.header


def test_colours__take_no_room():
    lines = Screen(25, colour=True).table(TABLE)
    assert lines[1] == "  1  北極熊  \x1b[32m5.94 ±0.33 %\x1b[0m"
    assert lines[2] == "2.5    bear"
    assert lines[0].endswith("\x1b[1merror\x1b[0m")
    assert Screen(25, colour=True).text("so be it", "strong") == ["\x1b[1mso be it\x1b[0m"]


@pytest.mark.parametrize(
    ("text", "width", "lines"),
    [
        ("an error of 5.94 ±0.33 %.", 20, ["an error of", "5.94 ±0.33 %."]),
        ("a gain of +0.2 points at k = 5.", 16, ["a gain of", "+0.2 points at", "k = 5."]),
        ("in 34.2 MB to merge", 6, ["in", "34.2", "MB to", "merge"]),
        ("see /a/very/long/path/of/somebody now", 10, ["see", "/a/very/long/path/of/somebody", "now"]),
        ("averylongname", 5, ["avery", "longn", "ame"]),
        ("北極熊北極熊", 5, ["北極", "熊北", "極熊"]),
        ("", 5, [""]),
    ],
)
def test_wrapped__keeps_together_what_belongs_together(text, width, lines):
    assert wrap(text, width) == lines
    assert wrap(text, None) == [text]


@given(st.lists(st.text("abk=1%±北,.", min_size=1, max_size=12), max_size=20), st.integers(4, 40), st.integers(0, 2))
def test_wrapped__fits_and_loses_nothing(words, width, indent):
    lines = wrap(" ".join(words), width, indent)
    assert max(map(display_width, lines)) <= width
    assert "".join("".join(lines).split()) == "".join(words)
    assert all(line.startswith(" " * indent) for line in lines[1:])


@pytest.mark.slow
@given(st.text(), st.integers(2, 30))
def test_shortened__fits_and_keeps_both_ends(text, width):
    short = shorten(text, width)
    assert display_width(short) <= width
    assert (short == text) == (display_width(text) <= width) or "…" in text
    if short != text:
        head, _, tail = short.partition("…")
        assert text.startswith(head)
        assert text.endswith(tail) or "…" in text


cells = st.text("abc北 %", max_size=9)


@given(st.data(), st.integers(10, 90))
def test_tables__fit_any_width(data, width):
    n = data.draw(st.integers(1, 6))
    header = tuple(f"column{i}" for i in range(n))
    rows = data.draw(st.lists(st.tuples(*[cells] * n), max_size=4))
    least = data.draw(st.lists(st.sampled_from(header), unique=True, max_size=n - 1))
    names = data.draw(st.lists(st.sampled_from(header), unique=True))
    lines = Screen(width).table(Table(header, rows, tuple(least), tuple(names)))
    assert all(display_width(line) <= width for line in lines)
