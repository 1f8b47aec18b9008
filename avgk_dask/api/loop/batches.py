"""Batches of an evaluation loop: the arguments of ``Evaluator.update`` as rows, which wait in memory until they fill a piece."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ...arrays import Array, Bools, Dtype, Ints
from ...bands.passes import pack
from ...errors import DtypeError, LabelsError
from ...kernels.keys import check_dtype
from ...masks import plain_array
from ...store.write.batches import as_labels, as_numpy, as_scores, check_labels, check_scores
from ..inputs.lazy_scores import flat_labels, sample_conditions

NO_LABELS, HARD, SOFT, CLUSTERED = "no labels", "hard labels", "soft labels", "hard labels with clusters"
#: Clusters have numbers below this one.
_N_CLUSTERS = 1 << 31


@dataclass(frozen=True)
class Batch:
    """Rows of scores, their labels (of some kind; clusters are packed with them), and their numbers among all samples given."""

    scores: Array
    labels: Array | None
    numbers: Ints
    kind: str

    def select(self, which: Bools | slice) -> Batch:
        """Return some of the rows."""
        labels = None if self.labels is None else self.labels[which]
        return Batch(self.scores[which], labels, self.numbers[which], self.kind)


def as_batch(
    scores: object, labels: object, where: object, ignore_index: int | None, clusters: object, *, n_classes: int, first: int
) -> tuple[Batch, int]:  # fmt: skip
    """Return the samples of a batch that exist, and the number of all its samples; the first is sample number ``first``.

    Raises
    ------
    ScoresError, LabelsError, DtypeError, OptionError
        If shape, labels, clusters or conditions do not fit.

    """
    array = as_scores(scores)
    lead = array.shape[:-1]
    block = array.reshape(-1, array.shape[-1]) if array.ndim > 2 else array
    check_scores(block, n_classes)
    mine = None if labels is None else as_labels(labels)
    if mine is not None and array.ndim > 2:
        mine = np.asarray(flat_labels(mine, array.shape))
    exists: Bools | None = None
    if where is not None or ignore_index is not None:
        exists = np.ones(math.prod(lead), bool)
        for values, ignored in sample_conditions(None if where is None else as_numpy(where), ignore_index, mine, lead):
            exists &= np.asarray(values) if ignored is None else np.asarray(values) != ignored
    if mine is not None:
        if exists is not None and mine.ndim == 1 and mine.dtype.kind in "iu":
            mine = np.where(exists, mine, -1)  # the labels of padding are not looked at
        mine = check_labels(mine, len(block), n_classes, first, exists)
    kind = NO_LABELS if mine is None else HARD if mine.ndim == 1 else SOFT
    if clusters is not None:
        mine, kind = _with_clusters(mine, clusters, exists, lead, n_classes), CLUSTERED
    batch = Batch(block, mine, np.arange(first, first + len(block)), kind)
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
    column = plain_array(as_numpy(clusters), "clusters", LabelsError)
    numbering = "Number them, for example with numpy.unique(clusters, return_inverse=True)[1], for all batches at once."
    if column.dtype.kind not in "iu":
        raise DtypeError(f"clusters must be integers; got dtype {column.dtype}. {numbering}")
    if column.shape != lead:
        raise LabelsError(
            f"clusters must have the samples' shape {lead}; got shape {column.shape}. Give the cluster of each sample."
        )
    column = column.reshape(-1) if exists is None else np.where(exists, column.reshape(-1), 0)
    outside = column[(column < 0) | (column >= _N_CLUSTERS)]
    if outside.size:
        raise LabelsError(f"clusters must be from 0 to 2**31 - 1; got {outside[0]}. {numbering}")
    return pack(labels, column.astype(np.int64), n_classes)


class WaitingRows:
    """Rows that wait until they are a piece to be scanned, in memory that is used again."""

    def __init__(self, n_rows: int, n_classes: int, dtype: Dtype, kind: str) -> None:
        self.n, self.n_most, self.kind = 0, n_rows, kind
        self._n_classes, self._dtype = n_classes, dtype
        self._make(0)

    def _make(self, n_rows: int) -> None:
        """Make space: as soon as there are rows to put there, and not for what a file claims."""
        self._scores = np.empty((n_rows, self._n_classes), self._dtype)
        shape, of = ((n_rows, self._n_classes), np.float64) if self.kind == SOFT else ((n_rows,), np.int64)
        self._labels: Array | None = None if self.kind == NO_LABELS else np.empty(shape, of)
        self._numbers = np.empty(n_rows, np.int64)

    @property
    def n_bytes(self) -> int:
        """Bytes of the rows that wait."""
        return sum(part.nbytes for part in (self.rows.scores, self.rows.labels, self.rows.numbers) if part is not None)

    def add(self, batch: Batch) -> None:
        """Add rows, no more than there is space for."""
        if not len(self._numbers):
            self._make(self.n_most)
        mine = slice(self.n, self.n + len(batch.scores))
        self._scores[mine], self._numbers[mine] = batch.scores, batch.numbers
        if self._labels is not None and batch.labels is not None:
            self._labels[mine] = batch.labels
        self.n = mine.stop

    @property
    def rows(self) -> Batch:
        """The rows that wait: good until others are added."""
        mine = slice(0, self.n)
        labels = None if self._labels is None else self._labels[mine]
        return Batch(self._scores[mine], labels, self._numbers[mine], self.kind)


def check_alike(batch: Batch, dtype: Dtype, kind: str) -> None:
    """Refuse a batch of another dtype, or with labels of another kind, than those before it."""
    if batch.scores.dtype != dtype and check_dtype(batch.scores.dtype) != dtype:
        raise DtypeError(
            f"scores must be {dtype}, as in the first batch; got {batch.scores.dtype}. Convert them with astype."
        )
    if batch.kind != kind:
        raise LabelsError(
            f"labels must be of one kind in all batches; got {batch.kind} after {kind}. Give the same kind with every batch."
        )
