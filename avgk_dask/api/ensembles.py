"""``ensemble``: the weighted mean of several models' scores, computed while they are read."""

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
from ..sources.ensembles import EnsembleReader, mean_dtype, tolerate_bad_rows
from ..sources.row_values import Labels, lazy_array
from ..sources.source import Source
from ..sources.transforms import Softmax
from ..statistics.truncated import refuse_truncated
from ..store.read.manifest import table_digest
from .inputs.lazy_scores import LazyScores
from .inputs.names import check_inputs, check_same_names, names_of
from .inputs.sources import align, as_source, select_samples
from .options import LabelsLike, ScoresLike, SourceOptions, check_word, is_stored

#: The kind of scores that are averaged.
Mean = Literal["probabilities", "logits"]


@dataclass(frozen=True, repr=False, eq=False)
class Ensemble(LazyScores):
    """The weighted mean of several matrices, or its softmax; see ``ensemble``."""

    members: tuple[ScoresLike, ...]
    #: Their sum is 1, up to rounding.
    weights: tuple[float, ...]
    of: str = "probabilities"

    def as_source(self, labels: LabelsLike, **options: Unpack[SourceOptions]) -> Source:  # noqa: D102
        where, ignore_index, missing = options.get("where"), options.get("ignore_index"), options.get("missing")
        own_labels = options.get("own_labels", True)
        if (frame := self.frame) is not None:
            labels, where = align(frame, labels, "labels"), align(frame, where, "where")
        stored = labels is None and (own_labels or ignore_index is not None)
        first = as_source(self.members[0], labels, own_labels=stored, missing=missing)
        sources = [first, *(as_source(member, own_labels=stored, missing=missing) for member in self.members[1:])]
        check_inputs(partial(names_of, self, "scores"), len(first.sample_shape), labels=labels, where=where)
        _check_members(sources)
        column = _common_labels(sources)
        is_masked = where is not None or ignore_index is not None
        members = [(tolerate_bad_rows(source) if is_masked else source).with_labels(None) for source in sources]
        reader = EnsembleReader(members, self.weights, in_float64=self.of == "logits")
        mean = select_samples(Source(reader).with_labels(column), where, ignore_index)
        mean = mean if own_labels or labels is not None else mean.with_labels(None)
        if self.of != "logits":
            return mean
        dtype = mean_dtype(sources)
        return mean.with_transform(Softmax(1.0, mean.dtype, mean.location, mean.mask is not None, rounded_to=dtype))

    @property
    def parts(self) -> Sequence[object]:  # noqa: D102
        return self.members

    def __repr__(self) -> str:
        return self._describe(f"{'softmax of the ' * (self.of == 'logits')}mean of {len(self.members)} members")


