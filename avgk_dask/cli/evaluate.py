"""``avgk evaluate``, ``avgk threshold`` and ``avgk sets``."""

from __future__ import annotations

import pathlib
import time
from dataclasses import asdict
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import click

from ..errors import OptionError
from .group import Command
from .parameters import (
    CLUSTERS,
    GROUPS,
    NO_LABELS,
    Call,
    budget_option,
    call_options,
    choice_option,
    options,
    parse_storage_options,
    results_option,
)
from .printing import ResultsFolder, print_json, print_sentence, text_layout

if TYPE_CHECKING:
    from ..results.datasets import Result


_LEAST_0 = click.FloatRange(min=0)


@click.command(cls=Command, short_help="Errors, gains, thresholds and set sizes of scores.")
@call_options("store labels arrays activation samples")
@budget_option(
    "Labels per sample on average (budgets): 5 or 1,3,5 or 1:10 or 0.5,2.5.  [default: 1:10, or all classes if fewer]"
)
@click.option(
    "--max-error", metavar="E",
    help="Instead of -k: find the smallest k with at most this error, for average-k and for top-k. Takes two more reads.",
)  # fmt: skip
@results_option(
    "Write metrics.json, metrics.zarr and report.html to this folder, replacing the results of an earlier run."
)
@click.option(
    "--reliability", is_flag=True, help="Add a section on calibration to the report of --out. Takes three more reads."
)
@click.option(
    "--curve/--no-curve",
    default=True,
    help="Let the report of --out cover every integer K up to 100 if that is cheap (default), or only the budgets of -k.",
)
@click.option("--clusters", "clusters_name", metavar="NAME", help=CLUSTERS)
@click.option(
    "--by",
    metavar="NAME",
    help=f"Break errors down by: {GROUPS} Shows the highest errors at the budget of the headline. Takes one more read.",
)
@click.option(
    "--utility", multiple=True, type=click.Choice(["f", "discounted", "u65", "u80", "accuracy"]),
    help="Also compute a utility of the sets: F-measure, 1 / size, u65, u80 or accuracy; repeatable.",
)  # fmt: skip
@click.option("--beta", type=_LEAST_0, metavar="B", help="For --utility f: above 1, a miss counts more than the size.")
@click.option(
    "--cost", type=_LEAST_0, metavar="RATE", help="Cost per label, subtracted from the utility, such as 0.01."
)
@click.option(
    "--cost-of", type=click.Choice(["size", "log"]), help="Apply --cost to the size of a set, or to its logarithm."
)
@click.option(
    "--straddle/--no-straddle", default=True, help="Compute straddle strengths, which explain gains (default), or not."
)
@options("ties nan missing json quiet checkpoint cluster")
def evaluate(
    call: Call, k: list[Fraction] | None, max_error: str | None, out: pathlib.Path | None, reliability: bool, curve: bool,
    clusters_name: str | None, by: str | None, utility: tuple[str, ...], straddle: bool, **rates: Any,
) -> None:  # fmt: skip
    """Compare average-k and top-k: errors, gains, thresholds, set sizes and ambiguity for all budgets.

    STORE is a Zarr store (path or URL) or a file: .npy, .npz, .parquet, .csv, .arrow or .feather. LABELS is a separate file or
    store of the labels, if there is one.

    Example: avgk evaluate scores.npy labels.npy

    Example: avgk evaluate scores.zarr -k 1:10 --out results

    Example: avgk evaluate scores.zarr --labels labels.npy --no-straddle

    Example: avgk evaluate logits.zarr --activation softmax --temperature 1.5

    Example: avgk evaluate scores.zarr --max-error 0.01

    Example: avgk evaluate scores.zarr --utility f --utility u65 --cost 0.01

    Example: avgk evaluate scores.zarr --checkpoint progress --workers 2
    """
    from ..api.breakdowns import breakdown
    from ..api.curves import smallest_k
    from ..api.evaluate import evaluate_with_curve as run
    from ..api.options import ScanOptions
    from ..api.set_pairs import set_utility
    from ..exact.budgets import DEFAULT_BUDGETS, MOST_IN_CURVE, parse_budget
    from ..plot import best_budget
    from ..report import print_breakdown, print_table, print_utilities, write_report
    from ..results.datasets import kind_sentence

    _check_utilities(utility, rates)
    if reliability and out is None:
        raise OptionError("--reliability needs --out, because it is a section of the report. Add --out DIR.")
    if max_error is not None and k is not None:
        raise OptionError("--max-error and -k are mutually exclusive. Leave one of them out.")
    if by is not None and call.as_json and out is None:
        raise OptionError("--by with --json needs --out. Add --out DIR, or use avgk breakdown --json.")
    with ResultsFolder(out, quiet=call.quiet) as folder:
        arrays, mask = call.open(), call.sample_mask()
        if by is not None and (arrays.labels is None or arrays.labels.ndim != arrays.scores.ndim - 1):
            raise OptionError("--by needs class numbers as labels. Name them with --labels NAME.")
        with call.computing():
            scores, least = call.scores(arrays, mask), None
            shared = mask | call.run_options
            if max_error is not None:
                least = smallest_k(scores, max_error=max_error, **shared)
                k = [budget for budget in (parse_budget(least.k), Fraction(least.top_k)) if budget]
            start = time.perf_counter()
            clusters = call.column(clusters_name, "--clusters")
            scan = ScanOptions(
                straddle=straddle, ties=call.ties, clusters=clusters, **shared, checkpoint=call.checkpoint_place
            )
            most = MOST_IN_CURVE if curve and out is not None else 0
            result, full_curve = run(scores, None, k or DEFAULT_BUDGETS, scan, most=most)
            groups = None if by is None else breakdown(scores, None, best_budget(result), call.groups(by), **shared)
            seconds = time.perf_counter() - start
            tables = _calibration(scores, result, mask) if reliability else None
            if reliability and tables is None:
                call.remark("the report has no section on calibration, which needs labels and probabilities as scores")
        result.attrs["store"] = arrays.location
        if least is not None:
            result.attrs |= {"max_error": least.max_error, "smallest_k": least.k, "smallest_top_k": least.top_k}
        if arrays.fingerprint:
            result.attrs["fingerprint"] = arrays.fingerprint
        utilities = None
        if utility:
            utilities = set_utility(result, utility, **{name: rate for name, rate in rates.items() if rate is not None})
            result = result.assign(utilities.drop_vars("threshold").data_vars).assign_attrs(utilities.attrs)
        parts = {"calibration": tables, "breakdown": groups, "utilities": utilities, "curve": full_curve}
        folder.write(result, write_report, seconds=seconds, **parts)
    call.show(result, print_table)
    if groups is not None and not call.as_json:
        click.echo(f"\n{print_breakdown(groups, **text_layout())}")
    if utilities is not None and not call.as_json:
        click.echo(f"\n{print_utilities(utilities, **text_layout())}")
    if call.as_json and kind_sentence(result):  # the text output says it already
        call.remark(kind_sentence(result))
    if not result.attrs["n_labelled"]:
        call.remark(NO_LABELS)


