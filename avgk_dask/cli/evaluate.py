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
    BY,
    CLUSTERS,
    NO_LABELS,
    Call,
    budget_option,
    call_options,
    choice_option,
    options,
    parse_storage_options,
    results_option,
)
from .printing import ResultsFolder, look, print_json, tell

if TYPE_CHECKING:
    from ..results.datasets import Result


_LEAST_0 = click.FloatRange(min=0)


@click.command(cls=Command, short_help="Errors, gains, thresholds and ambiguity of a store or file.")
@call_options("store labels arrays activation samples")
@budget_option("Budgets: 5 or 1,3,5 or 1:10 or 0.5,2.5.  [default: 1:10, or all classes if fewer]")
@click.option(
    "--max-error", metavar="E",
    help="Instead of -k: the least k whose error is at most this, and the least K of top-k. Two more reads.",
)  # fmt: skip
@results_option("Write metrics.json, metrics.zarr and report.html here, over those of an earlier run.")
@click.option(
    "--reliability", is_flag=True, help="With --out: a section on calibration in the report, for three more reads."
)
@click.option(
    "--curve/--no-curve",
    default=True,
    help="With --out: every integer K up to 100 in the report where that is cheap (default), or only those of -k.",
)
@click.option("--clusters", "clusters_name", metavar="NAME", help=CLUSTERS)
@click.option(
    "--by",
    metavar="NAME",
    help=f"{BY} The worst for the budget of the headline are in the text and the report, for one more read.",
)
@click.option(
    "--utility", multiple=True, type=click.Choice(["f", "discounted", "u65", "u80", "accuracy"]),
    help="What sets are worth, too: F-measure, 1 / size, u65, u80; may be given several times.",
)  # fmt: skip
@click.option("--beta", type=_LEAST_0, metavar="B", help="Of --utility f: above 1, a miss weighs more than size.")
@click.option("--cost", type=_LEAST_0, metavar="RATE", help="What a set's size takes off its utility, such as 0.01.")
@click.option("--cost-of", type=click.Choice(["size", "log"]), help="What costs: the size, or its logarithm.")
@click.option("--straddle/--no-straddle", default=True, help="Analyse the ambiguity, too (default), or not.")
@options("ties nan missing json quiet checkpoint cluster")
def evaluate(
    call: Call, k: list[Fraction] | None, max_error: str | None, out: pathlib.Path | None, reliability: bool, curve: bool,
    clusters_name: str | None, by: str | None, utility: tuple[str, ...], straddle: bool, **rates: Any,
) -> None:  # fmt: skip
    """Thresholds, errors, gains, set sizes and ambiguity of a store, all budgets in one scan.

    STORE is a Zarr store (a path or URL), or a file: .npy, .npz, .parquet, .csv, .arrow or .feather. LABELS is a file or store of
    their own, if they have one.

    Example: avgk evaluate scores.npy labels.npy

    Example: avgk evaluate scores.zarr -k 1:10 --out results

    Example: avgk evaluate scores.zarr --labels labels.npy --no-straddle

    Example: avgk evaluate logits.zarr --activation softmax --temperature 1.5

    Example: avgk evaluate scores.zarr --max-error 0.01

    Example: avgk evaluate scores.zarr --utility f --utility u65 --cost 0.01

    Example: avgk evaluate scores.zarr --checkpoint found --workers 2
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
        raise OptionError(
            "--reliability must come with --out; got it alone. Add --out DIR: it is a section of the report."
        )
    if max_error is not None and k is not None:
        raise OptionError("--max-error must stand for the budgets; got -k, too. Leave one of them out.")
    if by is not None and call.as_json and out is None:
        raise OptionError(
            "--by must come with --out or without --json; got it for JSON alone. Use avgk breakdown --json."
        )
    with ResultsFolder(out, quiet=call.quiet) as folder:
        arrays, existing = call.open(), call.existing()
        if by is not None and (arrays.labels is None or arrays.labels.ndim != arrays.scores.ndim - 1):
            raise OptionError("--by must come with class numbers as labels; got none. Name them with --labels NAME.")
        with call.computing():
            scores, least = call.scored(arrays, existing), None
            shared = existing | call.how
            if max_error is not None:
                least = smallest_k(scores, max_error=max_error, **shared)
                k = [budget for budget in (parse_budget(least.k), Fraction(least.top_k)) if budget]
            start = time.perf_counter()
            clusters = call.column(clusters_name, "--clusters")
            scan = ScanOptions(
                straddle=straddle, ties=call.ties, clusters=clusters, **shared, checkpoint=call.checkpoint_place
            )
            most = MOST_IN_CURVE if curve and out is not None else 0
            result, every = run(scores, None, k or DEFAULT_BUDGETS, scan, most=most)
            groups = None if by is None else breakdown(scores, None, best_budget(result), call.groups(by), **shared)
            seconds = time.perf_counter() - start
            tables = _calibration(scores, result, existing) if reliability else None
            if reliability and tables is None:
                call.remark("no section on calibration: it needs labels, and scores that are probabilities")
        result.attrs["store"] = arrays.location
        if least is not None:
            result.attrs |= {"max_error": least.max_error, "smallest_k": least.k, "smallest_top_k": least.top_k}
        if arrays.fingerprint:
            result.attrs["fingerprint"] = arrays.fingerprint
        worth = None
        if utility:
            worth = set_utility(result, utility, **{name: rate for name, rate in rates.items() if rate is not None})
            result = result.assign(worth.drop_vars("threshold").data_vars).assign_attrs(worth.attrs)
        parts = {"calibration": tables, "breakdown": groups, "utilities": worth, "curve": every}
        folder.write(result, write_report, seconds=seconds, **parts)
    call.show(result, print_table)
    if groups is not None and not call.as_json:
        click.echo(f"\n{print_breakdown(groups, **look())}")
    if worth is not None and not call.as_json:
        click.echo(f"\n{print_utilities(worth, **look())}")
    if call.as_json and kind_sentence(result):  # the table says it
        call.remark(kind_sentence(result))
    if not result.attrs["n_labelled"]:
        call.remark(NO_LABELS)


def _check_utilities(utility: tuple[str, ...], rates: dict[str, object]) -> None:
    """Refuse rates of utilities (beta, cost, cost_of) that were not asked for."""
    first = next((name for name, rate in rates.items() if rate is not None), None)
    if first is not None and not utility:
        raise OptionError(f"--{first.replace('_', '-')} must come with --utility; got it alone. Add --utility f.")
    if rates["beta"] is not None and "f" not in utility:
        raise OptionError(f"--beta must come with --utility f; got --utility {utility[0]}. Leave it out.")


def _calibration(scores: object, result: Result, existing: dict[str, Any]) -> dict[str, Result] | None:
    """Return how far scores are calibrated, all of them and at the threshold of the budget that a report speaks of.

    None where nothing can be told: there are no labels, or the scores are no probabilities.
    """
    from ..api.calibration.errors import calibration_at_threshold, expected_calibration_error
    from ..plot import best_budget
    from ..results.datasets import ATTRIBUTE, PROBABILITIES

    if not result.attrs["n_labelled"] or result.attrs.get(ATTRIBUTE) != PROBABILITIES:
        return None
    near = calibration_at_threshold(scores, k=best_budget(result), **existing)
    return {"": expected_calibration_error(scores, **existing), "near the threshold": near}


@click.command(cls=Command, short_help="The exact threshold of each budget.")
@call_options("store arrays activation samples")
@budget_option("Budgets: 5 or 1,3,5 or 1:10 or 0.5,2.5.", required=True)
@options("nan missing json quiet checkpoint cluster")
def threshold(call: Call, k: list[Fraction]) -> None:
    """The threshold of each budget, exactly, with the scores above it, its ties and those kept.

    STORE is a store or a file, as for avgk evaluate.

    Example: avgk threshold scores.zarr -k 5
    """
    from ..api.thresholds import threshold as run

    arrays, existing = call.open(), call.existing()
    with call.computing():
        place = call.checkpoint_place
        found = run(call.scored(arrays, existing), k, **existing, **call.how, checkpoint=place)
    names = ("threshold", "n_above", "n_ties", "n_kept")
    rows = [{"k": float(found.k[i]), **{n: found[n][i].item() for n in names}} for i in range(found.sizes["k"])]
    if call.as_json:
        print_json(rows)
        return
    for row in rows:
        tell(f"k = {row['k']:g}: threshold {row['threshold']!r}, above {row['n_above']}, "
             f"ties {row['n_ties']}, kept {row['n_kept']}")  # fmt: skip


class Number(click.ParamType):  # type: ignore[type-arg,unused-ignore]
    """A number: an integer as it is, anything else as a float."""

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
@budget_option("Budget: labels per sample on average, such as 5 or 2.5.")
@click.option("--threshold", "limit", type=Number(), help="Take all scores above this, instead of a budget.")
@click.option(
    "--conformal",
    "predictor_file",
    metavar="FILE",
    help="The sets of the file that avgk conformal wrote, instead of a budget.",
)
@click.option(
    "--groups",
    "groups_name",
    metavar="NAME",
    help="With --conformal by group: name or path, as for --labels, of the groups.",
)
@choice_option(
    "--rule", words=("average", "top"),
    text="The average-k sets, or the top-k sets.",
)  # fmt: skip
@choice_option(
    "--format", "form", words=("booleans", "indices"),
    text="A matrix sets (sample, class), or class indices with offsets (sample + 1).",
)  # fmt: skip
@options("out overwrite ties nan missing json quiet checkpoint cluster")
def sets(
    call: Call, k: list[Fraction] | None, limit: float | None, predictor_file: str | None, groups_name: str | None,
    rule: str, form: str, out: str, out_option: tuple[str, ...], overwrite: bool,
) -> None:  # fmt: skip
    """Write the sets of a budget, or of a threshold, to a new store, out of core.

    STORE is a store or a file, as for avgk evaluate. As indices, the set of sample i is classes[offsets[i]:offsets[i + 1]]. Samples that do not exist have empty sets.

    Example: avgk sets scores.zarr -k 2.5 --out sets.zarr

    Example: avgk sets scores.zarr -k 2.5 --format indices --out ragged.zarr

    Example: avgk sets scores.zarr -k 2 --rule top --out top.zarr

    Example: avgk sets scores.zarr --threshold 0.25 --out above.zarr

    avgk sets scores.zarr --conformal conformal.json --out covered.zarr writes sets with a promised coverage.
    """
    from ..api.written_sets import SetChoice, write_sets
    from ..conformal import load
    from ..store import shown

    if sum(one is not None for one in (k, limit, predictor_file)) != 1 or (k is None and rule == "top"):
        raise OptionError(
            "sets must be those of one budget (-k 5), of one threshold (--threshold 0.25) or of one predictor (--conformal FILE)."
        )
    if k is not None and len(k) != 1:
        raise OptionError(f"-k must be one budget for sets; got {len(k)}. Write one store for each.")
    if groups_name is not None and predictor_file is None:
        raise OptionError("--groups must come with --conformal; got it alone. Leave it out.")
    if predictor_file is not None or limit is not None:
        rule = "conformal" if limit is None else "threshold"
    predictor = None if predictor_file is None else load(predictor_file)
    counted = call.ignore_index is not None or call.balanced == "labels"
    arrays, existing = call.open(with_labels=counted), call.existing()
    groups = call.column(groups_name, "--groups")
    choice = SetChoice(rule, k[0] if k else None, limit, call.ties, call.nan_policy, predictor, groups)
    with call.computing():
        found = write_sets(
            call.scored(arrays, existing), out, choice, **existing, format=form, overwrite=overwrite, progress=call.progress,
            out_options=parse_storage_options(out_option, "--out-option"), checkpoint=call.checkpoint_place,
        )  # fmt: skip
    if call.as_json:
        print_json({"store": shown(out), **asdict(found)})
        return
    what = rule if found.k is None else f"{rule}-{found.k:g}"
    tell(
        f"wrote {what} sets of {found.n_samples:,} samples x {found.n_classes:,} classes to {shown(out)}: "
        f"{found.n_labels:,} labels in all" + ("" if found.threshold is None else f", threshold {found.threshold!r}")
    )
