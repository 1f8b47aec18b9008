"""From a model's scores to an answer: store them, evaluate them, look at one set.

python examples/evaluate_a_store.py
"""

import tempfile

import numpy as np

import avgk_dask as avgk
from avgk_dask.testing import simulate

# Scores and labels, as from a model's evaluation loop.
data = simulate(n_samples=20_000, n_classes=200, seed=1).compute()

with tempfile.TemporaryDirectory() as folder:
    # A store is a Zarr group with "scores" and "labels", written batch by batch.
    with avgk.ScoreWriter(f"{folder}/scores.zarr", n_classes=200) as writer:
        for first in range(0, 20_000, 256):
            batch = data.isel(sample=slice(first, first + 256))
            writer.append(batch.scores.values, batch.labels.values)

    result = avgk.evaluate(f"{folder}/scores.zarr", k=[1, 2.5, 5])
    print(result[["threshold", "average_k_error", "top_k_error", "average_set_size"]].to_dataframe())

    sets = avgk.average_k_sets(f"{folder}/scores.zarr", k=5)  # lazy: nothing is read yet
    print("classes in the first sample's set:", np.flatnonzero(sets[0].compute()))
