"""Scores that must have labels."""

from __future__ import annotations

from functools import partial

from ..arrays import Array
from ..errors import LabelsError
from ..sources.row_values import labels_in_memory
from ..sources.source import Source
from .given import LabelsLike, ScoresLike
from .input_names import names_of
from .inputs import as_labels, as_source, opened


def labelled_source(
    scores: ScoresLike,
    labels: LabelsLike,
    what: str,
    *,
    where: LabelsLike = None,
    ignore_index: int | None = None,
    missing: str | None = None,
    hard: bool = False,
) -> Source:
    """Return the source of scores that have labels, and refuse others; ``what`` needs them, perhaps hard ones."""
    source = as_source(scores, labels, where=where, ignore_index=ignore_index, missing=missing)
    if source.labels is None:
        raise LabelsError(
            f"labels must be given for {what}; got None, and none are stored beside the scores. "
            f"Pass class numbers{'' if hard else ' or probabilities'}."
        )
    return source


def refuse_without_classes(source: Source, what: str) -> None:
    """Refuse labels that are no class numbers for an option that needs these."""
    if source.labels is None or source.has_soft_labels:
        got = "none" if source.labels is None else "a matrix"
        raise LabelsError(
            f"labels must be class numbers for {what}; got {got}. Pass one for each sample, or leave it out."
        )


def refuse_soft(source: Source, what: str) -> None:
    """Refuse labels that are probabilities."""
    if source.has_soft_labels:
        raise LabelsError(f"labels must be class numbers for {what}; got a matrix. Pass one label for each sample.")


def class_labels(source: Source, scores: ScoresLike, labels: LabelsLike, missing: str | None = None) -> Array:
    """Return the class numbers of all samples, in memory; those of truncated rows are slots in the source itself."""
    column = source.labels
    if source.truncation is not None:
        given = opened(scores, missing).labels if labels is None else labels  # type: ignore[attr-defined]
        column = as_labels(given, (*source.lead, source.n_classes), missing, partial(names_of, scores, "scores"))
    found = labels_in_memory(column)
    assert found is not None  # looked for before
    return found
