"""``avgk calibrate``."""

from __future__ import annotations

import pathlib
from contextlib import nullcontext
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Unpack

import click

from ..errors import OptionError
from .clusters import ClusterChoice, cluster, cluster_options
from .group import Command
from .parameters import (
    SampleChoice,
    StoreChoice,
    activation_options,
    budget_option,
    checkpoint_options,
    checkpoint_place,
    json_option,
    labelled_store_options,
    missing_option,
    nan_option,
    parse_storage_options,
    quiet_option,
    sample_options,
)
from .printing import ResultsFolder, look, print_json, remark, shows_progress, tell

if TYPE_CHECKING:
    from ..api.calibration.affine import AffineScaling
    from ..api.calibration.temperature import TemperatureScaling
    from ..api.options import NanPolicy
    from ..api.transfer import Guarantee


@click.command(cls=Command, short_help="Fit a calibrator to logits and their labels.")
@labelled_store_options
@sample_options
@click.option(
    "--method", type=click.Choice(["temperature", "vector", "matrix"]), default="temperature", show_default=True,
    help="One number for all logits, a weight and a bias a class, or a matrix.",
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
@missing_option
@json_option
@quiet_option
@cluster_options
def calibrate(chosen: StoreChoice, samples: SampleChoice, method: str, out: str, penalty: float | None, bias_penalty: float | None,
              max_iterations: int | None, missing: str, as_json: bool, quiet: bool, **where: Unpack[ClusterChoice]) -> None:  # fmt: skip
    """Fit what makes probabilities of logits to a calibration store, by the least NLL, and write it to a file.

    STORE has logits and labels, or is a file of logits, as for avgk evaluate, and LABELS has the labels. Other commands take the file as --calibration.

    Example: avgk calibrate logits.zarr --out temperature.json

    Example: avgk calibrate logits.zarr --method vector --out vector.json
    """
    asked = {"penalty": penalty, "bias_penalty": bias_penalty, "max_iterations": max_iterations}
    calibrator = _calibrator(method, {name: value for name, value in asked.items() if value is not None})
    arrays = chosen.open(missing)
    with cluster(where, quiet):
        calibrator.fit(arrays, **samples.open(chosen), progress=shows_progress(quiet))
    calibrator.save(out)
    if calibrator.message:
        remark(calibrator.message, quiet)
    if not as_json:
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


# ``avgk transfer``.


@click.command(cls=Command, short_help="Thresholds of one store on another.")
@click.argument("calibration", type=click.Path())
@labelled_store_options
@activation_options
@sample_options
@budget_option("Budgets: 5 or 1,3,5 or 1:10 or 0.5,2.5.", required=True)
@click.option(
    "--guarantee", type=click.Choice(["expected"]),
    help="expected: thresholds so high that the expected set size on a new sample is at most k.",
)  # fmt: skip
@click.option("--calibration-scores", metavar="NAME", help="Name of the scores inside CALIBRATION.")
@click.option(
    "--calibration-option", multiple=True, metavar="KEY=VALUE", help="How to reach CALIBRATION, such as anon=true."
)
@click.option(
    "--out",
    type=click.Path(path_type=pathlib.Path),
    help="Write metrics.json and metrics.zarr here, over those of an earlier run.",
)
@nan_option
@missing_option
@json_option
@quiet_option
@checkpoint_options
@cluster_options
def transfer(chosen: StoreChoice, samples: SampleChoice, calibration: str, k: list[Fraction], guarantee: Guarantee, calibration_scores: str | None,
             calibration_option: tuple[str, ...], out: pathlib.Path | None, as_json: bool, nan_policy: NanPolicy, missing: str,
             quiet: bool, checkpoint: str | None, checkpoint_option: tuple[str, ...],
             **where: Unpack[ClusterChoice]) -> None:  # fmt: skip
    """Set sizes and errors that the thresholds of one store have on another.

    CALIBRATION is the store whose scores give the thresholds (it needs no labels), STORE the one they are used on; both may
    be files, and LABELS the labels of STORE, as for avgk evaluate. Beside them stand the numbers of STORE's own thresholds.
    An activation, and the frequencies of classes, are those of both; --where, --ignore-index and --balanced labels speak of
    STORE.

    Example: avgk transfer scores.zarr scores.zarr -k 1:5

    Example: avgk transfer scores.zarr scores.zarr -k 5 --guarantee expected
    """
    from ..api.transfer import transfer as run
    from ..report.text import print_transfer
    from ..results.datasets import to_json

    folder = nullcontext() if out is None else ResultsFolder(out, with_report=False)
    with folder:
        options = parse_storage_options(calibration_option, "--calibration-option")
        arrays = chosen.open(missing)
        existing = samples.open(chosen)
        chosen = chosen.with_frequencies(arrays, existing)
        other = replace(chosen, store=calibration, scores=calibration_scores, labels=None, options=options)
        known = other.open(missing, with_labels=False)
        with cluster(where, quiet):
            result = run(
                other.scored(known),
                chosen.scored(arrays),
                None,
                k,
                guarantee=guarantee,
                **existing,
                nan_policy=nan_policy,
                progress=shows_progress(quiet),
                checkpoint=checkpoint_place(checkpoint, checkpoint_option),
            )
        result.attrs.update(store=arrays.location, calibration_store=known.location)
        if isinstance(folder, ResultsFolder):
            folder.write(result)
            remark(f"wrote {folder.out / 'metrics.json'} and metrics.zarr", quiet)
    click.echo(to_json(result) if as_json else print_transfer(result, **look()))
    if not result.attrs["n_labelled"]:
        remark("errors need labels: name them with --labels NAME, or give a file with --labels labels.npy", quiet)
