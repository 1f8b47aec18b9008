"""``avgk calibrate``, ``avgk transfer`` and ``avgk conformal``: what is fitted on one store and used on another."""

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
    from ..api.calibration.affine import AffineScaling
    from ..api.calibration.temperature import TemperatureScaling
    from ..api.transfer import Guarantee
    from ..conformal import ConformalPredictor
    from ..results.datasets import Result


@click.command(cls=Command, short_help="Fit a calibrator to logits and their labels.")
@call_options("store labels arrays samples")
@choice_option(
    "--method", words=("temperature", "vector", "matrix"),
    text="One number for all logits, a weight and a bias a class, or a matrix.",
)  # fmt: skip
@click.option(
    "--out",
    required=True,
    type=click.Path(dir_okay=False),
    help="The JSON file to write; one that is there is replaced.",
)
@click.option(
    "--penalty", type=float, help="Times the mean square of the weights off the diagonal, of a matrix.  [default: 1]"
)
@click.option("--bias-penalty", type=float, help="Times the mean square of the bias, of a matrix.  [default: 1]")
@click.option(
    "--max-iterations",
    type=click.IntRange(min=1),
    help="Steps of the optimiser, at most; each is a read.  [default: 500]",
)
@options("missing json quiet cluster")
def calibrate(
    call: Call, method: str, out: str, penalty: float | None, bias_penalty: float | None, max_iterations: int | None
) -> None:
    """Fit what makes probabilities of logits to a calibration store, by the least NLL, and write it to a file.

    STORE has logits and labels, or is a file of logits, as for avgk evaluate, and LABELS has the labels. Other commands take the file as --calibration.

    Example: avgk calibrate logits.zarr --out temperature.json

    Example: avgk calibrate logits.zarr --method vector --out vector.json
    """
    asked = {"penalty": penalty, "bias_penalty": bias_penalty, "max_iterations": max_iterations}
    calibrator = _calibrator(method, {name: value for name, value in asked.items() if value is not None})
    arrays = call.open()
    with call.computing():
        calibrator.fit(arrays, **call.existing(), progress=call.progress)
    calibrator.save(out)
    if calibrator.message:
        call.remark(calibrator.message)
    if not call.as_json:
        tell(f"{calibrator}, {calibrator.n_reads} reads; wrote {out}")
        return
    names = ("nll_before", "nll_after", "n_reads", "n_iterations", "converged", "message")
    told = {name: getattr(calibrator, name) for name in names}
    print_json({"file": out, "method": method, "temperature": getattr(calibrator, "temperature", None), **told})


def _calibrator(method: str, options: dict[str, float]) -> TemperatureScaling | AffineScaling:
    """Return a calibrator to be fitted; options that it does not have are refused."""
    from ..calibration import MatrixScaling, TemperatureScaling, VectorScaling

    kinds = {"temperature": TemperatureScaling, "vector": VectorScaling, "matrix": MatrixScaling}
    known = {"temperature": (), "vector": ("max_iterations",), "matrix": ("penalty", "bias_penalty", "max_iterations")}
    for name in options:
        if name not in known[method]:
            option = "--" + name.replace("_", "-")
            raise OptionError(f"{option} must go with another --method; got {method}. Leave it out.")
    found: TemperatureScaling | AffineScaling = kinds[method](**options)
    return found


@click.command(cls=Command, short_help="Thresholds of one store on another.")
@click.argument("calibration", type=click.Path())
@call_options("store labels arrays activation samples")
@budget_option("Budgets: 5 or 1,3,5 or 1:10 or 0.5,2.5.", required=True)
@click.option(
    "--guarantee", type=click.Choice(["expected"]),
    help="expected: thresholds so high that the expected set size on a new sample is at most k.",
)  # fmt: skip
@click.option("--calibration-scores", metavar="NAME", help="Name of the scores inside CALIBRATION.")
@click.option(
    "--calibration-option", multiple=True, metavar="KEY=VALUE", help="How to reach CALIBRATION, such as anon=true."
)
@results_option("Write metrics.json and metrics.zarr here, over those of an earlier run.")
@options("nan missing json quiet checkpoint cluster")
def transfer(
    call: Call, calibration: str, k: list[Fraction], guarantee: Guarantee, calibration_scores: str | None,
    calibration_option: tuple[str, ...], out: pathlib.Path | None,
) -> None:  # fmt: skip
    """Set sizes and errors that the thresholds of one store have on another.

    CALIBRATION is the store whose scores give the thresholds (it needs no labels), STORE the one they are used on; both may
    be files, and LABELS the labels of STORE, as for avgk evaluate. Beside them stand the numbers of STORE's own thresholds.
    An activation, and the frequencies of classes, are those of both; --where, --ignore-index and --balanced labels speak of
    STORE.

    Example: avgk transfer scores.zarr scores.zarr -k 1:5

    Example: avgk transfer scores.zarr scores.zarr -k 5 --guarantee expected
    """
    from ..api.transfer import transfer as run
    from ..report import print_transfer

    with ResultsFolder(out, quiet=call.quiet, with_report=False) as folder:
        storage = parse_storage_options(calibration_option, "--calibration-option")
        arrays, existing = call.open(), call.existing()
        call = call.with_frequencies(arrays, existing)
        other = replace(call, store=calibration, scores_name=calibration_scores, labels=None, storage_options=storage)
        known = other.open(with_labels=False)
        with call.computing():
            result = run(
                other.scored(known, existing), call.scored(arrays, existing), None, k, guarantee=guarantee,
                **existing, **call.how, checkpoint=call.checkpoint_place,
            )  # fmt: skip
        result.attrs.update(store=arrays.location, calibration_store=known.location)
        folder.write(result)
    call.show(result, print_transfer)
    if not result.attrs["n_labelled"]:
        call.remark(NO_LABELS)


