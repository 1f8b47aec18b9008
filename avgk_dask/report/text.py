"""The result of an evaluation in sentences, which the terminal and the report page share."""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, Context

import numpy as np
import xarray as xr

from .. import plot
from ..results.datasets import are_probabilities, kind_sentence
from ..results.registry import TIES
from ..results.text import Screen
from .tables import check_evaluation, fixed, percent, results_table, share, stderr_of, transfer_table, with_error


def print_table(result: xr.Dataset, *, width: int | None = None, colour: bool = False) -> str:
    r"""Return the table of a result as text with aligned columns, followed by a summary and the meaning of the columns.

    Parameters
    ----------
    result
        The result of ``evaluate``.
    width
        Maximum length of a line. Sentences are wrapped, and the least important columns of the table are omitted if
        necessary; a line below the table lists them. By default lines have any length.
    colour
        Whether to highlight the summary, gains and losses with the colours of a terminal.

    Examples
    --------
    >>> import numpy as np, avgk_dask as avgk
    >>> result = avgk.evaluate(np.eye(3), np.eye(3), k=[1, 2])
    >>> print(*avgk.report.print_table(result, width=40).splitlines()[:5], sep="\n")
    k  threshold  top-k error  avg-k error
    1          0       0.00 %       0.00 %
    2          0       0.00 %       0.00 %
    left out: quartiles, ties, kept; use a
    wider terminal or --json
    """
    check_evaluation(result)
    return Screen(width, colour).page(results_table(result), sentences(result))


def print_transfer(result: xr.Dataset, *, width: int | None = None, colour: bool = False) -> str:
    """Return the table of a ``transfer`` result as text with a summary; options as for ``print_table``."""
    attrs = result.attrs
    promise = "" if attrs["guarantee"] == "none" else ", for an expected set size of at most k on a new sample"
    summary = [
        f"{attrs['n_samples']:,} samples x {attrs['n_classes']:,} classes; thresholds from "
        f"{attrs['n_calibration_samples']:,} calibration samples{promise}."
    ]
    if "average_set_size_stderr" in result and (result.average_set_size_stderr > 0).any():
        summary.append(STDERR)
    return Screen(width, colour).page(transfer_table(result), summary, strong=None)


def sentences(result: xr.Dataset) -> list[str]:
    """Return the summary of a result: its headline, set sizes, the reason for a gain, and caveats."""
    n, c = result.attrs["n_samples"], result.attrs["n_classes"]
    answers = [s for s in (least_sentence(result), headline(result)) if s]
    first = f"{n:,} samples x {c:,} classes. {answers.pop(0)}"
    others = (
        kind_sentence, crowd_sentence, size_sentence, ambiguity_sentence, tie_sentence, soft_sentence, stderr_sentence,
        zero_sentence,
    )  # fmt: skip
    return [s for s in (first, *answers, *(sentence(result) for sentence in others)) if s]


def least_sentence(result: xr.Dataset) -> str:
    """State the smallest budgets with at most ``max_error``; empty if the result has no such target."""
    if "max_error" not in result.attrs:
        return ""
    error, k, top = (result.attrs[name] for name in ("max_error", "smallest_k", "smallest_top_k"))
    # Rounded up, so that the printed budget also reaches the error.
    enough = Context(prec=6, rounding=ROUND_CEILING).create_decimal(str(k)).normalize()
    return (
        f"For an error of at most {percent(error)}, average-k needs {enough:f} labels per sample and top-k needs {top}."
    )


