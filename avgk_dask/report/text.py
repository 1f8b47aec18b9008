"""A result in words and as a table for people."""

from __future__ import annotations

import math

import numpy as np
import xarray as xr

HEADER = ("k", "threshold", "top-k error", "avg-k error", "gain", "set sizes 25/50/75 %", "ties", "kept")


def _percent(value: float) -> str:
    return "" if math.isnan(value) else f"{100 * value:.2f} %"


def size_quartiles(counts: np.ndarray) -> tuple[int, int, int]:
    """Give the set sizes that a quarter, half and three quarters of the samples do not exceed."""
    cumulative = np.cumsum(counts)
    first, second, third = (int(np.searchsorted(cumulative, q * cumulative[-1] / 4)) for q in (1, 2, 3))
    return first, second, third


def table_rows(result: xr.Dataset) -> list[tuple[str, ...]]:
    """Give a row of text for each budget of a result."""
    rows: list[tuple[str, ...]] = []
    for i, k in enumerate(result.k.values):
        one = result.isel(k=i)
        quartiles = " / ".join(map(str, size_quartiles(one.set_size_count.values)))
        gain = float(one.relative_gain)
        rows.append((
            f"{k:g}",
            f"{float(one.threshold):.6g}",
            _percent(float(one.top_k_error)),
            _percent(float(one.average_k_error)),
            "" if math.isnan(gain) else f"{100 * gain:+.1f} %",
            quartiles,
            f"{int(one.n_ties):,}",
            f"{int(one.n_kept):,}",
        ))  # fmt: skip
    return rows


def print_table(result: xr.Dataset) -> str:
    """Give the table of a result as text with aligned columns, and one sentence that sums it up."""
    rows = [HEADER, *table_rows(result)]
    widths = [max(len(row[c]) for row in rows) for c in range(len(HEADER))]
    lines = ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
    return "\n".join([*lines, "", *sentences(result)])


def sentences(result: xr.Dataset) -> list[str]:
    """Say what the result means: the gain, why there is one, and how far ties matter."""
    return [s for s in (summary_sentence(result), ambiguity_sentence(result), tie_sentence(result)) if s]


def ambiguity_sentence(result: xr.Dataset) -> str:
    """Say whether adapting can pay, from the supports of the ranked scores; nothing where they are not known."""
    if "supports_overlap" not in result or np.isnan(result.supports_overlap.values).all():
        return ""
    overlap = result.supports_overlap.values
    yes = [float(k) for k, o in zip(result.k.values, overlap, strict=True) if o == 1]
    if not yes:
        return "Ranks k and k + 1 do not overlap at these budgets: for true probabilities, top-k is then optimal."
    found = f"Ranks k and k + 1 overlap at k = {_listed(yes)}, so that adapting can pay"
    bounds = result.straddle_bound.values
    if np.isnan(bounds).all() or not _are_probabilities(result):
        return f"{found}."
    best = result.isel(k=int(np.nanargmax(bounds)))
    points = f"{100 * float(best.straddle_bound):.2g} points at k = {float(best.k):g}"
    return f"{found}: for true probabilities the error would fall by at least {points}."


def _are_probabilities(result: xr.Dataset) -> bool:
    """Whether the ranked scores all lie in [0, 1]; said of scores that were not ranked, too."""
    return "support_low" not in result or (
        float(result.support_low.min()) >= 0 and float(result.support_high.max()) <= 1
    )


def _listed(ks: list[float]) -> str:
    """Give budgets as people list them: ``1 to 5``, or ``1, 3, 5``."""
    if len(ks) > 2 and ks == [ks[0] + i for i in range(len(ks))]:
        return f"{ks[0]:g} to {ks[-1]:g}"
    return ", ".join(f"{k:g}" for k in ks)


def tie_sentence(result: xr.Dataset) -> str:
    """Say how the error depends on which ties are kept, at the budget where it does most."""
    if "average_k_error_lowest" not in result:
        return ""
    spread = (result.average_k_error_highest - result.average_k_error_lowest).values
    if np.isnan(spread).all() or np.nanmax(spread) <= 0:
        return ""
    one = result.isel(k=int(np.nanargmax(spread)))
    low, high = (_percent(float(one[f"average_k_error_{end}"])) for end in ("lowest", "highest"))
    k, n_kept, n_ties = f"{float(one.k):g}", f"{int(one.n_kept):,}", f"{int(one.n_ties):,}"
    expected = _percent(float(one.average_k_error_expected))
    which = f"depending on which {n_kept} of the {n_ties} ties are kept"
    return f"Ties matter: at k = {k} the average-k error is {low} to {high}, {which} ({expected} on average)."


def summary_sentence(result: xr.Dataset) -> str:
    """Say what the result means, for the budget with the largest relative gain."""
    n, c = result.attrs["n_samples"], result.attrs["n_classes"]
    shape = f"{n:,} samples x {c:,} classes"
    gains = result.relative_gain.values
    if np.isnan(result.average_k_error.values).all():
        return f"{shape}; without labels there are no errors to compare."
    if np.isnan(result.top_k_error.values).all():
        return f"{shape}; top-k needs an integer k, so there is nothing to compare with."
    if np.isnan(gains).all():
        return f"{shape}; top-k makes no errors at these budgets, so there are none to avoid."
    best = result.isel(k=int(np.nanargmax(gains)))
    k, gain = f"{float(best.k):g}", float(best.relative_gain)
    errors = f"{_percent(float(best.top_k_error))} to {_percent(float(best.average_k_error))}"
    if gain <= 0:
        hint = (
            ""
            if _are_probabilities(result)
            else " Are the scores comparable between samples? Try a softmax of each row."
        )
        return f"{shape}; average-k makes no fewer errors than top-k at any of these budgets.{hint}"
    labels = "1 label" if k == "1" else f"{k} labels"
    return (
        f"{shape}; with {labels} per sample, average-{k} makes {100 * gain:.1f} % fewer errors than top-{k} ({errors})."
    )
