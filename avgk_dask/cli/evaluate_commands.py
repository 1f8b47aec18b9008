"""``avgk evaluate``, ``avgk threshold`` and ``avgk sets``."""

from __future__ import annotations

import pathlib
import time
from contextlib import nullcontext
from fractions import Fraction
from typing import TYPE_CHECKING, Unpack

import click

from ..errors import OptionError
from .clusters import ClusterChoice, cluster, cluster_options
from .group import Command
from .parameters import (
    BY,
    CLUSTERS,
    Existing,
    SampleChoice,
    StoreChoice,
    activation_options,
    budget_option,
    checkpoint_options,
    checkpoint_place,
    json_option,
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
from .printing import print_json, remark, shows_progress
from .result_files import ResultsFolder

if TYPE_CHECKING:
    from ..api.smallest_budgets import SmallestK
    from ..results.datasets import Result
    from ..store import StoredArrays


@click.command(cls=Command, short_help="Errors, gains, thresholds and ambiguity of a store.")
@store_options
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
@click.option("--clusters", "clusters_name", metavar="NAME", help=CLUSTERS)
@click.option(
    "--by",
    metavar="NAME",
    help=f"{BY} The worst for the budget of the headline are in the text and the report, for one more read.",
)
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
def evaluate(chosen: StoreChoice, samples: SampleChoice, k: list[Fraction] | None, max_error: str | None, out: pathlib.Path | None, reliability: bool, clusters_name: str | None, by: str | None,
             as_json: bool, straddle: bool, ties: str, nan_policy: str, missing: str, quiet: bool, on_error: str, checkpoint: str | None, checkpoint_option: tuple[str, ...],
             **where: Unpack[ClusterChoice]) -> None:  # fmt: skip
    """Thresholds, errors, gains, set sizes and ambiguity of a store, all budgets in one scan.

    STORE is the path or URL of a Zarr store; avgk ingest makes one of a file.

    Example: avgk evaluate scores.zarr -k 1:10 --out results

    Example: avgk evaluate scores.zarr --labels labels.npy --no-straddle

    Example: avgk evaluate logits.zarr --activation softmax --temperature 1.5

    Example: avgk evaluate scores.zarr --max-error 0.01

    Example: avgk evaluate scores.zarr --checkpoint found --workers 2
    """
    from ..api.evaluation import evaluate as run
    from ..exact.budgets import DEFAULT_BUDGETS
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
        arrays = chosen.open(missing)
        if by is not None and (arrays.labels is None or arrays.labels.ndim != arrays.scores.ndim - 1):
            raise OptionError("--by must come with class numbers as labels; got none. Name them with --labels NAME.")
        with cluster(where, quiet):
            least = None
            if max_error is not None:
                least = _least(
                    chosen.scored(arrays), max_error, samples.open(chosen), nan_policy, shows_progress(quiet)
                )
                k = [budget for budget in (Fraction(least.budget, least.n_samples), Fraction(least.top_k)) if budget]
            start = time.perf_counter()
            result = run(
                chosen.scored(arrays),
                None,
                k or DEFAULT_BUDGETS,
                **samples.open(chosen),
                straddle=straddle,
                ties=ties,
                clusters=open_column(chosen, clusters_name, "--clusters"),
                nan_policy=nan_policy,
                progress=shows_progress(quiet),
                checkpoint=checkpoint_place(checkpoint, checkpoint_option),
                on_error=on_error,
            )
            groups = None if by is None else _breakdown(chosen, arrays, result, by, samples, nan_policy, quiet)
            seconds = time.perf_counter() - start
            tables = _calibration(chosen.scored(arrays), result, samples.open(chosen)) if reliability else None
            if reliability and tables is None:
                remark("no section on calibration: it needs labels, and scores that are probabilities", quiet)
        result.attrs["store"] = arrays.location
        if least is not None:
            result.attrs |= {"max_error": least.max_error, "smallest_k": least.k, "smallest_top_k": least.top_k}
        if arrays.fingerprint:
            result.attrs["fingerprint"] = arrays.fingerprint
        if isinstance(folder, ResultsFolder):
            folder.write(
                result, lambda path: write_report(result, path, seconds=seconds, calibration=tables, breakdown=groups)
            )
            remark(f"wrote {folder.out / 'report.html'}, metrics.json and metrics.zarr", quiet)
    _show(result, groups, as_json, quiet)


def _show(result: Result, groups: Result | None, as_json: bool, quiet: bool) -> None:
    """Print a result, and a breakdown where there is one."""
    from ..report import print_breakdown, print_table
    from ..results.json_text import to_json
    from ..results.score_kinds import kind_sentence

    click.echo(to_json(result) if as_json else print_table(result))
    if groups is not None and not as_json:
        click.echo(f"\n{print_breakdown(groups)}")
    if as_json and kind_sentence(result):  # the table says it
        remark(kind_sentence(result), quiet)
    if not result.attrs["n_labelled"]:
        remark("errors need labels: name them with --labels NAME, or give a file with --labels labels.npy", quiet)


def _breakdown(
    chosen: StoreChoice,
    arrays: StoredArrays,
    result: Result,
    by: str,
    samples: SampleChoice,
    nan_policy: str,
    quiet: bool,
) -> Result:
    """Return the breakdown of the budget that a result speaks of."""
    from ..api.breakdowns import breakdown
    from ..plot import best_budget

    groups = by if by == "class" else open_column(chosen, by, "--by")
    return breakdown(
        chosen.scored(arrays), None, best_budget(result), groups, **samples.open(chosen), nan_policy=nan_policy,
        progress=shows_progress(quiet),
    )  # fmt: skip


def _least(scores: object, max_error: str, samples: Existing, nan_policy: str, progress: bool | None) -> SmallestK:
    """Return the least budgets for an error."""
    from ..api.smallest_budgets import smallest_k

    return smallest_k(scores, max_error=max_error, **samples, nan_policy=nan_policy, progress=progress)


def _calibration(scores: object, result: Result, samples: Existing) -> dict[str, Result] | None:
    """Return how far scores are calibrated, all of them and at the threshold of the budget that a report speaks of.

    None where nothing can be told: there are no labels, or the scores are no probabilities.
    """
    from ..api.calibration_errors import calibration_at_threshold, expected_calibration_error
    from ..plot import best_budget
    from ..results.score_kinds import ATTRIBUTE, PROBABILITIES

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
def threshold(chosen: StoreChoice, samples: SampleChoice, k: list[Fraction], as_json: bool, nan_policy: str, missing: str,
              quiet: bool, checkpoint: str | None, checkpoint_option: tuple[str, ...],
              **where: Unpack[ClusterChoice]) -> None:  # fmt: skip
    """The threshold of each budget, exactly, with the scores above it, its ties and those kept.

    Example: avgk threshold scores.zarr -k 5
    """
    from ..api.thresholds import threshold as run

    arrays = chosen.open(missing)
    with cluster(where, quiet):
        place = checkpoint_place(checkpoint, checkpoint_option)
        found = run(
            chosen.scored(arrays), k, **samples.open(chosen), nan_policy=nan_policy, progress=shows_progress(quiet),
            checkpoint=place,
        )  # fmt: skip
    names = ("threshold", "n_above", "n_ties", "n_kept")
    rows = [{"k": float(found.k[i]), **{n: found[n][i].item() for n in names}} for i in range(found.sizes["k"])]
    if as_json:
        print_json(rows)
        return
    for row in rows:
        click.echo(f"k = {row['k']:g}: threshold {row['threshold']!r}, above {row['n_above']}, "
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
def sets(chosen: StoreChoice, samples: SampleChoice, k: list[Fraction] | None, limit: float | None, rule: str, form: str,
         out: str, out_option: tuple[str, ...], overwrite: bool, ties: str, nan_policy: str, missing: str, as_json: bool, quiet: bool,
         checkpoint: str | None, checkpoint_option: tuple[str, ...], **where: Unpack[ClusterChoice]) -> None:  # fmt: skip
    """Write the sets of a budget, or of a threshold, to a new store, out of core.

    As indices, the set of sample i is classes[offsets[i]:offsets[i + 1]]. Samples that do not exist have empty sets.

    Example: avgk sets scores.zarr -k 2.5 --out sets.zarr

    Example: avgk sets scores.zarr -k 2.5 --format indices --out ragged.zarr

    Example: avgk sets scores.zarr -k 2 --rule top --out top.zarr

    Example: avgk sets scores.zarr --threshold 0.25 --out above.zarr
    """
    from dataclasses import asdict

    from ..api.written_sets import SetChoice, write_sets
    from ..store import shown

    if (k is None) == (limit is None) or (limit is not None and rule == "top"):
        raise OptionError("sets must be those of one budget (-k 5) or of one threshold (--threshold 0.25).")
    if k is not None and len(k) != 1:
        raise OptionError(f"-k must be one budget for sets; got {len(k)}. Write one store for each.")
    arrays = chosen.open(missing, with_labels=samples.ignore_index is not None)
    choice = SetChoice(rule if limit is None else "threshold", k[0] if k else None, limit, ties, nan_policy)
    with cluster(where, quiet):
        found = write_sets(
            chosen.scored(arrays), out, choice, **samples.open(chosen), format=form, overwrite=overwrite, progress=shows_progress(quiet),
            out_options=parse_storage_options(out_option, "--out-option"),
            checkpoint=checkpoint_place(checkpoint, checkpoint_option),
        )  # fmt: skip
    if as_json:
        print_json({"store": shown(out), **asdict(found)})
        return
    what = "threshold" if found.k is None else f"{rule}-{found.k:g}"
    click.echo(
        f"wrote {what} sets of {found.n_samples:,} samples x {found.n_classes:,} classes to {shown(out)}: "
        f"{found.n_labels:,} labels in all" + ("" if found.threshold is None else f", threshold {found.threshold!r}")
    )