# ``avgk conformal``.


#: What is told of a predictor.
_TOLD = (
    "method", "alpha", "by", "groups", "threshold", "rank", "n_calibration", "n_classes", "penalty", "k_reg", "seed", "reads",
)  # fmt: skip


@click.command(cls=Command, short_help="Sets that hold the label with a given probability.")
@call_options("calibration arrays")
@click.argument("new_store", type=click.Path(), metavar="[STORE]", required=False)
@options("activation samples")
@click.option("--alpha", default="0.1", show_default=True, metavar="A", help="The error that is allowed.")
@choice_option(
    "--method", words=tuple(CONFORMAL_METHODS),
    text="What sets are made by: scores, sums of probabilities, those with a penalty for late ranks, or ranks.",
)  # fmt: skip
@click.option(
    "--by",
    metavar="NAME",
    help="class, or the name or path, as for --labels, of an integer a sample: a threshold for each class or group.",
)
@click.option("--new-by", metavar="NAME", help="The groups of STORE, where --by names those of CALIBRATION alone.")
@click.option("--penalty", metavar="P", help="Of raps, for each rank beyond --k-reg.  [default: 0.01]")
@click.option("--k-reg", type=click.IntRange(min=0), help="Of raps, the ranks without a penalty.  [default: 5]")
@click.option("--seed", type=click.IntRange(min=0), help="Of aps and raps: randomised sets, which are smaller.")
@click.option(
    "--new-labels", metavar="NAME", help="The labels of STORE, where --labels are those of CALIBRATION alone."
)
@click.option(
    "--out", type=click.Path(dir_okay=False), help="Write the predictor to this JSON file, over one that is there."
)
@click.option(
    "--report",
    type=click.Path(dir_okay=False),
    help="With STORE: write what its sets are to this HTML file, over one that is there.",
)
@options("nan missing json quiet cluster")
def conformal(
    call: Call, new_store: str | None, alpha: str, method: str, by: str | None, new_by: str | None, penalty: str | None,
    k_reg: int | None, seed: int | None, new_labels: str | None, out: str | None, report: str | None,
) -> None:  # fmt: skip
    """Find the threshold whose sets hold the label of a new sample with probability 1 - alpha.

    CALIBRATION has scores and labels; both stores may be files, as for avgk evaluate. Where STORE is given, the sets of its samples are counted: coverage, sizes, and whether
    that coverage is plausible. Options that name arrays, an activation, and what samples exist speak of both.

    Example: avgk conformal scores.zarr --alpha 0.1 --out sets.json

    Example: avgk conformal scores.zarr scores.zarr --method aps --seed 0

    Example: avgk conformal scores.zarr scores.zarr --alpha 0.5 --by class

    Example: avgk conformal scores.zarr scores.zarr --by labels --report page.html
    """
    from ..conformal import calibrate
    from ..report import write_coverage

    _check_options(call, new_store, by, new_by, new_labels, report)
    arrays, existing = call.open(), call.existing()
    groups = call.groups(by)
    with call.computing():
        start = time.perf_counter()
        call = call.with_frequencies(arrays, existing)
        other = replace(call, store=new_store or call.store, labels=new_labels or call.labels)
        opened = None if new_store is None else other.open()
        by_name = opened is not None and by not in (None, "class")
        new_groups = other.column(new_by or by, "--new-by") if by_name else None
        found = calibrate(
            call.scored(arrays, existing), None, alpha, method, groups, seed, penalty=penalty, k_reg=k_reg,
            **existing, **call.how,
        )  # fmt: skip
        if out is not None:
            found.save(out)
            call.remark(f"wrote {out}")
        result = None
        if opened is not None:
            known = other.existing()
            result = found.evaluate(other.scored(opened, known), groups=new_groups, **known, **call.how)
            result.attrs["store"] = opened.location
            if report is not None:
                write_coverage(result, report, seconds=time.perf_counter() - start)
                call.remark(f"wrote {report}")
    _print(found, result, out, call.as_json)


def _check_options(
    call: Call, new_store: str | None, by: str | None, new_by: str | None, new_labels: str | None, report: str | None
) -> None:
    """Refuse options that speak of a second store, its labels or its groups, where there are none."""
    from ..credentials import shown
    from ..files import is_row_file

    if report is not None and new_store is None:
        raise OptionError("--report must come with STORE, whose sets it tells of; got CALIBRATION alone. Add a store.")
    if new_by is not None and (new_store is None or by in (None, "class")):
        raise OptionError("--new-by must come with STORE and --by NAME; got it without one of them. Leave it out.")
    if new_store is not None and new_by is None and by is not None and is_row_file(by):
        raise OptionError(
            f"--new-by must tell the groups of STORE; got --by {shown(by)} alone. Name a file with those groups."
        )
    if new_store is not None and new_labels is None and call.labels is not None and is_row_file(call.labels):
        raise OptionError(
            "--new-labels must tell the labels of STORE; got --labels with a file of those of CALIBRATION. Name a file with the others."
        )


def _print(found: ConformalPredictor, result: Result | None, out: str | None, as_json: bool) -> None:
    from ..report import print_coverage
    from ..results.datasets import to_json

    if not as_json:
        tell(repr(found).partition(": ")[2])
        if result is not None:
            click.echo(f"\n{print_coverage(result, **look())}")
        return
    values = ((name, getattr(found, name)) for name in _TOLD)
    told = {name: value.tolist() if hasattr(value, "tolist") else value for name, value in values}
    print_json({"file": out, **told, "result": None if result is None else json.loads(to_json(result))})
