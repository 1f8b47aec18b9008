"""The options of utilities of sets."""

from __future__ import annotations

import functools
import pathlib
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Unpack

import click

from ..errors import OptionError
from .clusters import ClusterChoice, cluster, cluster_options
from .group import Command
from .parameters import (
    BY,
    CLUSTERS,
    Existing,
    SampleChoice,
    Shared,
    StoreChoice,
    activation_options,
    budget_option,
    checkpoint_options,
    checkpoint_place,
    json_option,
    labelled_store_options,
    missing_option,
    nan_option,
    open_column,
    out_options,
    overwrite_option,
    parse_storage_options,
    quiet_option,
    sample_options,
    store_options,
    ties_option,
)
from .printing import ResultsFolder, look, print_json, remark, shows_progress, tell

if TYPE_CHECKING:
    from ..api.options import NanPolicy, Ties
    from ..results.datasets import Result


@dataclass(frozen=True)
class UtilityChoice:
    """Which utilities of sets are asked for."""

    names: tuple[str, ...]
    beta: float | None
    cost: float | None
    cost_of: str | None

    def __post_init__(self) -> None:
        given = [name for name in ("beta", "cost", "cost_of") if getattr(self, name) is not None]
        if given and not self.names:
            option = f"--{given[0].replace('_', '-')}"
            raise OptionError(f"{option} must come with --utility; got it alone. Add --utility f.")
        if self.beta is not None and "f" not in self.names:
            raise OptionError(f"--beta must come with --utility f; got --utility {self.names[0]}. Leave it out.")

    def of(self, result: Result) -> Result | None:
        """Return the utilities of a result, along ``utility``; None where none are asked for."""
        from ..api.set_pairs import set_utility

        if not self.names:
            return None
        beta = 1.0 if self.beta is None else self.beta
        return set_utility(result, self.names, beta=beta, cost=self.cost or 0.0, cost_of=self.cost_of or "size")