def ambiguity_sentence(result: xr.Dataset) -> str:
    """Explain from the supports of the ranked scores whether average-k can gain; empty if they are unknown."""
    if "supports_overlap" not in result or np.isnan(result.supports_overlap.values).all():
        return ""
    overlap = result.supports_overlap.values
    ks = [float(k) for k, overlaps in zip(result.k.values, overlap, strict=True) if overlaps == 1]
    if not ks:
        return (
            "At these budgets, no sample's score of rank k + 1 exceeds another sample's score of rank k. If the scores are the "
            "true probabilities, top-k is optimal."
        )
    gains = (result.adaptive_gain.values > 0) & plot.is_clear(result)
    reason = (
        f"{'Why: some' if gains.any() else 'Some'} samples are harder than others. At k = {listed(ks)}, the next label of a hard "
        "sample (rank k + 1) can score higher than the last label of an easy one (rank k), so moving a label from the easy to the "
        "hard sample can avoid errors."
    )
    bounds = result.straddle_bound.values
    if np.isnan(bounds).all() or not are_probabilities(result):
        return reason
    best = result.isel(k=int(np.nanargmax(bounds)))
    size = f"{100 * float(best.straddle_bound):.2g}"
    points = f"{size} {'point' if size == '1' else 'points'} at k = {float(best.k):g}"
    return f"{reason} If the scores were the true probabilities, this would lower the error by at least {points}."


def listed(ks: list[float]) -> str:
    """Return budgets as text: ``1 to 5``, or ``1, 3 and 5``."""
    if len(ks) > 2 and ks == [ks[0] + i for i in range(len(ks))]:
        return f"{ks[0]:g} to {ks[-1]:g}"
    *others, last = (f"{k:g}" for k in ks)
    return f"{', '.join(others)} and {last}" if others else last


def tie_sentence(result: xr.Dataset) -> str:
    """State the range of the error over all choices of ties, at the budget with the largest range."""
    if "average_k_error_lowest" not in result:
        return ""
    spread = (result.average_k_error_highest - result.average_k_error_lowest).values
    if np.isnan(spread).all() or np.nanmax(spread) <= 0:
        return ""
    one = result.isel(k=int(np.nanargmax(spread)))
    low, high, mean = (percent(float(one[f"average_k_error_{end}"])) for end in ("lowest", "highest", "expected"))
    return (
        f"The error depends on ties: at k = {float(one.k):g}, {int(one.n_ties):,} scores equal the threshold and "
        f"{int(one.n_kept):,} of them are kept. Depending on which, the average-k error is between {low} and {high} ({mean} on "
        "average)."
    )


def crowd_sentence(result: xr.Dataset) -> str:
    """Warn if many scores share the threshold, such as the 0 of a forest, so that the sets are partly arbitrary."""
    crowded = plot.is_crowded(result)
    if not crowded.any():
        return ""
    shares = np.where(crowded, plot.n_arbitrary(result) / np.maximum(result.n_above + result.n_kept, 1), 0)
    one = result.isel(k=int(np.argmax(shares)))
    ks = [float(k) for k in result.k.values[crowded]]
    at, up_to = (f"at k = {float(one.k):g}, ", "up to ") if len(ks) > 1 else ("", "")
    ties = result.attrs.get("ties", "first")
    rule = TIES.get(ties, ties)
    remedies = [
        *([] if ties == "spread" else ['ties="spread" (--ties spread)']),
        *(["a smaller k"] if ks[0] > 1 else []),
    ]
    remedy = f" Use {' or '.join(remedies)}." if remedies else ""
    return (
        f"At k = {listed(ks)}, many scores equal the threshold ({at}{int(one.n_ties):,} scores are {float(one.threshold) + 0.0:.6g}): "
        f"{up_to}{100 * shares.max():.0f} % of the labels in the sets are an arbitrary choice among them ({rule}), so gains say "
        f"little there.{remedy}"
    )


