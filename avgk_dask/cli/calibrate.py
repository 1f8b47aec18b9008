"""``avgk calibrate``, ``avgk transfer`` and ``avgk conformal``: fit on one store, apply to another."""

from __future__ import annotations

import json
import pathlib
import time
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING

import click

from ..errors import OptionError
from ..results.registry import CONFORMAL_METHODS
from .group import Command
from .parameters import (
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
    from ..api.calibration.affine import AffineScaling
    from ..api.calibration.temperature import TemperatureScaling
    from ..api.transfer import Guarantee
    from ..conformal import ConformalPredictor
    from ..results.datasets import Result


@click.command(cls=Command, short_help="Fit a calibrator to logits and their labels.")
@call_options("store labels arrays samples")
@choice_option(
    "--method", words=("temperature", "vector", "matrix"),
    text="Fit one temperature, a weight and a bias per class, or a matrix.",
)  # fmt: skip
@click.option(
    "--out", required=True, type=click.Path(dir_okay=False), help="JSON file to write; an existing one is replaced."
)
@click.option(
    "--penalty", type=float, help="For a matrix: penalty on the mean square of the off-diagonal weights.  [default: 1]"
)
@click.option("--bias-penalty", type=float, help="For a matrix: penalty on the mean square of the bias.  [default: 1]")
@click.option(
    "--max-iterations",
    type=click.IntRange(min=1),
    help="Maximum number of optimiser steps; each is one read.  [default: 500]",
)
@options("missing json quiet cluster")
def calibrate(
    call: Call, method: str, out: str, penalty: float | None, bias_penalty: float | None, max_iterations: int | None
) -> None:
    """Fit a calibrator, which converts logits to probabilities, by minimum NLL, and write it to a file.

    STORE has logits and labels, or is a file of logits with LABELS as for avgk evaluate. Other commands take the file as
    --calibration.

    Example: avgk calibrate logits.zarr --out temperature.json

    Example: avgk calibrate logits.zarr --method vector --out vector.json
    """
    settings = {"penalty": penalty, "bias_penalty": bias_penalty, "max_iterations": max_iterations}
    calibrator = _calibrator(method, {name: value for name, value in settings.items() if value is not None})
    arrays = call.open()
    with call.computing():
        calibrator.fit(arrays, **call.sample_mask(), progress=call.progress)
    calibrator.save(out)
    if calibrator.message:
        call.remark(calibrator.message)
    if not call.as_json:
        print_sentence(f"{calibrator}, {calibrator.n_reads} reads; wrote {out}")
        return
    names = ("nll_before", "nll_after", "n_reads", "n_iterations", "converged", "message")
    fit = {name: getattr(calibrator, name) for name in names}
    print_json({"file": out, "method": method, "temperature": getattr(calibrator, "temperature", None), **fit})


def _calibrator(method: str, options: dict[str, float]) -> TemperatureScaling | AffineScaling:
    """Return an unfitted calibrator, after checking that its method has the options."""
    from ..calibration import MatrixScaling, TemperatureScaling, VectorScaling

    kinds = {"temperature": TemperatureScaling, "vector": VectorScaling, "matrix": MatrixScaling}
    known = {"temperature": (), "vector": ("max_iterations",), "matrix": ("penalty", "bias_penalty", "max_iterations")}
    for name in options:
        if name not in known[method]:
            option = "--" + name.replace("_", "-")
            raise OptionError(f"{option} does not apply to --method {method}. Leave it out.")
    calibrator: TemperatureScaling | AffineScaling = kinds[method](**options)
    return calibrator


@click.command(cls=Command, short_help="Apply the thresholds of one store to another.")
@click.argument("calibration", type=click.Path())
@call_options("store labels arrays activation samples")
@budget_option("Labels per sample on average (budgets): 5 or 1,3,5 or 1:10 or 0.5,2.5.", required=True)
@click.option(
    "--guarantee", type=click.Choice(["expected"]),
    help="expected: raise the thresholds so that the expected set size of a new sample is at most k.",
)  # fmt: skip
@click.option("--calibration-scores", metavar="NAME", help="Name of the scores inside CALIBRATION.")
@click.option(
    "--calibration-option", multiple=True, metavar="KEY=VALUE", help="Storage option of CALIBRATION, such as anon=true."
)
@results_option("Write metrics.json and metrics.zarr to this folder, replacing the results of an earlier run.")
@options("nan missing json quiet checkpoint cluster")
def transfer(
    call: Call, calibration: str, k: list[Fraction], guarantee: Guarantee, calibration_scores: str | None,
    calibration_option: tuple[str, ...], out: pathlib.Path | None,
) -> None:  # fmt: skip
    """Apply the thresholds of one store to another: set sizes and errors, next to the results of STORE's own thresholds.

    The thresholds come from the scores of CALIBRATION, which needs no labels. Both may be files. LABELS are the labels
    of STORE, as for avgk evaluate. --activation and --balanced FILE apply to both; --where, --ignore-index and
    --balanced labels refer to STORE.

    Example: avgk transfer scores.zarr scores.zarr -k 1:5

    Example: avgk transfer scores.zarr scores.zarr -k 5 --guarantee expected
    """
    from ..api.transfer import transfer as run
    from ..report import print_transfer

    with ResultsFolder(out, quiet=call.quiet, with_report=False) as folder:
        storage = parse_storage_options(calibration_option, "--calibration-option")
        arrays, mask = call.open(), call.sample_mask()
        call = call.with_frequencies(arrays, mask)
        other = replace(call, store=calibration, scores_name=calibration_scores, labels=None, storage_options=storage)
        known = other.open(with_labels=False)
        with call.computing():
            result = run(
                other.scores(known, mask), call.scores(arrays, mask), None, k, guarantee=guarantee,
                **mask, **call.run_options, checkpoint=call.checkpoint_place,
            )  # fmt: skip
        result.attrs.update(store=arrays.location, calibration_store=known.location)
        folder.write(result)
    call.show(result, print_transfer)
    if not result.attrs["n_labelled"]:
        call.remark(NO_LABELS)


# ``avgk conformal``.


#: Attributes of a predictor that JSON has.
_ATTRIBUTES = (
    "method", "alpha", "by", "groups", "threshold", "rank", "n_calibration", "n_classes", "penalty", "k_reg", "seed", "reads",
)  # fmt: skip


@click.command(cls=Command, short_help="Sets that hold the label with a guaranteed probability.")
@call_options("calibration arrays")
@click.argument("new_store", type=click.Path(), metavar="[STORE]", required=False)
@options("activation samples")
@click.option(
    "--alpha",
    default="0.1",
    show_default=True,
    metavar="A",
    help="Allowed error: the share of sets that may miss the label.",
)
@choice_option(
    "--method", words=tuple(CONFORMAL_METHODS),
    text="Build sets by scores (lac), cumulative probabilities (aps), cumulative probabilities with a penalty on late "
        "ranks (raps), or ranks (top_k).",
)  # fmt: skip
@click.option("--by", metavar="NAME", help=f"Fit one threshold for each: {GROUPS}")
@click.option("--new-by", metavar="NAME", help="Groups of STORE, if --by names only the groups of CALIBRATION.")
@click.option("--penalty", metavar="P", help="For raps: penalty for each rank beyond --k-reg.  [default: 0.01]")
@click.option("--k-reg", type=click.IntRange(min=0), help="For raps: number of ranks without a penalty.  [default: 5]")
@click.option(
    "--seed", type=click.IntRange(min=0), help="For aps and raps: randomise the sets, which makes them smaller."
)
@click.option("--new-labels", metavar="NAME", help="Labels of STORE, if --labels names only the labels of CALIBRATION.")
@click.option(
    "--out", type=click.Path(dir_okay=False), help="Write the predictor to this JSON file; an existing one is replaced."
)
@click.option(
    "--report",
    type=click.Path(dir_okay=False),
    help="Write coverage and sizes of the sets of STORE to this HTML file; an existing one is replaced.",
)
@options("nan missing json quiet cluster")
def conformal(
    call: Call, new_store: str | None, alpha: str, method: str, by: str | None, new_by: str | None, penalty: str | None,
    k_reg: int | None, seed: int | None, new_labels: str | None, out: str | None, report: str | None,
) -> None:  # fmt: skip
    """Find the threshold whose sets hold the label of a new sample with probability 1 - alpha.

    CALIBRATION has scores and labels. If STORE is given, the sets of its samples are evaluated: coverage, whether that is as
    expected, and sizes. Both may be files, as for avgk evaluate. --scores, --labels, --activation, --where and similar options
    apply to both.

    Example: avgk conformal scores.zarr --alpha 0.1 --out sets.json

    Example: avgk conformal scores.zarr scores.zarr --method aps --seed 0

    Example: avgk conformal scores.zarr scores.zarr --alpha 0.5 --by class

    Example: avgk conformal scores.zarr scores.zarr --by labels --report page.html
    """
    from ..conformal import calibrate
    from ..report import write_coverage

    _check_options(call, new_store, by, new_by, new_labels, report)
    arrays, mask = call.open(), call.sample_mask()
    groups = call.groups(by)
    with call.computing():
        start = time.perf_counter()
        call = call.with_frequencies(arrays, mask)
        other = replace(call, store=new_store or call.store, labels=new_labels or call.labels)
        opened = None if new_store is None else other.open()
        by_group = opened is not None and by not in (None, "class")
        new_groups = other.column(new_by or by, "--new-by") if by_group else None
        predictor = calibrate(
            call.scores(arrays, mask), None, alpha, method, groups, seed, penalty=penalty, k_reg=k_reg,
            **mask, **call.run_options,
        )  # fmt: skip
        if out is not None:
            predictor.save(out)
            call.remark(f"wrote {out}")
        result = None
        if opened is not None:
            mask = other.sample_mask()
            result = predictor.evaluate(other.scores(opened, mask), groups=new_groups, **mask, **call.run_options)
            result.attrs["store"] = opened.location
            if report is not None:
                write_coverage(result, report, seconds=time.perf_counter() - start)
                call.remark(f"wrote {report}")
    _print(predictor, result, out, call.as_json)


def _check_options(
    call: Call, new_store: str | None, by: str | None, new_by: str | None, new_labels: str | None, report: str | None
) -> None:
    """Check that options of a second store, its labels and its groups apply."""
    from ..credentials import redact
    from ..files import is_row_file

    if report is not None and new_store is None:
        raise OptionError("--report needs STORE, whose sets it describes. Add a store.")
    if new_by is not None and (new_store is None or by in (None, "class")):
        raise OptionError("--new-by needs STORE and --by NAME. Add them, or leave it out.")
    if new_store is not None and new_by is None and by is not None and is_row_file(by):
        raise OptionError(f"--by {redact(by)} has the groups of CALIBRATION only. Name those of STORE with --new-by.")
    if new_store is not None and new_labels is None and call.labels is not None and is_row_file(call.labels):
        raise OptionError(
            "--labels names a file with the labels of CALIBRATION only. Name those of STORE with --new-labels."
        )


def _print(predictor: ConformalPredictor, result: Result | None, out: str | None, as_json: bool) -> None:
    from ..report import print_coverage
    from ..results.datasets import to_json

    if not as_json:
        print_sentence(repr(predictor).partition(": ")[2])
        if result is not None:
            click.echo(f"\n{print_coverage(result, **text_layout())}")
        return
    values = ((name, getattr(predictor, name)) for name in _ATTRIBUTES)
    attributes = {name: value.tolist() if hasattr(value, "tolist") else value for name, value in values}
    print_json({"file": out, **attributes, "result": None if result is None else json.loads(to_json(result))})