def ensemble(
    members: Iterable[ScoresLike], weights: Iterable[SupportsFloat] | None = None, of: Mean = "probabilities"
) -> LazyScores:
    """Return the weighted mean of several models' scores, computed while they are read.

    Nothing is stored, and every function accepts the result as scores. The sum w[0] s[0] + w[1] s[1] + ... is computed in
    float64 in this order, and rounded once at the end: the same bits for any chunking of any member.

    Parameters
    ----------
    members
        Scores of the same samples and classes, usually two or more: NumPy, Dask or Zarr arrays, xarray objects, paths
        of stores, or lazy scores such as ``softmax(...)``. Dtypes and chunks may differ.
    weights
        One positive number per member, by default all equal. They are divided by their exact sum, then rounded.
    of
        ``"probabilities"``: the mean of the scores themselves. ``"logits"``: the softmax of their mean, which is not
        rounded before the softmax.

    Returns
    -------
    LazyScores
        float32, or float64 if a member has 64 bits. The labels come from the first member that has labels; if several
        members have labels, these must be equal, which is checked when labels are needed.

    Raises
    ------
    OptionError
        If there is no member, a weight is not a positive number or missing, or ``of`` is not one of its values.
    ScoresError
        If the members' shapes or coordinates differ, or one is truncated; later, if one holds NaN, or infinities of
        both signs meet.
    LabelsError
        Later, if members have different labels, and no others are given.
    StoreError
        If the store cannot be opened or read.

    Notes
    -----
    Cost: nothing by itself. Functions of the result read each member as often as they would read scores. They read bands
    that end at chunk boundaries of all members, so that each chunk is read once, after a pilot of a few whole bands. If
    such bands would exceed 64 MB, they end at the chunk boundaries of the member with the largest chunks, and chunks of
    other members that cross these are read twice. A task holds one band of each member and the sums in float64. Labels
    of several members are read once more to compare them, unless their manifests are equal.

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
    several = _check_list(members)
    mean = Ensemble(several, _normalise(weights, len(several)), of)
    check_same_names({f"members[{number}]": member for number, member in enumerate(several)})
    mean.as_source(None, own_labels=False)  # checks the members
    return mean


def _check_list(members: Iterable[ScoresLike]) -> tuple[ScoresLike, ...]:
    single = isinstance(members, (str, os.PathLike, Mapping, xr.Dataset, xr.DataArray, LazyScores))
    if single or hasattr(members, "shape") or not isinstance(members, Iterable):
        raise DtypeError(
            f"members must be a list of scores; got {type(members).__name__}. Pass several, such as ensemble([a, b])."
        )
    several = tuple(members)
    if not several:
        raise OptionError("members must contain at least one matrix; got none. Pass the scores of several models.")
    return several


def _normalise(weights: Iterable[SupportsFloat] | None, n_members: int) -> tuple[float, ...]:
    """Return the weights divided by their exact sum, each rounded once."""
    if weights is not None and (not isinstance(weights, Iterable) or isinstance(weights, (set, frozenset, Mapping))):
        raise OptionError(
            f"weights must have one entry for each of the {n_members} members; got {weights!r}. Pass a list."
        )
    refuse_masked(weights, "weights")
    for index in axes_of(weights, "weights")[:1]:
        check_names(default_names(n_members, "members"), index, "member", OptionError)
    values = [1] * n_members if weights is None else list(weights)
    if len(values) != n_members:
        raise OptionError(
            f"weights must have one entry for each of the {n_members} members; got {len(values)}. Pass one per member."
        )
    exact = [_parse_weight(weight) for weight in values]
    shares = tuple(float(weight / sum(exact)) for weight in exact)
    if 0.0 in shares:
        raise OptionError(
            f"weights must not vanish relative to their sum; got {values[shares.index(0.0)]!r}. Leave that member out."
        )
    return shares


def _parse_weight(weight: Any) -> Fraction:
    try:
        if not isinstance(weight, (bool, str)) and math.isfinite(weight) and weight > 0:
            return Fraction(weight.item() if isinstance(weight, np.generic) else weight)
    except (TypeError, ValueError):
        pass
    raise OptionError(f"weights must be positive numbers; got {weight!r}. Leave a member out instead of weighing it 0.")


def _check_members(sources: Sequence[Source]) -> None:
    for number, source in enumerate(sources):
        refuse_truncated(source, "an ensemble")
        ours, theirs = ((*each.sample_shape, each.shape[1]) for each in (sources[0], source))
        if ours != theirs:
            raise ScoresError(
                f"members must have the same shape; got {ours} for the first and {theirs} for member "
                f"{number}{source.location and f', {source.location}'}. Pass scores of the same samples and classes."
            )


def _common_labels(sources: Sequence[Source]) -> Labels:
    """Return the labels of the first source that has labels; refuse different labels."""
    known = [(number, source.labels) for number, source in enumerate(sources) if source.labels is not None]
    for number, labels in known[1:]:
        sample = _first_difference(known[0][1], labels)
        if sample is not None:
            raise LabelsError(
                f"labels of all members must be the same; got different ones for members {known[0][0]} and {number}, first "
                f"at sample {sample}. Pass the labels to use."
            )
    return known[0][1] if known else None


def _first_difference(ours: Labels, theirs: Labels) -> int | None:
    """Return the first sample whose labels differ, or None. Labels with equal digests are not read."""
    assert ours is not None
    assert theirs is not None
    if ours.ndim != theirs.ndim:
        return 0
    if _digest(ours) is not None and _digest(ours) == _digest(theirs):
        return None
    first, second = _as_dask(ours), _as_dask(theirs)
    differs = first != second.rechunk(first.chunks)
    rows = differs.any(axis=1) if differs.ndim == 2 else differs
    is_different, sample = da.compute(rows.any(), rows.argmax())
    return int(sample) if is_different else None


def _digest(labels: Labels) -> str | None:
    """Return a digest of stored labels that identifies their values, or None without a manifest."""
    if not is_stored(labels) or (manifest := labels.store_path.store.checks.manifest) is None:
        return None
    return f"{labels.metadata.to_dict()} {table_digest(manifest.table)}"


def _as_dask(labels: Labels) -> da.Array:
    """Return labels as a Dask array, -1 for unlabelled samples."""
    array = lazy_array(labels) if is_stored(labels) else da.asarray(labels)
    return np.maximum(array.astype(np.int64), -1) if array.ndim == 1 else array
