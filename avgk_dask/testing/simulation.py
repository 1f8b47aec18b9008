"""Simulated scores with known answers.

Every row has its own part of a counter-based random stream, so its values depend only on the seed and the row number, not
on the chunks.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import asdict, dataclass, replace

import dask
import dask.array as da
import numpy as np
import xarray as xr
from numpy.typing import DTypeLike

from ..arrays import Array
from ..engine.progress import current_progress
from ..engine.run import open_compute
from ..errors import ScoresError
from ..kernels.keys import check_dtype
from ..store.read.grids import Layout
from ..store.read.manifest import Digests
from ..store.where.addresses import WritableArray, redact, writing
from ..store.write.drafts import Draft, write_rows
from ..store.write.targets import open_target, writable

_EXAMPLES = (1, 2, 3, 4)
#: Rows in zones 1, 2 and 3 out of 300 consecutive rows: Example 3 has the weights 3/100, 191/300, 1/3.
_ZONE_ROWS = {2: (100, 100, 100), 3: (9, 191, 100), 4: (100, 100, 100)}


@dataclass(frozen=True)
class Simulation:
    """The parameters of a simulation. ``simulate_store`` writes it to a store, ``rows`` returns some rows.

    Parameters
    ----------
    n_samples, n_classes
        Shape of the scores; the paper's examples have six classes.
    example
        1 to 4: the toy problems of the paper. By default every row is a shuffled softmax of the same logits
        times the row's own sharpness.
    seed
        Random seed. A row depends only on the seed and its number, not on the chunks.
    dtype
        Name of the dtype of the scores.
    ambiguity
        Spread of the sharpness between rows, in [0, 10]. At 0 all rows have the same ranked probabilities, so that top-k is
        optimal and average-k has no gain; the gain grows with the ambiguity.
    levels
        Round the scores to this many levels, to produce ties.

    Raises
    ------
    ScoresError, DtypeError
        If a value is out of range.

    Examples
    --------
    >>> scores, labels, eta = Simulation(300, example=2, dtype="float64").rows(0, 3)
    >>> eta.sum(axis=1).tolist(), bool((eta == scores).all())
    ([1.0, 1.0, 1.0], True)
    """

    n_samples: int
    n_classes: int = 6
    example: int | None = None
    seed: int = 0
    dtype: str = "float32"
    ambiguity: float = 1.0
    levels: int | None = None

    def __post_init__(self) -> None:
        check_dtype(self.dtype)
        if self.example is not None and self.example not in _EXAMPLES:
            raise ScoresError(f"example must be 1, 2, 3 or 4; got {self.example!r}. Leave it out for data of any size.")
        if self.example is not None and self.n_classes != 6:
            raise ScoresError(f"n_classes must be 6 for the paper's examples; got {self.n_classes}. Leave it out.")
        if not (math.isfinite(self.ambiguity) and 0 <= self.ambiguity <= 10):
            raise ScoresError(f"ambiguity must lie in [0, 10]; got {self.ambiguity}. Pass 0 for equal rows.")
        if self.levels is not None and self.levels < 1:
            raise ScoresError(f"levels must be positive; got {self.levels}. Leave it out for no rounding.")
        if self.n_samples < 1 or self.n_classes < 1:
            raise ScoresError(
                f"n_samples and n_classes must be positive; got {self.n_samples} x {self.n_classes}. Pass at least 1 of each."
            )

    def rows(self, first: int, last: int) -> tuple[Array, Array, Array]:
        """Return scores, hard labels and eta (the labels' true probabilities) of some rows.

        Parameters
        ----------
        first, last
            The rows are first, ..., last - 1.
        """
        uniform = self._uniform(first, last)
        if self.example is None:
            eta = self._softmax(uniform)
        else:
            eta = _example(self.example, np.arange(first, last), uniform[:, 1])
        labels = _draw(eta, uniform[:, 0])
        return self._as_scores(eta), labels, eta

    def _uniform(self, first: int, last: int) -> Array:
        """Return C + 2 uniform numbers in (0, 1) for each row: for the label, the row, the scores."""
        blocks = -(-(self.n_classes + 2) // 4)  # the generator yields four numbers per step
        generator = np.random.Philox(key=self.seed, counter=first * blocks)
        raw = generator.random_raw((last - first) * blocks * 4).reshape(last - first, -1)
        return ((raw[:, : self.n_classes + 2] >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53

    def _softmax(self, uniform: Array) -> Array:
        """Return softmaxes of one profile of logits, with a different sharpness and order in every row."""
        sharpness = 2.0 * np.exp(self.ambiguity * (2 * uniform[:, 1:2] - 1))
        profile = -np.log(-np.log((np.arange(self.n_classes, 0, -1) - 0.5) / self.n_classes))  # Gumbel quantiles
        weights = np.exp((profile - profile[0]) * sharpness)
        ranked = weights / weights.sum(1, keepdims=True)
        eta = np.empty_like(ranked)
        np.put_along_axis(eta, np.argsort(uniform[:, 2:], axis=1), ranked, axis=1)
        return np.asarray(eta)

    def _as_scores(self, eta: Array) -> Array:
        dtype = check_dtype(self.dtype)
        if self.levels is not None:
            eta = np.round(eta * self.levels) / self.levels
        if dtype.kind in "iu":
            return np.round(eta * min(np.iinfo(dtype).max, 2**52)).astype(dtype)
        return eta.astype(dtype)


def _example(number: int, rows: Array, uniform: Array) -> Array:
    """Return the paper's eta for these rows."""
    eta = np.zeros((rows.size, 6))
    if number == 1:
        pair = 2 * (rows % 3)
        share = 0.5 + 0.1 * (uniform - 0.5)
        eta[np.arange(rows.size), pair] = share
        eta[np.arange(rows.size), pair + 1] = 1 - share
        return np.asarray(eta)
    index = rows * 97 % 300  # 97 and 300 are coprime: every 300 rows visit each index once
    one, two, _ = _ZONE_ROWS[number]
    zone = np.where(index < one, 1, np.where(index < one + two, 2, 3))
    eta[zone == 1, 0] = 1
    eta[np.ix_(zone == 2, [1, 2])] = 1 / 2
    eta[np.ix_(zone == 3, [3, 4, 5])] = 1 / 3
    if number == 4:
        first = np.flatnonzero(zone == 1)
        eta[first, 0] = 203 / 300
        eta[first, 1 + rows[first] % 5] = 97 / 300
    return eta


def _draw(eta: Array, uniform: Array) -> Array:
    """Draw one class for each row with the probabilities eta."""
    cumulative = np.cumsum(eta, axis=1)
    below = cumulative <= uniform[:, None] * cumulative[:, -1:]
    return np.asarray(np.minimum(below.sum(1), eta.shape[1] - 1))


def simulate(
    n_samples: int,
    n_classes: int = 6,
    *,
    example: int | None = None,
    seed: int = 0,
    dtype: str = "float32",
    ambiguity: float = 1.0,
    levels: int | None = None,
    chunk_rows: int | None = None,
) -> xr.Dataset:
    """Return a lazy Dataset with ``scores``, hard ``labels`` drawn from ``eta``, and ``eta`` itself.

    Parameters
    ----------
    n_samples, n_classes, example, seed, dtype, ambiguity, levels
        As for ``Simulation``.
    chunk_rows
        Rows per chunk; by default about 10 MB.

    Returns
    -------
    Dataset
        ``scores`` and ``eta`` over (sample, class), ``labels`` over (sample).

    Raises
    ------
    ScoresError, DtypeError
        If a value is out of range.

    Notes
    -----
    Cost: computed lazily, again for each read.

    Examples
    --------
    >>> import avgk_dask as avgk
    >>> toy = simulate(300, example=2, dtype="float64")
    >>> result = avgk.evaluate(toy.scores, labels=toy.eta, k=2)
    >>> float(result.top_k_error[0].round(6)), float(result.average_k_error[0].round(6))
    (0.111111, 0.0)
    """
    spec = Simulation(n_samples, n_classes, example, seed, dtype, ambiguity, levels)
    step = chunk_rows or max(1, min(n_samples, 10_000_000 // (8 * n_classes)))
    bounds = [*range(0, n_samples, step), n_samples]
    part = dask.delayed(spec.rows, pure=True)
    parts = [(part(a, b), b - a) for a, b in itertools.pairwise(bounds)]

    def column(i: int, dtype: DTypeLike, width: tuple[int, ...]) -> da.Array:
        return da.concatenate([da.from_delayed(p[i], (n, *width), dtype) for p, n in parts])

    wide = (n_classes,)
    return xr.Dataset(
        {
            "scores": (("sample", "class"), column(0, check_dtype(dtype), wide)),
            "labels": (("sample",), column(1, np.int64, ())),
            "eta": (("sample", "class"), column(2, np.float64, wide)),
        }
    )


def simulate_store(
    path: object,
    spec: Simulation,
    *,
    chunks: tuple[int, int] | None = None,
    soft: bool = False,
    overwrite: bool = False,
    progress: bool | None = None,
) -> None:
    """Write a simulated store chunk by chunk, with a manifest, as ``ScoreWriter`` writes stores.

    Parameters
    ----------
    path
        Path, URL or Zarr store to write to.
    spec
        The simulation.
    chunks
        Rows and classes per chunk; by default whole rows of about 10 MB.
    soft
        Whether to write eta as labels instead of class numbers.
    overwrite
        Replace an existing Zarr store.
    progress
        Whether to show a progress bar on stderr.

    Raises
    ------
    StoreError
        If the path exists already or cannot be written.

    Notes
    -----
    Cost: each chunk is written once; a task needs memory for a few chunks.

    Examples
    --------
    >>> import tempfile, avgk_dask as avgk
    >>> path = tempfile.mkdtemp() + "/toy.zarr"
    >>> simulate_store(path, Simulation(300, example=2))
    >>> avgk.open_scores(path).sizes["sample"]
    300
    """
    item = check_dtype(spec.dtype).itemsize
    layout = Layout.for_columns(spec.n_classes, item, chunk_rows=chunks[0] if chunks else None)
    layout = replace(layout, chunk_columns=chunks[1]) if chunks else layout
    layout = replace(layout, chunk_rows=min(layout.chunk_rows, spec.n_samples))
    target = open_target(path, None, overwrite, apart_from=[])
    with target as place, writing(redact(path), path), open_compute(progress) as compute:
        shape = spec.n_samples, spec.n_classes
        draft = Draft.create(*writable(place), overwrite=overwrite, noted={"simulation": True})
        scores = draft.add_matrix("scores", shape, check_dtype(spec.dtype), layout)
        scores.attrs["simulation"] = asdict(spec)
        soft_labels = draft.add_matrix("labels", shape, np.float64, layout) if soft else None
        write = dask.delayed(_write_rows, pure=False)
        tasks = [
            write(spec, scores, soft_labels, first, min(first + layout.rows, spec.n_samples))
            for first in range(0, spec.n_samples, layout.rows)
        ]
        parts = compute(tasks, "simulate")
        current_progress(mine=True).enter("writing")
        for digests, _ in parts:
            draft.digests |= digests
        if not soft:  # written together, because a chunk of labels spans many chunks of scores
            classes = np.concatenate([classes for _, classes in parts])
            draft.digests |= write_rows(draft.add_column("labels", spec.n_samples), 0, classes)
        draft.finish()


def _write_rows(
    spec: Simulation, scores: WritableArray, soft_labels: WritableArray | None, first: int, last: int
) -> tuple[Digests, Array]:
    """Write some rows; return the digests of their chunks and their hard labels."""
    values, classes, eta = spec.rows(first, last)
    digests = write_rows(scores, first, values)
    if soft_labels is not None:
        digests |= write_rows(soft_labels, first, eta)
    return digests, classes
