"""Scores as probabilities: as they are, or made of logits."""

from __future__ import annotations

from ..errors import OptionError, ScoresError
from ..passes.certifying import refuse_truncated
from ..sources.activations import Sigmoid, Softmax
from ..sources.source import Source
from ..sources.transformed import TransformedSource
from ..states.loss_tally import ProbabilityTally
from .given import LabelsLike, ScoresLike
from .labelled import labelled_source


def logits_of(source: Source) -> tuple[Source, str, float]:
    """Return the logits of a source of probabilities, and what makes these of them; else itself and nothing."""
    if isinstance(source, TransformedSource) and isinstance(source.transform, (Softmax, Sigmoid)):
        link = "softmax" if isinstance(source.transform, Softmax) else "sigmoid"
        return source.inner, link, source.transform.temperature
    return source, "", 1.0


def probabilities(
    scores: ScoresLike, labels: LabelsLike, what: str, where: LabelsLike, ignore_index: int | None
) -> Source:
    """Return the source of scores that have labels and whole rows; ``what`` needs them."""
    source = labelled_source(scores, labels, what, where=where, ignore_index=ignore_index)
    refuse_truncated(source, what)
    return source


def refuse_scores(tally: ProbabilityTally, source: Source, link: str) -> None:
    """Raise where scores are no probabilities, or logits have none."""
    if not tally.n_refused:
        return
    sample = source.sample(*tally.first_refused[:2])
    if link:
        raise ScoresError(
            f"scores must have a finite largest value in each row for a softmax; that of sample {sample} is infinite. "
            "Correct it, or leave the sample out."
        )
    raise ScoresError(
        f"scores must be probabilities in [0, 1]; got {tally.n_refused:,} samples with others, the first is sample {sample}. "
        "Pass softmax(scores) or sigmoid(scores) if they are logits."
    )


def check_no_nan_policy(nan_policy: str) -> None:
    """Refuse any way with NaN but to refuse it."""
    if nan_policy != "raise":
        raise OptionError(
            f"nan_policy must be 'raise' for a loss; got {nan_policy!r}. Correct the NaN, or leave those samples out."
        )
