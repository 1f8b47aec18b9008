"""``avgk calibrate`` and ``avgk transfer``."""

from __future__ import annotations

import pathlib
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING

import click

from ..errors import OptionError
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
from .printing import ResultsFolder, print_json, tell

if TYPE_CHECKING:
    from ..api.calibration.affine import AffineScaling
    from ..api.calibration.temperature import TemperatureScaling
    from ..api.transfer import Guarantee


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
