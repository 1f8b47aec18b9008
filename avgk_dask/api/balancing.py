"""``balanced``: scores divided by the frequency of their class, for sets that serve every class."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Unpack

import dask.array as da
import numpy as np
import xarray as xr

from ..arrays import Array, Floats, Ints
from ..errors import AvgkError, OptionError
from ..passes.certifying import refuse_truncated
from ..sources.class_balance import Balance
from ..sources.lazy_arrays import lazy_array
from ..sources.sample_masks import blank
from ..sources.source import Source
from ..sources.transformed import TransformedSource
from .given import LabelsLike, ScoresLike, is_stored
from .input_names import class_vector, frame_of
from .inputs import as_source
from .labelled import labelled_source, refuse_soft
from .lazy_scores import LazyScores, SourceOptions, place_of
from .shared_text import documented


@dataclass(frozen=True, repr=False, eq=False)
class Balanced(LazyScores):
    """Scores divided by the frequency of their class; see ``balanced``."""

    scores: ScoresLike
    frequencies: Floats

    def as_source(self, labels: LabelsLike, **options: Unpack[SourceOptions]) -> Source:  # noqa: D102
        source = as_source(self.scores, labels, **options)
        refuse_truncated(source, "balanced scores")
        if source.n_classes != self.frequencies.size:
            raise OptionError(
                f"frequencies must be {source.n_classes}, one for each class; got {self.frequencies.size}. "
                "Count the labels with numpy.bincount(labels, minlength=C)."
            )
        return TransformedSource(source, Balance(self.frequencies, source.dtype))

    def __repr__(self) -> str:
        return self._told(f"{place_of(self.scores)} divided by class frequencies")

    @property
    def parts(self) -> Sequence[object]:  # noqa: D102
        return (self.scores,)

    @property
    def frame(self) -> xr.DataArray | None:  # noqa: D102
        return frame_of(self.scores)


def count_labels_by_class(scores: ScoresLike, *, where: LabelsLike = None, ignore_index: int | None = None) -> Ints:
    """Return how many samples are labelled with each class by the labels that come with scores; negative ones do not count.

    Reads the labels, block by block.
    """
    source = labelled_source(scores, None, "their frequencies", where=where, ignore_index=ignore_index, hard=True)
    refuse_soft(source, "their frequencies")
    labels: Any = source.labels
    column = (lazy_array(labels) if is_stored(labels) else da.asarray(labels)).astype(np.int64)
    column = column if source.mask is None else blank(column, source.mask, -1)
    n = source.n_classes
    counts = column.map_blocks(_count, n, chunks=((1,) * column.npartitions, (n,)), new_axis=1, dtype=np.int64)
    return np.asarray(counts.sum(axis=0).compute())


def _count(labels: Array, n_classes: int) -> Ints:
    """Return the counts of classes in a block; what is no class is refused by whoever evaluates."""
    return np.bincount(labels[(labels >= 0) & (labels < n_classes)], minlength=n_classes)[None]


@documented
def balanced(scores: ScoresLike, frequencies: Array | Sequence[float]) -> LazyScores:
    """Return scores divided by the frequency of their class: macro average-k.

    Of all sets with so many labels in all, those above a threshold on p(y | x) have the fewest errors. Those above one on
    p(y | x) / p(y) have the least mean over classes of the errors of each: rare classes count as much as frequent
    ones. What is made of the result, ``evaluate`` and all else, is exact as ever.

    Parameters
    ----------
    {scores}
        These should be probabilities.
    frequencies
        C numbers of at least 0: how often each class occurs, as shares or counts, such as
        ``numpy.bincount(labels, minlength=C)`` of training labels. The score of a class that never occurs becomes 0.

    Returns
    -------
    LazyScores
        float32, or float64 for scores of 64 bits, divided in float64 and rounded once. With the labels stored beside the
        scores. They are no probabilities: their rows do not sum to 1.

    Raises
    ------
    OptionError
        Where the frequencies are no numbers of at least 0, all of them are 0, or (later) they are not as many as the classes.

    Notes
    -----
    Cost: nothing by itself. What takes the result reads the scores as often as it would read them as they are.

    Examples
    --------
    >>> import numpy as np, avgk_dask as avgk
    >>> np.asarray(avgk.balanced(np.array([[0.6, 0.4], [0.9, 0.1]]), [3, 1])).round(2).tolist()
    [[0.8, 1.6], [1.2, 0.4]]

    """
    try:
        n_classes = len(frequencies)
        found = np.asarray(class_vector(frequencies, "frequencies", scores, n_classes), np.float64)
    except (TypeError, ValueError) as error:
        if isinstance(error, AvgkError):
            raise
        found = np.zeros(0)
    if found.ndim != 1 or not found.size or not (np.isfinite(found) & (found >= 0)).all() or not found.any():
        shown = " ".join(repr(frequencies).split())
        raise OptionError(
            f"frequencies must be numbers of at least 0, one for each class, and not all 0; got {shown!s:.80}. "
            "Count the labels with numpy.bincount(labels, minlength=C)."
        )
    return Balanced(scores, found / found.sum())
