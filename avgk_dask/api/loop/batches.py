"""Batches of an evaluation loop: the arguments of ``Evaluator.update`` as rows, and the buffer that collects them."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ...arrays import Array, Bools, Dtype, Ints
from ...bands.passes import pack
from ...errors import DtypeError, LabelsError
from ...kernels.keys import check_dtype
from ...masks import to_ndarray
from ...store.write.batches import as_labels, as_numpy, as_scores, check_labels, check_scores
from ..inputs.lazy_scores import flat_labels, sample_conditions

NO_LABELS, HARD, SOFT, CLUSTERED = "no labels", "hard labels", "soft labels", "hard labels with clusters"
#: Clusters must be below this number.
_MAX_CLUSTERS = 1 << 31


@dataclass(frozen=True)
class Batch:
    """Rows of scores, their labels (packed with clusters, if any), and their numbers among all samples passed."""

    scores: Array
    labels: Array | None
    numbers: Ints
    kind: str

    def select(self, rows: Bools | slice) -> Batch:
        """Return some of the rows."""
        labels = None if self.labels is None else self.labels[rows]
        return Batch(self.scores[rows], labels, self.numbers[rows], self.kind)


def as_batch(
    scores: object, labels: object, where: object, ignore_index: int | None, clusters: object, *, n_classes: int, first: int
) -> tuple[Batch, int]:  # fmt: skip
    """Return the samples of a batch that count, and the number of all its samples, which are numbered from ``first``."""
    array = as_scores(scores)
    lead = array.shape[:-1]
    block = array.reshape(-1, array.shape[-1]) if array.ndim > 2 else array
    check_scores(block, n_classes)
    column = None if labels is None else as_labels(labels)
    if column is not None and array.ndim > 2:
        column = np.asarray(flat_labels(column, array.shape))
    exists: Bools | None = None
    if where is not None or ignore_index is not None:
        exists = np.ones(math.prod(lead), bool)
        mask = None if where is None else as_numpy(where)
        for values, ignored in sample_conditions(mask, ignore_index, column, lead):
            exists &= np.asarray(values) if ignored is None else np.asarray(values) != ignored
    if column is not None:
        if exists is not None and column.ndim == 1 and column.dtype.kind in "iu":
            column = np.where(exists, column, -1)  # the labels of padding are not checked
        column = check_labels(column, len(block), n_classes, first, exists)
    kind = NO_LABELS if column is None else HARD if column.ndim == 1 else SOFT
    if clusters is not None:
        column, kind = _with_clusters(column, clusters, exists, lead, n_classes), CLUSTERED
    batch = Batch(block, column, np.arange(first, first + len(block)), kind)
    return batch if exists is None else batch.select(exists), len(block)


def _with_clusters(
    labels: Array | None, clusters: object, exists: Bools | None, lead: tuple[int, ...], n_classes: int
) -> Ints:
    """Return labels and clusters in one column."""
    if labels is None or labels.ndim != 1:
        got = "none" if labels is None else "a matrix"
        raise LabelsError(
            f"labels must be class numbers for clusters; got {got}. Pass one for each sample, or leave clusters out."
        )
    column = to_ndarray(as_numpy(clusters), "clusters", LabelsError)
    numbering = "Number them, for example with numpy.unique(clusters, return_inverse=True)[1], for all batches at once."
    if column.dtype.kind not in "iu":
        raise DtypeError(f"clusters must be integers; got dtype {column.dtype}. {numbering}")
    if column.shape != lead:
        raise LabelsError(
            f"clusters must have the samples' shape {lead}; got shape {column.shape}. Give the cluster of each sample."
        )
    column = column.reshape(-1) if exists is None else np.where(exists, column.reshape(-1), 0)
    outside = column[(column < 0) | (column >= _MAX_CLUSTERS)]
    if outside.size:
        raise LabelsError(f"clusters must be from 0 to 2**31 - 1; got {outside[0]}. {numbering}")
    return pack(labels, column.astype(np.int64), n_classes)


class WaitingRows:
    """A reused buffer of rows that wait until they fill a piece to be scanned."""

    def __init__(self, n_rows: int, n_classes: int, dtype: Dtype, kind: str) -> None:
        self.n, self.n_most, self.kind = 0, n_rows, kind
        self._n_classes, self._dtype = n_classes, dtype
        self._allocate(0)

    def _allocate(self, n_rows: int) -> None:
        self._scores = np.empty((n_rows, self._n_classes), self._dtype)
        shape, dtype = ((n_rows, self._n_classes), np.float64) if self.kind == SOFT else ((n_rows,), np.int64)
        self._labels: Array | None = None if self.kind == NO_LABELS else np.empty(shape, dtype)
        self._numbers = np.empty(n_rows, np.int64)

    @property
    def n_bytes(self) -> int:
        """Bytes of the waiting rows."""
        return sum(part.nbytes for part in (self.rows.scores, self.rows.labels, self.rows.numbers) if part is not None)

    def add(self, batch: Batch) -> None:
        """Add rows, at most as many as there is space for."""
        if not len(self._numbers):  # not before there are rows: a file may claim any number
            self._allocate(self.n_most)
        rows = slice(self.n, self.n + len(batch.scores))
        self._scores[rows], self._numbers[rows] = batch.scores, batch.numbers
        if self._labels is not None and batch.labels is not None:
            self._labels[rows] = batch.labels
        self.n = rows.stop

    @property
    def rows(self) -> Batch:
        """The waiting rows as views, valid until others are added."""
        return Batch(self._scores, self._labels, self._numbers, self.kind).select(slice(0, self.n))


def check_alike(batch: Batch, dtype: Dtype, kind: str) -> None:
    """Refuse a batch with another dtype or kind of labels than the batches before it."""
    if batch.scores.dtype != dtype and check_dtype(batch.scores.dtype) != dtype:
        raise DtypeError(
            f"scores must be {dtype}, as in the first batch; got {batch.scores.dtype}. Convert them with astype."
        )
    if batch.kind != kind:
        raise LabelsError(
            f"labels must be of one kind in all batches; got {batch.kind} after {kind}. Pass the same kind with every batch."
        )
