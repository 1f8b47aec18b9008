"""Scores that must have labels."""

from __future__ import annotations

from ..errors import LabelsError
from ..sources.source import Source
from .given import LabelsLike, ScoresLike
from .inputs import as_source


def labelled_source(
    scores: ScoresLike,
    labels: LabelsLike,
    what: str,
    *,
    where: LabelsLike = None,
    ignore_index: int | None = None,
) -> Source:
    """Return the source of scores that have labels, and refuse others; ``what`` needs them."""
    source = as_source(scores, labels, where=where, ignore_index=ignore_index)
    if source.labels is None:
        raise LabelsError(
            f"labels must be given for {what}; got None, and none are stored beside the scores. "
            "Pass class numbers or probabilities."
        )
    return source
