"""``ensemble``: the weighted mean of several models' scores, made while they are read."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Any, Literal, SupportsFloat, Unpack

import dask.array as da
import numpy as np
import xarray as xr

from ..axis_names import axes_of, check_names, default_names
from ..errors import DtypeError, LabelsError, OptionError, ScoresError
from ..masks import refuse_masked
from ..sources.ensembles import EnsembleReader, lenient, mean_dtype
from ..sources.row_values import Labels, lazy_array
from ..sources.source import Source
from ..sources.transforms import Softmax
from ..statistics.truncated import refuse_truncated
from ..store.read.manifest import table_digest
from .inputs.lazy_scores import LazyScores
from .inputs.names import check_inputs, check_same_names, names_of
from .inputs.sources import aligned, as_source, existing
from .options import LabelsLike, ScoresLike, SourceOptions, check_word, is_stored

#: What an ensemble is the mean of.
Mean = Literal["probabilities", "logits"]


@dataclass(frozen=True, repr=False, eq=False)
class Ensemble(LazyScores):
    """The weighted mean of several matrices, or its softmax; see ``ensemble``."""

    members: tuple[ScoresLike, ...]
    #: They sum to 1, but for rounding.
    weights: tuple[float, ...]
    of: str = "probabilities"

    def as_source(self, labels: LabelsLike, **options: Unpack[SourceOptions]) -> Source:  # noqa: D102
        where, ignored, missing = options.get("where"), options.get("ignore_index"), options.get("missing")
        if (frame := self.frame) is not None:
            labels, where = aligned(frame, labels, "labels"), aligned(frame, where, "where")
        own = labels is None and (options.get("own_labels", True) or ignored is not None)
        first = as_source(self.members[0], labels, own_labels=own, missing=missing)
        rest = [as_source(member, own_labels=own, missing=missing) for member in self.members[1:]]
        check_inputs(partial(names_of, self, "scores"), len(first.lead), labels=labels, where=where)
        sources = [first, *rest]
        _check_members(sources)
        found = _common_labels(sources)
        masked = where is not None or ignored is not None
        members = [lenient(source) if masked else source for source in sources]
        plain, of_logits = [source.with_labels(None) for source in members], self.of == "logits"
        reader = EnsembleReader(plain, self.weights, in_float64=of_logits)
        kept = existing(Source(reader).with_labels(found), where, ignored)
        kept = kept if options.get("own_labels", True) or labels is not None else kept.with_labels(None)
        if not of_logits:
            return kept
        to = mean_dtype(sources)
        return kept.with_transform(Softmax(1.0, kept.dtype, kept.location, kept.mask is not None, rounded_to=to))

    @property
    def parts(self) -> Sequence[object]:  # noqa: D102
        return self.members

    def __repr__(self) -> str:
        return self._describe(f"{'softmax of the ' * (self.of == 'logits')}mean of {len(self.members)} members")


def ensemble(
    members: Iterable[ScoresLike], weights: Iterable[SupportsFloat] | None = None, of: Mean = "probabilities"
) -> LazyScores:
    """Return the weighted mean of several models' scores, made while they are read.

    Nothing is stored, and every function takes the result as scores. In float64, weight by weight and in the order of
    the members, w[0] s[0] + w[1] s[1] + ..., rounded once at the end: the same bits for any chunking of any member.

    Parameters
    ----------
    members
        Scores of the same samples and classes, two or more usually: NumPy, Dask or Zarr arrays, xarray objects, paths
        of stores, or lazy scores such as ``softmax`` gives, each with a dtype and chunks of its own.
    weights
        A positive number for each member, by default the same for all. They are divided by their exact sum, and each is
        rounded once.
    of
        ``"probabilities"`` takes the mean of the scores themselves; ``"logits"`` takes the softmax of their mean,
        which is not rounded before it.

    Returns
    -------
    LazyScores
        float32, or float64 where a member has 64 bits. With the labels of the first member that has some; where several
        have, they must be the same, which is looked at when labels are needed.

    Raises
    ------
    OptionError
        If there is no member, a weight is not a positive number or missing, or ``of`` is not one of its values.
    ScoresError
        If the members' shapes or coordinates differ, or one is truncated; later, if one holds NaN, or infinities of
        both signs meet.
    LabelsError
        Later, where members have different labels, and no others are given.
    StoreError
        If the store cannot be opened or read.

    Notes
    -----
    Cost: nothing by itself. What takes the result reads each member as often as it would read scores: in bands that end
    where chunks of all members do, so that each chunk is read once, and a pilot of a few whole bands before. Where such
    bands would exceed 64 MB, they end where those of the member with the largest chunks do, and chunks of others that
    lie across are read twice. A task holds a band of each member's chunks and the sums in float64. Labels of several
    members that are not equally sealed are read once more to be compared.

    Examples
    --------
    >>> import numpy as np, avgk_dask as avgk
    >>> a, b = np.array([[0.5, 0.5], [1.0, 0.0]]), np.array([[0.25, 0.75], [0.5, 0.5]])
    >>> both = avgk.ensemble([a, b], weights=[3, 1])
    >>> np.asarray(both).tolist()
    [[0.4375, 0.5625], [0.875, 0.125]]
    >>> avgk.threshold(both, 1).value
    0.4375

    """
    check_word("of", of, Mean, "Leave it out for probabilities.")
    given = _check_list(members)
    mean = Ensemble(given, _shares(weights, len(given)), of)
    check_same_names(numbered(given))
    mean.as_source(None, own_labels=False)  # which refuses what cannot be
    return mean


def _check_list(members: Iterable[ScoresLike]) -> tuple[ScoresLike, ...]:
    single = isinstance(members, (str, os.PathLike, Mapping, xr.Dataset, xr.DataArray, LazyScores))
    if single or hasattr(members, "shape") or not isinstance(members, Iterable):
        raise DtypeError(
            f"members must be a list of scores; got {type(members).__name__}. Pass several, such as ensemble([a, b])."
        )
    given = tuple(members)
    if not given:
        raise OptionError("members must be at least one; got none. Pass the scores of several models.")
    return given


def _shares(weights: Iterable[SupportsFloat] | None, n_members: int) -> tuple[float, ...]:
    """Return weights over their exact sum, each rounded once."""
    if weights is not None and (not isinstance(weights, Iterable) or isinstance(weights, (set, frozenset, Mapping))):
        raise OptionError(f"weights must be one for each of the {n_members} members; got {weights!r}. Pass a list.")
    refuse_masked(weights, "weights")
    for index in axes_of(weights, "weights")[:1]:
        check_names(default_names(n_members, "members"), index, "member", OptionError)
    given = [1] * n_members if weights is None else list(weights)
    if len(given) != n_members:
        raise OptionError(f"weights must be one for each of the {n_members} members; got {len(given)}. Pass as many.")
    exact = [_positive(weight) for weight in given]
    shares = tuple(float(weight / sum(exact)) for weight in exact)
    if 0.0 in shares:
        raise OptionError(
            f"weights must not be vanishing shares of their sum; got {given[shares.index(0.0)]!r}. Leave that member out."
        )
    return shares


def _positive(weight: Any) -> Fraction:
    try:
        if not isinstance(weight, (bool, str)) and math.isfinite(weight) and weight > 0:
            return Fraction(weight.item() if isinstance(weight, np.generic) else weight)
    except (TypeError, ValueError):
        pass
    raise OptionError(f"weights must be positive numbers; got {weight!r}. Leave a member out instead of weighing it 0.")


def _check_members(sources: Sequence[Source]) -> None:
    for number, source in enumerate(sources):
        refuse_truncated(source, "an ensemble")
        ours, theirs = ((*each.lead, each.shape[1]) for each in (sources[0], source))
        if ours != theirs:
            raise ScoresError(
                f"members must have the same shape; got {ours} of the first and {theirs} of member "
                f"{number}{source.location and f', {source.location}'}. Give scores of the same samples and classes."
            )


def numbered(members: Sequence[ScoresLike]) -> dict[str, ScoresLike]:
    """Return members by their names in errors."""
    return {f"members[{number}]": member for number, member in enumerate(members)}


def _common_labels(sources: Sequence[Source]) -> Labels:
    """Return the labels of the first source that has some; refuse others that differ."""
    known = [(number, source.labels) for number, source in enumerate(sources) if source.labels is not None]
    for number, labels in known[1:]:
        at = _first_difference(known[0][1], labels)
        if at is not None:
            raise LabelsError(
                f"labels of all members must be the same; got others of member {number} than of member {known[0][0]}, the "
                f"first at sample {at}. Give the labels that are meant."
            )
    return known[0][1] if known else None


def _first_difference(ours: Labels, theirs: Labels) -> int | None:
    """Return the first sample whose labels differ, or None. Equal digests save reading them."""
    assert ours is not None
    assert theirs is not None
    if ours.ndim != theirs.ndim:
        return 0
    if _digest(ours) is not None and _digest(ours) == _digest(theirs):
        return None
    mine, others = _plain(ours), _plain(theirs)
    differs = mine != others.rechunk(mine.chunks)
    rows = differs.any(axis=1) if differs.ndim == 2 else differs
    some, first = da.compute(rows.any(), rows.argmax())
    return int(first) if some else None


def _digest(labels: Labels) -> str | None:
    """Return a digest of stored labels that identifies their values, or None if there is none."""
    if not is_stored(labels) or (manifest := labels.store_path.store.checks.manifest) is None:
        return None
    return f"{labels.metadata.to_dict()} {table_digest(manifest.table)}"


def _plain(labels: Labels) -> da.Array:
    """Return labels as a Dask array; unlabelled ones are -1."""
    array = lazy_array(labels) if is_stored(labels) else da.asarray(labels)
    return np.maximum(array.astype(np.int64), -1) if array.ndim == 1 else array
