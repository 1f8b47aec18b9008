"""What scores look like, and what that means for average-k: one plain sentence for people."""

from __future__ import annotations

import xarray as xr

#: The attribute of a result that says it, and its values.
ATTRIBUTE = "score_kind"
PROBABILITIES, OUTSIDE, UNNORMALISED, CUT = "probabilities", "outside [0, 1]", "rows do not sum to 1", "mostly absent"

_WHAT = {
    OUTSIDE: "The scores are no probabilities: they lie outside [0, 1]",
    UNNORMALISED: "The scores are no probabilities of one label in all: their rows do not sum to 1",
}
_MEANING = "Average-k compares scores of different samples, which is meant for probabilities"
_CURE = "for logits, pass softmax(scores) or --activation softmax"


def are_probabilities(result: xr.Dataset) -> bool:
    """Whether the scores look like probabilities, or of older results: whether the ranked ones lie in [0, 1]."""
    kind = result.attrs.get(ATTRIBUTE)
    if kind is not None:
        return bool(kind == PROBABILITIES)
    return "support_low" not in result or (
        float(result.support_low.min()) >= 0 and float(result.support_high.max()) <= 1
    )


def kind_sentence(result: xr.Dataset) -> str:
    """Say that scores are no probabilities, what that means and what to do; nothing where they are."""
    kind = result.attrs.get(ATTRIBUTE)
    if kind == CUT:
        return (
            "Most scores of a row are -inf, or 0 after the softmax: where a server returned only the largest logits, "
            "their softmax is not that of all classes."
        )
    return f"{_WHAT[kind]}. {_MEANING}: {_CURE}." if kind in _WHAT else ""