def _check_utilities(utility: tuple[str, ...], rates: dict[str, object]) -> None:
    """Check that the rates (beta, cost, cost_of) have a utility to apply to."""
    first = next((name for name, rate in rates.items() if rate is not None), None)
    if first is not None and not utility:
        raise OptionError(f"--{first.replace('_', '-')} needs --utility. Add --utility f.")
    if rates["beta"] is not None and "f" not in utility:
        raise OptionError(f"--beta needs --utility f; got --utility {utility[0]}. Leave it out.")


def _calibration(scores: object, result: Result, mask: dict[str, Any]) -> dict[str, Result] | None:
    """Return calibration tables of the scores and near the threshold of the headline, or None without labels or probabilities."""
    from ..api.calibration.errors import calibration_at_threshold, expected_calibration_error
    from ..plot import best_budget
    from ..results.datasets import ATTRIBUTE, PROBABILITIES

    if not result.attrs["n_labelled"] or result.attrs.get(ATTRIBUTE) != PROBABILITIES:
        return None
    near = calibration_at_threshold(scores, k=best_budget(result), **mask)
    return {"": expected_calibration_error(scores, **mask), "near the threshold": near}


@click.command(cls=Command, short_help="The exact threshold of each budget.")
@call_options("store arrays activation samples")
@budget_option("Labels per sample on average (budgets): 5 or 1,3,5 or 1:10 or 0.5,2.5.", required=True)
@options("nan missing json quiet checkpoint cluster")
def threshold(call: Call, k: list[Fraction]) -> None:
    """Print the exact threshold of each budget: scores above it, ties (scores equal to it) and ties kept in the sets.

    STORE is a store or a file, as for avgk evaluate.

    Example: avgk threshold scores.zarr -k 5
    """
    from ..api.thresholds import threshold as run

    arrays, mask = call.open(), call.sample_mask()
    with call.computing():
        place = call.checkpoint_place
        thresholds = run(call.scores(arrays, mask), k, **mask, **call.run_options, checkpoint=place)
    names = ("threshold", "n_above", "n_ties", "n_kept")
    rows = [
        {"k": float(thresholds.k[i]), **{n: thresholds[n][i].item() for n in names}}
        for i in range(thresholds.sizes["k"])
    ]
    if call.as_json:
        print_json(rows)
        return
    for row in rows:
        print_sentence(f"k = {row['k']:g}: threshold {row['threshold']!r}, {row['n_above']:,} scores above it, "
             f"{row['n_ties']:,} equal to it (ties), {row['n_kept']:,} of these kept")  # fmt: skip