def headline(result: xr.Dataset) -> str:
    """Compare both rules at the budget with the most significant gain, and list the budgets with clearly more errors."""
    gains = result.relative_gain.values
    if np.isnan(result.average_k_error.values).all():
        return "Errors need labels; without them (or with negative ones only) there are only thresholds and set sizes."
    if np.isnan(result.top_k_error.values).all():
        return "Top-k needs an integer k, so there is nothing to compare with."
    if np.isnan(gains).all():
        return "Top-k makes no errors at these budgets, so there are none to avoid."
    best = result.sel(k=plot.best_budget(result))
    k, gain, clear = f"{float(best.k):g}", float(best.relative_gain), plot.is_clear(result)
    if not clear.any():
        return _unclear(result, best)
    change = f"{with_error(abs(gain), stderr_of(best, 'relative_gain'), 1)} {'fewer' if gain > 0 else 'more'} errors"
    answer = (
        f"Returning {k} label{'s' * (k != '1')} per sample on average (average-{k}) makes {change} than returning exactly {k} "
        f"(top-{k}): {_errors(best)}."
    )
    if gain <= 0:
        return f"{answer} No budget has clearly fewer errors." if result.sizes["k"] > 1 else answer
    worse = clear & (result.adaptive_gain.values < 0)
    return (
        f"{answer} At k = {listed(result.k.values[worse].tolist())}, average-k makes clearly more errors."
        if worse.any()
        else answer
    )


def _unclear(result: xr.Dataset, best: xr.Dataset) -> str:
    """Return the headline if no gain exceeds the variation expected by chance."""
    stderr, n_budgets = stderr_of(best, "adaptive_gain"), result.sizes["k"]
    if not np.nan_to_num(result.adaptive_gain.values).any():
        return f"Average-k makes as many errors as top-k at {'this budget' if n_budgets == 1 else 'these budgets'}."
    gain = float(best.adaptive_gain)
    reach = "" if math.isnan(stderr) else f" \N{PLUS-MINUS SIGN}{fixed(100 * stderr, 2)}"
    change = f", {fixed(100 * abs(gain), 2)}{reach} points {'fewer' if gain > 0 else 'more'}" if gain else ""
    errors = f"at k = {float(best.k):g}, average-k makes {_errors(best, ' error')}"
    if math.isnan(stderr):
        return f"A{errors[1:]}{change}; no standard error is available."
    budgets = "this budget" if n_budgets == 1 else "any of these budgets"
    return f"There is no clear difference between average-k and top-k at {budgets}: {errors}{change}."


def _errors(one: xr.Dataset, noun: str = "") -> str:
    """Return both errors as percentages and, unless soft labels make them expected values, as numbers of samples."""
    fractions = f"{percent(float(one.average_k_error))} instead of {percent(float(one.top_k_error))}"
    n = int(one.attrs.get("n_labelled", 0))
    average, top = (n * float(one[name]) for name in ("average_k_error", "top_k_error"))
    if max(abs(average - round(average)), abs(top - round(top))) > 1e-6 * max(n, 1):
        return fractions
    noun += "s" * bool(noun and round(average) != 1)
    return f"{round(average):,}{noun} instead of {round(top):,} in {n:,} samples ({fractions})"


STDERR = "\N{PLUS-MINUS SIGN} is one standard error: the variation to expect with other samples of the same kind."


def stderr_sentence(result: xr.Dataset) -> str:
    """Explain the plus-minus signs; empty if the result has no standard errors."""
    if "average_k_error_stderr" not in result or np.isnan(result.average_k_error_stderr.values).all():
        return ""
    n = result.attrs.get("n_clusters")
    return STDERR.replace("other samples", f"another {n:,} clusters of samples") if n else STDERR


def soft_sentence(result: xr.Dataset) -> str:
    """Explain errors with soft labels; empty with hard labels."""
    if "plug_in_bound" not in result:
        return ""
    return "The labels are probabilities, so errors are expected values and have no standard errors."


def zero_sentence(result: xr.Dataset) -> str:
    """Bound the true error if no errors were observed; empty otherwise, or with soft labels."""
    n = int(result.attrs.get("n_labelled", 0))
    no_errors = (result.average_k_error.values == 0) & (result.k.values < result.attrs["n_classes"])
    if "plug_in_bound" in result or not n or not no_errors.any():
        return ""
    unseen = 1 - 0.05 ** (1 / n)
    return (
        f"With 0 errors in {n:,} samples, the true error may be up to {100 * unseen:.2g} % (95 % confidence); the standard error "
        "does not show this."
    )


