"""The result of an evaluation in words: the answer, and what explains it. The terminal and the page say the same."""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, Context

import numpy as np
import xarray as xr

from .. import plot
from ..results.datasets import are_probabilities, kind_sentence
from ..results.text import Screen
from .tables import check_evaluation, fixed, percent, results_table, share, stderr_of, transfer_table, with_error


def print_table(result: xr.Dataset, *, width: int | None = None, colour: bool = False) -> str:
    r"""Return the table of a result as text with aligned columns, and sentences that sum it up.

    Parameters
    ----------
    result
        What ``evaluate`` gives.
    width
        Columns that all lines must fit: the least important columns of the table are left out, which a line says, and
        sentences are wrapped at words. By default lines are as long as they are.
    colour
        Whether to show by the colours of a terminal what matters.

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
    """Return the table of what ``transfer`` gave as text, and sentences that say what it is of; the rest as for ``print_table``."""
    attrs = result.attrs
    promise = "" if attrs["guarantee"] == "none" else ", for an expected set size of at most k on a new sample"
    said = [
        f"{attrs['n_samples']:,} samples x {attrs['n_classes']:,} classes; thresholds from {attrs['n_calibration_samples']:,} "
        f"calibration samples{promise}."
    ]
    if "average_set_size_stderr" in result and (result.average_set_size_stderr > 0).any():
        said.append("\N{PLUS-MINUS SIGN} is one standard error, over draws of samples like these.")
    return Screen(width, colour).page(transfer_table(result), said, strong=None)


def sentences(result: xr.Dataset) -> list[str]:
    """Say what the result means: the gain, the sets, why there is a gain, and how far ties matter."""
    n, c = result.attrs["n_samples"], result.attrs["n_classes"]
    answered = [s for s in (least_sentence(result), headline(result)) if s]
    first = f"{n:,} samples x {c:,} classes. {answered.pop(0)}"
    told = (
        kind_sentence, crowd_sentence, size_sentence, ambiguity_sentence, tie_sentence, soft_sentence, stderr_sentence,
        zero_sentence,
    )  # fmt: skip
    return [s for s in (first, *answered, *(tell(result) for tell in told)) if s]


def least_sentence(result: xr.Dataset) -> str:
    """Say which budgets are the least for the error that was asked for; nothing where none was."""
    if "max_error" not in result.attrs:
        return ""
    error, k, top = (result.attrs[name] for name in ("max_error", "smallest_k", "smallest_top_k"))
    # In a few digits, rounded up: so that this budget, asked for, is enough.
    enough = Context(prec=6, rounding=ROUND_CEILING).create_decimal(str(k)).normalize()
    return f"For an error of at most {percent(error)}, average-k needs {enough:f} labels per sample, and top-k {top}."


def ambiguity_sentence(result: xr.Dataset) -> str:
    """Say whether adapting can pay, from the supports of the ranked scores; nothing where they are not known."""
    if "supports_overlap" not in result or np.isnan(result.supports_overlap.values).all():
        return ""
    overlap = result.supports_overlap.values
    yes = [float(k) for k, o in zip(result.k.values, overlap, strict=True) if o == 1]
    if not yes:
        return "Ranks k and k + 1 do not overlap at these budgets: for true probabilities, top-k is then optimal."
    found = f"Ranks k and k + 1 overlap at k = {listed(yes)}, so that adapting can pay"
    bounds = result.straddle_bound.values
    if np.isnan(bounds).all() or not are_probabilities(result):
        return f"{found}."
    best = result.isel(k=int(np.nanargmax(bounds)))
    size = f"{100 * float(best.straddle_bound):.2g}"
    points = f"{size} {'point' if size == '1' else 'points'} at k = {float(best.k):g}"
    return f"{found}: for true probabilities the error would fall by at least {points}."


def listed(ks: list[float]) -> str:
    """Return budgets as people list them: ``1 to 5``, or ``1, 3, 5``."""
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
    low, high = (percent(float(one[f"average_k_error_{end}"])) for end in ("lowest", "highest"))
    k, n_kept, n_ties = f"{float(one.k):g}", f"{int(one.n_kept):,}", f"{int(one.n_ties):,}"
    expected = percent(float(one.average_k_error_expected))
    which = f"depending on which {n_kept} of the {n_ties} ties are kept"
    return f"Ties matter: at k = {k} the average-k error is {low} to {high}, {which} ({expected} on average)."


def crowd_sentence(result: xr.Dataset) -> str:
    """Say where a threshold is a score that very many share, such as the 0 of a forest, so that arbitrary ones fill the sets."""
    crowded = plot.is_crowded(result)
    if not crowded.any():
        return ""
    share = np.where(crowded, plot.n_arbitrary(result) / np.maximum(result.n_above + result.n_kept, 1), 0)
    one = result.isel(k=int(np.argmax(share)))
    ks = [float(k) for k in result.k.values[crowded]]
    at = f", at k = {float(one.k):g}" if len(ks) > 1 else ""
    equal = f"{int(one.n_ties):,} scores are {float(one.threshold) + 0.0:.6g}{at}"
    filled = f"{'up to ' * (len(ks) > 1)}{100 * share.max():.0f} % of the labels in the sets could be others of these"
    is_spread = result.attrs.get("ties") == "spread"
    which = "spread over the samples" if is_spread else "the first ones in row-major order"
    cures = [*([] if is_spread else ['ties="spread" (--ties spread)']), *(["a smaller k"] if ks[0] > 1 else [])]
    cure = f" Take {' or '.join(cures)}." if cures else ""
    return (
        f"At k = {listed(ks)} very many scores are equal to the threshold ({equal}): {filled}, {which}, "
        f"so that gains say little there.{cure}"
    )


def headline(result: xr.Dataset) -> str:
    """Say what the result means, for the budget that surely gains most, and at which others there are clearly more errors."""
    gains = result.relative_gain.values
    if np.isnan(result.average_k_error.values).all():
        return (
            "Without labels (or with negative ones only) there are no errors to compare: only thresholds and set sizes."
        )
    if np.isnan(result.top_k_error.values).all():
        return "Top-k needs an integer k, so there is nothing to compare with."
    if np.isnan(gains).all():
        return "Top-k makes no errors at these budgets, so there are none to avoid."
    best = result.sel(k=plot.best_budget(result))
    k, gain = f"{float(best.k):g}", float(best.relative_gain)
    errors = f"{percent(float(best.average_k_error))} instead of {percent(float(best.top_k_error))}{_counted(best)}"
    if not plot.is_clear(result).any():
        return _unclear(result, best, errors)
    labels = "1 label" if k == "1" else f"{k} labels"
    many = with_error(abs(gain), stderr_of(best, "relative_gain"), 1)
    which = "fewer" if gain > 0 else "more"
    told = f"With {labels} per sample on average, average-{k} makes {many} {which} errors than top-{k}: {errors}."
    if gain <= 0:
        return f"{told} At no budget does it clearly make fewer." if result.sizes["k"] > 1 else told
    worse = plot.is_clear(result) & (result.adaptive_gain.values < 0)
    return f"{told} At k = {listed(result.k.values[worse].tolist())} it clearly makes more." if worse.any() else told


def _unclear(result: xr.Dataset, best: xr.Dataset, errors: str) -> str:
    """Say that no difference is further from 0 than chance would take it."""
    stderr = stderr_of(best, "adaptive_gain")
    if not np.nan_to_num(result.adaptive_gain.values).any():
        return f"Average-k makes as many errors as top-k at {'this budget' if result.sizes['k'] == 1 else 'these budgets'}."
    if math.isnan(stderr):
        points = f"{fixed(100 * float(best.adaptive_gain), 2, '+')} points"
        return f"At k = {float(best.k):g}, average-k has {errors}, a gain of {points}; how sure that is cannot be told here."
    where = "this budget" if result.sizes["k"] == 1 else "any of these budgets"
    points = f"{fixed(100 * float(best.adaptive_gain), 2, '+')} \N{PLUS-MINUS SIGN}{fixed(100 * stderr, 2)} points"
    return (
        f"There is no clear difference between average-k and top-k at {where}: at k = {float(best.k):g}, average-k has {errors}, "
        f"a gain of {points}."
    )


def _counted(one: xr.Dataset) -> str:
    """Return the errors as numbers of samples, where they are numbers of samples."""
    n = int(one.attrs.get("n_labelled", 0))
    average, top = (n * float(one[name]) for name in ("average_k_error", "top_k_error"))
    if max(abs(average - round(average)), abs(top - round(top))) > 1e-6 * max(n, 1):
        return ""  # expected ones, of soft labels
    return f" ({round(average):,} instead of {round(top):,} of {n:,})"


def stderr_sentence(result: xr.Dataset) -> str:
    """Say what stands behind the plus-minus signs; nothing where there are none."""
    if "average_k_error_stderr" not in result or np.isnan(result.average_k_error_stderr.values).all():
        return ""
    n = result.attrs.get("n_clusters")
    return (
        f"\N{PLUS-MINUS SIGN} is one standard error, over draws of {f'{n:,} clusters' if n else 'samples'} like these."
    )


def soft_sentence(result: xr.Dataset) -> str:
    """Say what errors are with soft labels; nothing with others."""
    if "plug_in_bound" not in result:
        return ""
    return "The labels are probabilities: errors are expected ones, and have no standard errors."


def zero_sentence(result: xr.Dataset) -> str:
    """Say what an error of 0 in few samples proves; nothing where there is none, or labels are soft."""
    n = int(result.attrs.get("n_labelled", 0))
    none = (result.average_k_error.values == 0) & (result.k.values < result.attrs["n_classes"])
    if "plug_in_bound" in result or not n or not none.any():
        return ""
    unseen = 1 - 0.05 ** (1 / n)
    return (
        f"An error of 0 does not mean none: errors of up to some {100 * unseen:.2g} % go unseen in {n:,} samples one time in 20, "
        "and the \N{PLUS-MINUS SIGN} of 0 beside it does not tell that."
    )


def size_sentence(result: xr.Dataset) -> str:
    """Say how the labels are shared out at that budget."""
    k = plot.best_budget(result)
    counts = result.set_size_count.sel(k=k).values
    sizes, n = np.arange(counts.size), counts.sum()
    smaller, larger = (100 * int(counts[which].sum()) / n for which in (sizes < k, sizes > k))
    if not smaller and not larger:
        return f"At k = {k:g}, every set has {k:g} label{'s' * (k != 1)}."
    largest = int(np.flatnonzero(counts)[-1])
    few = "empty" if k <= 1 else f"smaller than {k:g}"
    return (
        f"At k = {k:g}, {smaller:.0f} % of the sets are {few} and {larger:.0f} % larger; the largest has {largest:,}."
    )


def answers(result: xr.Dataset, curve: xr.Dataset | None = None) -> dict[str, object]:
    """Return all sentences of a page about an evaluation, by their places."""
    details = [kind_sentence, soft_sentence, tie_sentence, stderr_sentence, zero_sentence]
    if "max_error" in result.attrs:  # then another question is answered first
        details.insert(0, headline)
    if (result.relative_gain.values < 0).any():  # that asks for an explanation
        details.append(crowd_sentence)
    return {
        "question": question(result),
        "headline": answer(result, curve),
        "details": [sentence for tell in details if (sentence := tell(result))],
        "sizes_told": size_sentence(result),
        "why": ambiguity_sentence(result),
        "unbounded": bound_sentence(result),
        "crowd": crowd_sentence(result),
    }


def question(result: xr.Dataset) -> str:
    """Return the question that a result answers."""
    if "max_error" in result.attrs:
        return f"How many labels per sample does an error of at most {percent(result.attrs['max_error'])} take?"
    if np.isnan(result.average_k_error.values).all():
        return "How many labels does each sample get, if one threshold decides for all?"
    budgets = result.k.values.tolist()
    labels = "the same number of labels" if len(budgets) > 1 else f"{budgets[0]:g} label{'s' * (budgets[0] != 1)}"
    return f"With {labels} per sample on average, does it pay to give some samples more and others fewer?"


def answer(result: xr.Dataset, curve: xr.Dataset | None = None) -> str:
    """Return the answer: the least budgets, the headline, or for fractional budgets the error beside those of the nearest top-k sets."""
    if "max_error" in result.attrs:
        return least_sentence(result)
    if np.isnan(result.average_k_error.values).all() or not np.isnan(result.top_k_error.values).all():
        return headline(result)
    one = result.isel(k=int(np.argmax(result.k.values)))
    k = float(one.k)
    told = (
        f"With {k:g} labels per sample on average, average-{k:g} misses {share(one, 'average_k_error')} of the labels."
    )
    curve = result if curve is None else curve  # the budgets of the result are all fractional here
    known = [near for near in (math.floor(k), math.ceil(k)) if near in curve.k.values]
    between = " and ".join(f"top-{near} misses {share(curve.sel(k=float(near)), 'top_k_error')}" for near in known)
    return f"{told} Of top-k, {between}." if between else f"{told} Top-k has no sets of {k:g} labels to compare with."


def bound_sentence(result: xr.Dataset) -> str:
    """Say that nothing follows for the gain from scores that are no probabilities; nothing where they are."""
    if are_probabilities(result):
        return ""
    return "These scores are no probabilities: no bound on the gain follows from them, and the pictures only describe them."


def shared_out(quartiles: tuple[int, int, int]) -> str:
    """Return quartiles of set sizes in words.

    Examples
    --------
    >>> shared_out((0, 1, 3))
    'a quarter of the sets have at most 0 labels, half at most 1, three quarters at most 3'

    """
    first, second, third = (f"{size:,}" for size in quartiles)
    labels = "label" if first == "1" else "labels"
    return f"a quarter of the sets have at most {first} {labels}, half at most {second}, three quarters at most {third}"


def error_words(one: xr.Dataset, is_clear: bool) -> str:
    """Return both errors of an integer budget and the gain in words; nothing without labels."""
    k = f"{float(one.k):g}"
    average, top = share(one, "average_k_error"), share(one, "top_k_error")
    if not average:
        return ""
    gain = share(one, "relative_gain", 1, "+")
    clear = "" if is_clear else ", no clear difference"
    points = percent(float(one.adaptive_gain)).replace("%", "points")
    told = f"gain {gain}{clear}" if gain else f"gain {points}"
    return f"top-{k} misses {top}, average-{k} {average}: {told}"
