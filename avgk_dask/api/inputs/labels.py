"""Labels and groups as users pass them: sources that must have labels, and groups of samples."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Unpack

import dask.array as da
import numpy as np
import xarray as xr

from ...arrays import Array, Ints
from ...bands.passes import pack
from ...bands.probabilities import LINKS
from ...errors import DtypeError, LabelsError, OptionError, ScoresError, StoreError
from ...masks import block_to_ndarray, to_ndarray
from ...sources.row_values import labels_in_memory, lazy_array
from ...sources.source import Source
from ...sources.transforms import Activation
from ...statistics.losses import ProbabilityTally
from ...statistics.truncated import refuse_truncated
from ..options import LabelsLike, Matrix, Opening, ScanOptions, ScoresLike, is_stored
from .lazy_scores import flat_column, scores_variable
from .names import check_inputs, compute_frame, is_place, names_of
from .sources import align, as_labels, as_source, find_labels, open_input


def labelled_source(
    scores: ScoresLike, labels: LabelsLike, purpose: str, *, hard: bool = False, **opening: Unpack[Opening]
) -> Source:
    """Return the source of scores that must have labels for a purpose, class numbers if ``hard``."""
    source = as_source(scores, labels, **opening)
    if source.labels is None:
        raise LabelsError(
            f"labels are required for {purpose}; none were passed, and none are stored with the scores. Pass "
            f"class numbers{'' if hard else ' or probabilities'}."
        )
    return source


def refuse_without_classes(source: Source, purpose: str) -> None:
    """Refuse missing labels and probabilities for an option that needs class numbers."""
    if source.labels is None or source.has_soft_labels:
        got = "none" if source.labels is None else "a matrix"
        raise LabelsError(
            f"labels must be class numbers for {purpose}; got {got}. Pass one for each sample, or leave it out."
        )


def refuse_soft(source: Source, purpose: str) -> None:
    """Refuse labels that are probabilities."""
    if source.has_soft_labels:
        raise LabelsError(f"labels must be class numbers for {purpose}; got a matrix. Pass one label for each sample.")


def class_labels(source: Source, scores: ScoresLike, labels: LabelsLike, missing: str | None = None) -> Array:
    """Return the class numbers of all samples, in memory. A truncated source itself has slots as labels instead."""
    column = source.labels
    if source.truncation is not None:
        stored = open_input(scores, missing).labels if labels is None else labels  # type: ignore[attr-defined]
        column = as_labels(
            stored, (*source.sample_shape, source.n_classes), missing, partial(names_of, scores, "scores")
        )
    numbers = labels_in_memory(column)
    assert numbers is not None  # the caller checked that there are labels
    return numbers


def activation_of(source: Source) -> Activation | None:
    """Return the activation that gives the scores of a source, or None if they are not computed from logits."""
    last = source.transforms[-1] if source.transforms else None
    return last if isinstance(last, Activation) else None


def logits_of(source: Source) -> tuple[Source, str, float]:
    """Return the logits of a source, with the activation and temperature to compute losses from them.

    If losses take no logits of the activation (``LINKS``), or there is none, return the source itself and ``""``.
    """
    last = activation_of(source)
    if last is None or last.name not in LINKS:
        return source, "", 1.0
    return replace(source, transforms=source.transforms[:-1]), last.name, last.temperature


def probabilities(scores: ScoresLike, labels: LabelsLike, purpose: str, options: ScanOptions) -> Source:
    """Return the source of probabilities with labels; refuse truncated rows, and any policy for NaN but "raise"."""
    if options.nan_policy != "raise":
        raise OptionError(
            f"nan_policy must be 'raise' for {purpose}; got {options.nan_policy!r}. "
            "Correct the NaN, or leave those samples out."
        )
    source = labelled_source(scores, labels, purpose, **options.opening)
    refuse_truncated(source, purpose)
    return source


def refuse_scores(tally: ProbabilityTally, source: Source, link: str) -> None:
    """Raise if scores are not probabilities, or logits do not give probabilities."""
    if not tally.n_refused:
        return
    sample = source.sample_number(*tally.first_refused[:2])
    if link:
        raise ScoresError(
            f"scores must have a finite maximum in each row for a softmax; the maximum of sample {sample} is infinite. "
            "Correct it, or leave the sample out."
        )
    raise ScoresError(
        f"scores must be probabilities in [0, 1]; got {tally.n_refused:,} samples with others, the first is sample {sample}. "
        "Pass softmax(scores) or sigmoid(scores) if they are logits."
    )


@dataclass(frozen=True)
class Groups:
    """The group of each sample, including those left out, as a column in memory or in blocks."""

    column: Array | da.Array

    @classmethod
    def from_input(
        cls,
        groups: LabelsLike,
        scores: ScoresLike,
        source: Source,
        argument: str,
        missing: str | None = None,
        **others: LabelsLike,
    ) -> Groups:
        """Return the groups of a source's samples; refuse groups that are not integers, or not one per sample.

        ``argument`` is their name in errors. ``others`` are inputs of the same call whose sample names are compared.
        """
        groups = compute_frame(groups)
        array = _open_groups(groups, scores, argument, missing)
        others = {name: values for name, values in others.items() if not isinstance(values, (str, os.PathLike))}
        named = {**others, argument: array if isinstance(groups, (str, os.PathLike)) else groups}
        check_inputs(partial(names_of, scores, "scores"), len(source.sample_shape), **named)
        if array.dtype.kind not in "iu":
            raise DtypeError(f"{argument} must be integers; got dtype {array.dtype}. {_numbering(argument)}")
        if tuple(array.shape) != tuple(source.sample_shape):
            raise LabelsError(
                f"{argument} must have the samples' shape {tuple(source.sample_shape)}; got shape {tuple(array.shape)}. "
                "Give the group of each sample."
            )
        column: Any = flat_column(array, source.unfiltered.shape[0])
        return cls(lazy_array(column) if is_stored(column) else column)

    def names(self) -> Ints:
        """Return the distinct groups, ascending; groups in blocks are computed."""
        lazy = not isinstance(self.column, np.ndarray)
        names = da.unique(self.column).compute() if lazy else np.unique(self.column)
        if names.size and names[-1] > np.iinfo(np.int64).max:
            raise DtypeError(f"groups must be integers below 2**63; got {names[-1]}. {_numbering('groups')}")
        return np.asarray(names, np.int64)

    def codes(self, names: Ints) -> Array | da.Array:
        """Return the position of each sample's group among these; one past the last for other groups."""
        if isinstance(self.column, np.ndarray):
            return _codes(self.column, names)
        return self.column.map_blocks(_codes, names, dtype=np.int64, meta=np.empty(0, np.int64))

    def numbered(self) -> tuple[Ints, Ints]:
        """Return the distinct groups, ascending, and the position of each sample's group among them, in memory."""
        names = self.names()
        numbers = labels_in_memory(self.codes(names))
        assert numbers is not None
        return names, numbers

    def pack_with_labels(self, source: Source, names: Ints) -> Source:
        """Return the source with labels and groups in one column."""
        labels: Any = source.labels
        codes: Any = self.codes(names)
        if labels is None:
            labels = np.full(codes.shape[0], -1, np.int8)
        if isinstance(labels, np.ndarray) and isinstance(codes, np.ndarray):
            return source.with_labels(pack(labels, codes, source.shape[1]))
        column = lazy_array(labels) if is_stored(labels) else da.asarray(labels)
        codes = da.asarray(codes).rechunk(column.chunks)
        packed = da.map_blocks(pack, column, codes, source.shape[1], dtype=np.int64, meta=np.empty(0, np.int64))
        return source.with_labels(packed)


def _numbering(argument: str) -> str:
    return f"Number them, for example with numpy.unique({argument}, return_inverse=True)[1]."


def _open_groups(groups: LabelsLike, scores: ScoresLike, argument: str, missing: str | None) -> Matrix:
    if isinstance(groups, xr.DataArray):
        frame = scores_variable(scores)
        groups = align(frame, groups, argument) if isinstance(frame, xr.DataArray) else groups
        groups = groups.data if isinstance(groups, xr.DataArray) else groups
    if is_place(groups):
        try:
            return find_labels(groups, missing=missing)
        except StoreError as error:
            raise StoreError(
                f"{argument} must be one integer per sample, or the path of stored integers: {error}"
            ) from None
    if isinstance(groups, da.Array):
        block_to_ndarray(groups._meta, argument, LabelsError)
        return groups
    return to_ndarray(groups, argument, LabelsError)


def _codes(column: Array, names: Ints) -> Ints:
    values = column.astype(np.int64)
    if not names.size:
        return np.zeros(values.shape, np.int64)
    positions = np.minimum(np.searchsorted(names, values), names.size - 1)
    is_known = (names[positions] == values) & ((values < 0) == (column < 0))  # uint64 from 2**63 on turns negative
    return np.where(is_known, positions, names.size)