def size_sentence(result: xr.Dataset) -> str:
    """Say how many sets are smaller and larger than k, at the budget of the headline."""
    k = plot.best_budget(result)
    counts = result.set_size_count.sel(k=k).values
    sizes, n = np.arange(counts.size), counts.sum()
    smaller, larger = (100 * int(counts[side].sum()) / n for side in (sizes < k, sizes > k))
    if not smaller and not larger:
        return f"At k = {k:g}, every set has {k:g} label{'s' * (k != 1)}."
    parts = (
        ("are empty", f"more than {k:g} label{'s' * (k != 1)}") if k <= 1 else (f"have fewer than {k:g} labels", "more")
    )
    largest = int(np.flatnonzero(counts)[-1])
    return f"At k = {k:g}, {smaller:.0f} % of the sets {parts[0]} and {larger:.0f} % have {parts[1]}; the largest has {largest:,}."


def answers(result: xr.Dataset, curve: xr.Dataset | None = None) -> dict[str, object]:
    """Return all sentences of a report page, by their positions on the page."""
    details = [kind_sentence, soft_sentence, tie_sentence, stderr_sentence, zero_sentence]
    if "max_error" in result.attrs:  # the headline answers that question instead
        details.insert(0, headline)
    if (result.relative_gain.values < 0).any():  # ties may explain the loss
        details.append(crowd_sentence)
    return {
        "question": question(result),
        "headline": answer(result, curve),
        "details": [text for sentence in details if (text := sentence(result))],
        "size_summary": size_sentence(result),
        "why": ambiguity_sentence(result),
        "unbounded": bound_sentence(result),
        "crowd": crowd_sentence(result),
    }


def question(result: xr.Dataset) -> str:
    """Return the question that a result answers."""
    if "max_error" in result.attrs:
        return f"How many labels per sample keep the error at or below {percent(result.attrs['max_error'])}?"
    if np.isnan(result.average_k_error.values).all():
        return "How many labels does each sample get if one threshold decides for all?"
    budgets = result.k.values.tolist()
    labels = "the same number of labels" if len(budgets) > 1 else f"{budgets[0]:g} label{'s' * (budgets[0] != 1)}"
    return f"With {labels} per sample on average, does it help to give hard samples more and easy ones fewer?"


def answer(result: xr.Dataset, curve: xr.Dataset | None = None) -> str:
    """Return the answer: the smallest budgets, the headline, or for fractional budgets a comparison with the nearest top-k."""
    if "max_error" in result.attrs:
        return least_sentence(result)
    if np.isnan(result.average_k_error.values).all() or not np.isnan(result.top_k_error.values).all():
        return headline(result)
    one = result.isel(k=int(np.argmax(result.k.values)))
    k = float(one.k)
    error = (
        f"With {k:g} labels per sample on average, average-{k:g} misses {share(one, 'average_k_error')} of the labels."
    )
    curve = result if curve is None else curve  # all budgets of the result are fractional
    known = [near for near in (math.floor(k), math.ceil(k)) if near in curve.k.values]
    near = " and ".join(f"top-{near} misses {share(curve.sel(k=float(near)), 'top_k_error')}" for near in known)
    return f"{error} For comparison, {near}." if near else f"{error} Top-k sets cannot have {k:g} labels."


def bound_sentence(result: xr.Dataset) -> str:
    """State that the errors avoided have no lower bound if the scores are not probabilities."""
    if are_probabilities(result):
        return ""
    return "These scores are not probabilities, so they give no lower bound on the errors avoided."


def error_words(one: xr.Dataset, is_clear: bool) -> str:
    """Describe both errors of an integer budget and the gain; empty without labels."""
    k = f"{float(one.k):g}"
    average, top = share(one, "average_k_error"), share(one, "top_k_error")
    if not average:
        return ""
    gain = share(one, "relative_gain", 1, "+")
    clear = "" if is_clear else ", no clear difference"
    points = f"{fixed(100 * float(one.adaptive_gain), 2, '+')} points"
    return f"top-{k} misses {top}, average-{k} misses {average}: gain {gain + clear if gain else points}"
