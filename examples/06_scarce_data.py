"""Scarce data: is average-K still better with few training images?

The paper (section 8.2.3, Figure 11) divides the 50,000 training images of Fashion-MNIST by four again and
again, down to 195: average-K is always better than top-K, and the gap is wider for fewer images. Here small
networks are trained on the same numbers of images (two networks for each). We agree that average-K is better
for every number of images, and not worse for any K. We do not agree that the gap is widest with the fewest
images: the difference of the mean errors is 0.0054, 0.0063, 0.0065, 0.0069 with 50,000 to 781 images, and
0.0052 with 195. It is not monotone. And the share of errors that average-K avoids decreases steadily, from
28 % to 11 %: with few images the scores are less informative about which samples are hard. On scikit-learn's
digits (800, 200 and 50 images) the gap does grow at each step, from 0.0012 to 0.0114; the share decreases
there as well, from 32 % to 28 %.

python examples/06_scarce_data.py --data DIR    # DIR/fashion_mnist/fashion_mnist.npz; without it, scikit-learn's digits
"""

import argparse
import itertools
import json
import pathlib
import sys

import numpy as np
from matplotlib import pyplot as plt
from sklearn.datasets import load_digits
from sklearn.neural_network import MLPClassifier

import avgk_dask as avgk

#: Printed for each verdict; a claim that the paper does not make has none.
VERDICTS = {True: "agrees", False: "does not agree", None: "not in the paper"}


def load_images(data):
    """Return training images, their labels, test images, their labels; an image is a row of numbers in [0, 1]."""
    if data is None:
        digits = load_digits()
        order = np.random.default_rng(0).permutation(len(digits.data))
        images, labels = digits.data[order] / 16, digits.target[order]
        return images[:800], labels[:800], images[800:], labels[800:]
    with np.load(pathlib.Path(data) / "fashion_mnist" / "fashion_mnist.npz") as file:
        train, test = (file[f"{part}_images"].reshape(-1, 784) / np.float32(255) for part in ("train", "test"))
        return train[:50_000], file["train_labels"][:50_000], test, file["test_labels"]


def train(images, labels, n_steps, seed):
    """Return a network trained for about the same number of steps for any number of images, in at least five epochs."""
    batch = min(100, len(images))
    network = MLPClassifier((128,), batch_size=batch, learning_rate_init=0.002, random_state=seed)
    for _ in range(max(5, n_steps * batch // len(images))):
        network.partial_fit(images, labels, classes=np.arange(10))
    return network


def main(argv=None):
    """Train on fewer and fewer images, evaluate, draw."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--out", type=pathlib.Path, default="examples-out", help="folder for the picture and the numbers"
    )
    parser.add_argument("--data", help="folder that has fashion_mnist/fashion_mnist.npz")
    parser.add_argument(
        "--quick", action="store_true", help="fewer networks of each size, and no more than 12,500 images"
    )
    args = parser.parse_args(argv)

    images, labels, test, truth = load_images(args.data)
    n_sizes, n_repeats = (3, 3) if args.data is None else (5, 2)
    if args.quick:
        images, labels = images[:12_500], labels[:12_500]
        n_sizes, n_repeats = min(n_sizes, 4), n_repeats - 1
    sizes = [len(images) // 4**step for step in range(n_sizes)]
    curves, gains, stderrs = {}, {}, {}
    for size in sizes:
        results = []
        for seed in range(n_repeats):  # other images and initial weights
            mine = np.random.default_rng(seed).permutation(len(images))[:size]
            network = train(images[mine], labels[mine], 600, seed)
            results.append(avgk.evaluate(network.predict_proba(test), truth, k=range(1, 11), straddle=False))
        curves[size] = {
            rule: float(np.mean([one[f"{rule}_k_error"].mean() for one in results])) for rule in ("top", "average")
        }
        gains[size] = np.mean([one.adaptive_gain.values for one in results], axis=0)
        stderrs[size] = np.mean(
            [one.adaptive_gain_stderr.values for one in results], axis=0
        )  # for one network: the same size

    gaps = [curves[size]["top"] - curves[size]["average"] for size in sizes]  # from the most images to the fewest
    relative = [gap / curves[size]["top"] for gap, size in zip(gaps, sizes, strict=True)]
    wider = sum(after > before for before, after in itertools.pairwise(gaps))
    claims = [
        {
            "claim": "Average-K is better than top-K with any number of training images: least gap of the mean errors",
            "paper": "always better (Figure 11a)",
            "ours": min(gaps),
            "agrees": min(gaps) > 0,
        },
        {
            "claim": "It is not worse for any K and number of images, two standard errors aside: lowest gain",
            "paper": "never worse (section 8.2.3)",
            "ours": float(min(gains[size].min() for size in sizes)),
            "agrees": all(bool((gains[size] >= -2 * stderrs[size]).all()) for size in sizes),
        },
        {
            "claim": "The gap is wider with the fewest images than with all: ratio of the gaps",
            "paper": "wider for fewer samples (Figure 11)",
            "ours": gaps[-1] / gaps[0],
            "agrees": gaps[-1] > gaps[0],
        },
        {
            "claim": "It grows each time the images are divided by four: share of the divisions",
            "paper": "wider for fewer samples (Figure 11)",
            "ours": wider / (n_sizes - 1),
            "agrees": wider == n_sizes - 1,
        },
        {
            "claim": "The share of the errors that average-K saves: with the fewest images over that with all",
            "paper": "not stated",
            "ours": relative[-1] / relative[0],
            "agrees": None,
        },
    ]
    numbers = {
        "n_images": sizes,
        "mean_top_k_error": [curves[size]["top"] for size in sizes],
        "mean_average_k_error": [curves[size]["average"] for size in sizes],
        "gap": gaps,
        "relative_gap": relative,
        "adaptive_gain": {str(size): gains[size].tolist() for size in sizes},
    }

    args.out.mkdir(parents=True, exist_ok=True)
    summary = {"example": "06_scarce_data", "claims": claims, "numbers": numbers}
    (args.out / "06_scarce_data.json").write_text(json.dumps(summary, indent=1))
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
    left.plot(sizes, numbers["mean_top_k_error"], "o-", color=avgk.plot.TOP_K, label="top-K")
    left.plot(sizes, numbers["mean_average_k_error"], "o-", color=avgk.plot.AVERAGE_K, label="average-K")
    left.set(xscale="log", xlabel="training images", ylabel="mean error over all K", ylim=(0, None))
    left.legend()
    for size in sizes:
        right.plot(range(1, 11), gains[size], "o-", markersize=3, label=f"{size:,} images")
    right.axhline(0, color="0.6", linewidth=0.8)
    right.set(xlabel="K", ylabel="adaptive gain")
    right.legend()
    figure.savefig(args.out / "06_scarce_data.png", dpi=120)
    plt.close(figure)
    for claim in claims:
        print(f"{claim['claim']}: {claim['ours']:.4g} ({VERDICTS[claim['agrees']]})")


if __name__ == "__main__":
    main(sys.argv[1:])