class Number(click.ParamType):  # type: ignore[type-arg,unused-ignore]
    """An integer or a float."""

    name = "VALUE"

    def convert(self, value: str | float, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the number of a text."""
        for kind in (int, float):
            try:
                return kind(value)
            except ValueError:
                continue
        return self.fail(f"a threshold must be a number such as 0.25; got {value!r}.", param, ctx)


@click.command(cls=Command, short_help="Write average-k or top-k sets to a store.")
@call_options("store arrays activation samples")
@budget_option("Labels per sample on average (budget), such as 5 or 2.5.")
@click.option("--threshold", "limit", type=Number(), help="Instead of -k: include all scores above this.")
@click.option(
    "--conformal",
    "predictor_file",
    metavar="FILE",
    help="Instead of -k: conformal sets, from the file written by avgk conformal.",
)
@click.option(
    "--groups",
    "groups_name",
    metavar="NAME",
    help="Groups of the samples, if the --conformal file has a threshold per group (name or path, as for --labels).",
)
@choice_option(
    "--rule", words=("average", "top"),
    text="Average-k or top-k sets.",
)  # fmt: skip
@choice_option(
    "--format", "form", words=("booleans", "indices"),
    text="A boolean matrix (sample, class), or class indices with offsets.",
)  # fmt: skip
@options("out overwrite ties nan missing json quiet checkpoint cluster")
def sets(
    call: Call, k: list[Fraction] | None, limit: float | None, predictor_file: str | None, groups_name: str | None,
    rule: str, form: str, out: str, out_option: tuple[str, ...], overwrite: bool,
) -> None:  # fmt: skip
    """Write the sets of a budget, a threshold or a conformal predictor to a new store, out of core.

    STORE is a store or a file, as for avgk evaluate. With --format indices, the set of sample i is
    classes[offsets[i]:offsets[i + 1]]. Excluded samples have empty sets.

    Example: avgk sets scores.zarr -k 2.5 --out sets.zarr

    Example: avgk sets scores.zarr -k 2.5 --format indices --out ragged.zarr

    Example: avgk sets scores.zarr -k 2 --rule top --out top.zarr

    Example: avgk sets scores.zarr --threshold 0.25 --out above.zarr

    avgk sets scores.zarr --conformal conformal.json --out covered.zarr writes sets with guaranteed coverage.
    """
    from ..api.written_sets import SetChoice, write_sets
    from ..conformal import load
    from ..store.where.addresses import redact

    if sum(one is not None for one in (k, limit, predictor_file)) != 1 or (k is None and rule == "top"):
        raise OptionError(
            "pass exactly one of a budget (-k 5), a threshold (--threshold 0.25) and a predictor (--conformal FILE)."
        )
    if k is not None and len(k) != 1:
        raise OptionError(f"-k must be one budget for sets; got {len(k)}. Write one store for each.")
    if groups_name is not None and predictor_file is None:
        raise OptionError("--groups needs --conformal. Leave it out.")
    if predictor_file is not None or limit is not None:
        rule = "conformal" if limit is None else "threshold"
    predictor = None if predictor_file is None else load(predictor_file)
    counted = call.ignore_index is not None or call.balanced == "labels"
    arrays, mask = call.open(with_labels=counted), call.sample_mask()
    groups = call.column(groups_name, "--groups")
    choice = SetChoice(rule, k[0] if k else None, limit, call.ties, call.nan_policy, predictor, groups)
    with call.computing():
        written = write_sets(
            call.scores(arrays, mask), out, choice, **mask, format=form, overwrite=overwrite, progress=call.progress,
            out_options=parse_storage_options(out_option, "--out-option"), checkpoint=call.checkpoint_place,
        )  # fmt: skip
    if call.as_json:
        print_json({"store": redact(out), **asdict(written)})
        return
    name = rule if written.k is None else f"{rule}-{written.k:g}"
    print_sentence(
        f"wrote {name} sets of {written.n_samples:,} samples x {written.n_classes:,} classes to {redact(out)}: "
        f"{written.n_labels:,} labels in total"
        + ("" if written.threshold is None else f", threshold {written.threshold!r}")
    )
