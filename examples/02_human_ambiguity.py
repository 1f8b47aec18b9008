"""Human ambiguity: top-K against average-K for images labelled by some fifty people each (CIFAR-10H).

The paper (Figures 1 and 2) takes the shares of the annotators' votes as the true probabilities eta and finds
that average-K has lower errors than top-K. We agree for every K below 10, and the gain is never below its
straddle bound (Proposition 5). The figure does not show two facts. First, the average-K error is zero (but
for the rounding of eta) from K = 1.9404 on, and so at K = 2, 3, ...: only 19,404 of the 100,000 probabilities
are not zero, so 1.9404 labels per image cover all of them. The threshold is then 0, tied with 80,596 other
zeros, and any further label is wasted. With more votes per image fewer probabilities would be zero: the
saturation depends on the number of annotators as much as on the images. Second, the claim is about eta.
Judged by the labels of CIFAR-10 itself, average-1 makes more errors (0.82 %) than top-1 (0.79 %): average-K
is never worse for eta, but it can be for particular labels. (The picture's few sets of ten labels are those
of the first images, whose zeros are the first ties.)

python examples/02_human_ambiguity.py --data DIR    # DIR/cifar10h/eta.npy and labels.npy; required
"""

import argparse
import json
import pathlib
import sys
from fractions import Fraction

import numpy as np
from matplotlib import pyplot as plt

import avgk_dask as avgk

NAME = "02_human_ambiguity"
#: Printed for each verdict; a claim that the paper does not make has none.
VERDICTS = {True: "agrees", False: "does not agree", None: "not in the paper"}


def main(argv=None):
    """Evaluate the annotators' probabilities, find the budget at which the error becomes zero, draw."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--out", type=pathlib.Path, default="examples-out", help="folder for the picture and the numbers"
    )
    parser.add_argument("--data", type=pathlib.Path, help="folder that has cifar10h/eta.npy and cifar10h/labels.npy")
    parser.add_argument("--quick", action="store_true", help="no budgets between the integers")
    args = parser.parse_args(argv)
    if args.data is None:
        print(f"{NAME} is skipped: it needs CIFAR-10H. Pass --data DIR, where DIR/cifar10h has eta.npy and labels.npy.")
        return
    eta, labels = (np.load(args.data / "cifar10h" / f"{name}.npy") for name in ("eta", "labels"))

    # eta is both the scores and the soft labels: the best sets, and their expected errors.
    whole = range(1, 11)
    between = [] if args.quick else [round(1 + step / 20, 2) for step in range(1, 40) if step % 20]
    result = avgk.evaluate(eta, eta, k=sorted([*whole, *between]))
    at_integers = result.sel(k=list(whole))
    by_label = avgk.evaluate(eta, labels, k=list(whole), straddle=False)
    saturated = float(avgk.average_set_size_at(eta, 0))  # the paper's G(0): labels per image with at least one vote

    n_positive = int(np.count_nonzero(eta))
    ends = avgk.evaluate(
        eta, eta, k=[Fraction(n_positive - 1, len(eta)), Fraction(n_positive, len(eta))], straddle=False
    )
    gains, bounds = at_integers.adaptive_gain.values, at_integers.straddle_bound.values
    two, one_by_label = at_integers.sel(k=2), by_label.sel(k=1)
    claims = [
        {
            "claim": "CIFAR-10H: average-K has fewer errors than top-K, K = 1..9: least gain (Figure 2)",
            "paper": "potential to lower the error rate (no number printed)",
            "ours": float(gains[:9].min()),
            "agrees": bool(gains[:9].min() > 0),
        },
        {
            "claim": "CIFAR-10H: relative gain at K = 2 (Figure 2)",
            "paper": "potential to lower the error rate (no number printed)",
            "ours": float(two.relative_gain),
            "agrees": float(two.relative_gain) > 0,
        },
        {
            "claim": "CIFAR-10H: gain is at least the straddle bound: least difference for K = 1..5 (Proposition 5)",
            "paper": "at least 0",
            "ours": float((gains - bounds)[:5].min()),
            "agrees": bool((gains >= bounds)[:5].all()),
        },
        {
            "claim": "CIFAR-10H, judged by the labels of CIFAR-10: average-1 is not worse than top-1: gain",
            "paper": "not stated: the claim is about eta (Section 3.3)",
            "ours": float(one_by_label.adaptive_gain),
            "agrees": None,
        },
    ]
    numbers = {
        "k": list(whole),
        "top_k_error": at_integers.top_k_error.values.tolist(),
        "average_k_error": at_integers.average_k_error.values.tolist(),
        "straddle_bound": bounds.tolist(),
        "n_positive": n_positive,
        "saturated_from_k": saturated,
        "average_k_error_one_label_before": float(ends.average_k_error[0]),
        "average_k_error_there": float(ends.average_k_error[1]),
        "threshold_at_2": float(two.threshold),
        "n_ties_at_2": int(two.n_ties),
        "n_kept_at_2": int(two.n_kept),
        "least_positive_probability": float(eta[eta > 0].min()),
        "top_1_error_by_label": float(one_by_label.top_k_error),
        "average_1_error_by_label": float(one_by_label.average_k_error),
    }

    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / f"{NAME}.json").write_text(
        json.dumps({"example": NAME, "claims": claims, "numbers": numbers}, indent=1)
    )
    figure, axes = plt.subplots(1, 3, figsize=(13, 3.8), layout="constrained")
    avgk.plot.errors(result, axes[0]).set_title("CIFAR-10H: expected errors")
    axes[0].axvline(saturated, color="0.6", linestyle=":")
    axes[0].annotate(f"no error from {saturated:.4f} on", (saturated, 2), (4, 0), textcoords="offset points")
    avgk.plot.gains(at_integers, axes[1]).set_title("errors saved")
    avgk.plot.set_sizes(at_integers, k=2, ax=axes[2]).set_title("set sizes of average-2")
    figure.savefig(args.out / f"{NAME}.png", dpi=120)
    plt.close(figure)
    for claim in claims:
        print(f"{claim['claim']}: {claim['ours']:.4g} ({VERDICTS[claim['agrees']]})")


if __name__ == "__main__":
    main(sys.argv[1:])