def utility_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options of utilities, as one argument ``utilities``."""

    @functools.wraps(command)
    def with_utilities(
        *args: object,
        utility: tuple[str, ...],
        beta: float | None,
        cost: float | None,
        cost_of: str | None,
        **rest: object,
    ) -> None:
        command(*args, utilities=UtilityChoice(utility, beta, cost, cost_of), **rest)

    made: Callable[..., None] = with_utilities
    least = click.FloatRange(min=0)
    for option in (
        click.option("--cost-of", type=click.Choice(["size", "log"]), help="What costs: the size, or its logarithm."),
        click.option("--cost", type=least, metavar="RATE", help="What a set's size takes off its utility, such as 0.01."),
        click.option("--beta", type=least, metavar="B", help="Of --utility f: above 1, a miss weighs more than size."),
        click.option(
            "--utility", multiple=True, type=click.Choice(["f", "discounted", "u65", "u80", "accuracy"]),
            help="What sets are worth, too: F-measure, 1 / size, u65, u80; may be given several times.",
        ),
    ):  # fmt: skip
        made = option(made)
    return made


# ``avgk evaluate``, ``avgk threshold`` and ``avgk sets``.


@click.command(cls=Command, short_help="Errors, gains, thresholds and ambiguity of a store or file.")
@labelled_store_options
@activation_options
@sample_options
@budget_option("Budgets: 5 or 1,3,5 or 1:10 or 0.5,2.5.  [default: 1:10, or all classes if fewer]")
@click.option(
    "--max-error", metavar="E",
    help="Instead of -k: the least k whose error is at most this, and the least K of top-k. Two more reads.",
)  # fmt: skip
@click.option(
    "--out",
    type=click.Path(path_type=pathlib.Path),
    help="Write metrics.json, metrics.zarr and report.html here, over those of an earlier run.",
)
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
@utility_options
@click.option("--straddle/--no-straddle", default=True, help="Analyse the ambiguity, too (default), or not.")
@ties_option
@nan_option
@missing_option
@json_option
@quiet_option
@click.option(
    "--on-error", type=click.Choice(["raise", "report"]), default="raise", show_default=True,
    help="Where a chunk cannot be read: stop at once, or read all others and name every bad one.",
)  # fmt: skip
@checkpoint_options
@cluster_options
def evaluate(chosen: StoreChoice, samples: SampleChoice, utilities: UtilityChoice, k: list[Fraction] | None, max_error: str | None, out: pathlib.Path | None, reliability: bool, curve: bool, clusters_name: str | None, by: str | None,
             as_json: bool, straddle: bool, ties: Ties, nan_policy: NanPolicy, missing: str, quiet: bool, on_error: str, checkpoint: str | None, checkpoint_option: tuple[str, ...],
             **where: Unpack[ClusterChoice]) -> None:  # fmt: skip
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
    from ..exact.budgets import DEFAULT_BUDGETS, MOST_IN_CURVE, parse_budget
    from ..plot import best_budget
    from ..report import write_report

    if reliability and out is None:
        raise OptionError(
            "--reliability must come with --out; got it alone. Add --out DIR: it is a section of the report."
        )
    if max_error is not None and k is not None:
        raise OptionError("--max-error must stand for the budgets; got -k, too. Leave one of them out.")
    if by is not None and as_json and out is None:
        raise OptionError(
            "--by must come with --out or without --json; got it for JSON alone. Use avgk breakdown --json."
        )
    folder = nullcontext() if out is None else ResultsFolder(out)
    with folder:
        arrays, existing = chosen.open(missing), samples.open(chosen)
        if by is not None and (arrays.labels is None or arrays.labels.ndim != arrays.scores.ndim - 1):
            raise OptionError("--by must come with class numbers as labels; got none. Name them with --labels NAME.")
        with cluster(where, quiet):
            scores, least = chosen.with_frequencies(arrays, existing).scored(arrays), None
            shared: Shared = {**existing, "nan_policy": nan_policy, "progress": shows_progress(quiet)}
            if max_error is not None:
                least = smallest_k(scores, max_error=max_error, **shared)
                k = [budget for budget in (parse_budget(least.k), Fraction(least.top_k)) if budget]
            start = time.perf_counter()
            options = ScanOptions(
                straddle=straddle,
                ties=ties,
                clusters=open_column(chosen, clusters_name, "--clusters", missing),
                **shared,
                checkpoint=checkpoint_place(checkpoint, checkpoint_option),
            )
            most = MOST_IN_CURVE if curve and out is not None else 0
            result, every = run(scores, None, k or DEFAULT_BUDGETS, options, most=most, on_error=on_error)
            groups = None
            if by is not None:
                column = by if by == "class" else open_column(chosen, by, "--by", missing)
                groups = breakdown(scores, None, best_budget(result), column, **shared)
            seconds = time.perf_counter() - start
            tables = _calibration(scores, result, existing) if reliability else None
            if reliability and tables is None:
                remark("no section on calibration: it needs labels, and scores that are probabilities", quiet)
        result.attrs["store"] = arrays.location
        if least is not None:
            result.attrs |= {"max_error": least.max_error, "smallest_k": least.k, "smallest_top_k": least.top_k}
        if arrays.fingerprint:
            result.attrs["fingerprint"] = arrays.fingerprint
        worth = utilities.of(result)
        if worth is not None:
            result = result.assign(worth.drop_vars("threshold").data_vars).assign_attrs(worth.attrs)
        if isinstance(folder, ResultsFolder):
            parts: dict[str, Any] = {"calibration": tables, "breakdown": groups, "utilities": worth, "curve": every}
            folder.write(result, lambda path: write_report(result, path, seconds=seconds, **parts))
            remark(f"wrote {folder.out / 'report.html'}, metrics.json and metrics.zarr", quiet)
    _show(result, groups, worth, as_json, quiet)


def _show(result: Result, groups: Result | None, worth: Result | None, as_json: bool, quiet: bool) -> None:
    """Print a result, and a breakdown and utilities where there are some."""
    from ..report import print_breakdown, print_table, print_utilities
    from ..results.datasets import kind_sentence, to_json

    click.echo(to_json(result) if as_json else print_table(result, **look()))
    if groups is not None and not as_json:
        click.echo(f"\n{print_breakdown(groups, **look())}")
    if worth is not None and not as_json:
        click.echo(f"\n{print_utilities(worth, **look())}")
    if as_json and kind_sentence(result):  # the table says it
        remark(kind_sentence(result), quiet)
    if not result.attrs["n_labelled"]:
        remark("errors need labels: name them with --labels NAME, or give a file with --labels labels.npy", quiet)


def _calibration(scores: object, result: Result, samples: Existing) -> dict[str, Result] | None:
    """Return how far scores are calibrated, all of them and at the threshold of the budget that a report speaks of.

    None where nothing can be told: there are no labels, or the scores are no probabilities.
    """
    from ..api.calibration.errors import calibration_at_threshold, expected_calibration_error
    from ..plot import best_budget
    from ..results.datasets import ATTRIBUTE, PROBABILITIES

    if not result.attrs["n_labelled"] or result.attrs.get(ATTRIBUTE) != PROBABILITIES:
        return None
    near = calibration_at_threshold(scores, k=best_budget(result), **samples)
    return {"": expected_calibration_error(scores, **samples), "near the threshold": near}


@click.command(cls=Command, short_help="The exact threshold of each budget.")
@store_options
@activation_options
@sample_options
@budget_option("Budgets: 5 or 1,3,5 or 1:10 or 0.5,2.5.", required=True)
@nan_option
@missing_option
@json_option
@quiet_option
@checkpoint_options
@cluster_options
def threshold(chosen: StoreChoice, samples: SampleChoice, k: list[Fraction], as_json: bool, nan_policy: NanPolicy, missing: str,
              quiet: bool, checkpoint: str | None, checkpoint_option: tuple[str, ...],
              **where: Unpack[ClusterChoice]) -> None:  # fmt: skip
    """The threshold of each budget, exactly, with the scores above it, its ties and those kept.

    STORE is a store or a file, as for avgk evaluate.

    Example: avgk threshold scores.zarr -k 5
    """
    from ..api.thresholds import threshold as run

    arrays, existing = chosen.open(missing), samples.open(chosen)
    with cluster(where, quiet):
        place = checkpoint_place(checkpoint, checkpoint_option)
        found = run(
            chosen.with_frequencies(arrays, existing).scored(arrays), k, **existing, nan_policy=nan_policy, progress=shows_progress(quiet),
            checkpoint=place,
        )  # fmt: skip
    names = ("threshold", "n_above", "n_ties", "n_kept")
    rows = [{"k": float(found.k[i]), **{n: found[n][i].item() for n in names}} for i in range(found.sizes["k"])]
    if as_json:
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
@store_options
@activation_options
@sample_options
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
@click.option(
    "--rule", type=click.Choice(["average", "top"]), default="average", show_default=True,
    help="The average-k sets, or the top-k sets.",
)  # fmt: skip
@click.option(
    "--format", "form", type=click.Choice(["booleans", "indices"]), default="booleans", show_default=True,
    help="A matrix sets (sample, class), or class indices with offsets (sample + 1).",
)  # fmt: skip
@out_options
@overwrite_option
@ties_option
@nan_option
@missing_option
@json_option
@quiet_option
@checkpoint_options
@cluster_options
def sets(chosen: StoreChoice, samples: SampleChoice, k: list[Fraction] | None, limit: float | None, predictor_file: str | None, groups_name: str | None, rule: str, form: str,
         out: str, out_option: tuple[str, ...], overwrite: bool, ties: Ties, nan_policy: NanPolicy, missing: str, as_json: bool, quiet: bool,
         checkpoint: str | None, checkpoint_option: tuple[str, ...], **where: Unpack[ClusterChoice]) -> None:  # fmt: skip
    """Write the sets of a budget, or of a threshold, to a new store, out of core.

    STORE is a store or a file, as for avgk evaluate. As indices, the set of sample i is classes[offsets[i]:offsets[i + 1]]. Samples that do not exist have empty sets.

    Example: avgk sets scores.zarr -k 2.5 --out sets.zarr

    Example: avgk sets scores.zarr -k 2.5 --format indices --out ragged.zarr

    Example: avgk sets scores.zarr -k 2 --rule top --out top.zarr

    Example: avgk sets scores.zarr --threshold 0.25 --out above.zarr

    avgk sets scores.zarr --conformal conformal.json --out covered.zarr writes sets with a promised coverage.
    """
    from dataclasses import asdict

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
    counted = samples.ignore_index is not None or chosen.balanced == "labels"
    arrays, existing = chosen.open(missing, with_labels=counted), samples.open(chosen)
    groups = open_column(chosen, groups_name, "--groups", missing)
    choice = SetChoice(rule, k[0] if k else None, limit, ties, nan_policy, predictor, groups)
    with cluster(where, quiet):
        found = write_sets(
            chosen.with_frequencies(arrays, existing).scored(arrays), out, choice, **existing, format=form, overwrite=overwrite, progress=shows_progress(quiet),
            out_options=parse_storage_options(out_option, "--out-option"),
            checkpoint=checkpoint_place(checkpoint, checkpoint_option),
        )  # fmt: skip
    if as_json:
        print_json({"store": shown(out), **asdict(found)})
        return
    what = rule if found.k is None else f"{rule}-{found.k:g}"
    tell(
        f"wrote {what} sets of {found.n_samples:,} samples x {found.n_classes:,} classes to {shown(out)}: "
        f"{found.n_labels:,} labels in all" + ("" if found.threshold is None else f", threshold {found.threshold!r}")
    )
