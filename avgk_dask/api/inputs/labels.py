"""Labels and groups as users pass them: sources that must have labels, and groups of samples."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import dask.array as da
import numpy as np
import xarray as xr

from ...arrays import Array, Ints
from ...bands.passes import pack
from ...errors import DtypeError, LabelsError, OptionError, ScoresError, StoreError
from ...masks import plain_array, plain_block
from ...sources.row_values import labels_in_memory, lazy_array
from ...sources.source import Source
from ...sources.transforms import Activation
from ...statistics.losses import ProbabilityTally
from ...statistics.truncated import refuse_truncated
from ...store import is_zarr
from ..options import LabelsLike, Matrix, ScoresLike, is_stored
from .lazy_scores import flat_column
from .names import check_inputs, compute_frame, names_of
from .sources import aligned, as_labels, as_source, find_labels, opened


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
    """Return the source of scores with labels, and refuse others; ``what`` needs them (class numbers if ``hard``)."""
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


def logits_of(source: Source) -> tuple[Source, str, float]:
    """Return the logits of a source of probabilities, and what makes these of them; else itself and nothing."""
    last = source.transforms[-1] if source.transforms else None
    if not isinstance(last, Activation):
        return source, "", 1.0
    return replace(source, transforms=source.transforms[:-1]), last.name, last.temperature


def probabilities(
    scores: ScoresLike, labels: LabelsLike, what: str, where: LabelsLike, ignore_index: int | None
) -> Source:
    """Return the source of scores that have labels and whole rows; ``what`` needs them."""
    source = labelled_source(scores, labels, what, where=where, ignore_index=ignore_index)
    refuse_truncated(source, what)
    return source


def refuse_scores(tally: ProbabilityTally, source: Source, link: str) -> None:
    """Raise if scores are not probabilities, or logits give none."""
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
    """Refuse any policy but ``"raise"``."""
    if not isinstance(nan_policy, str) or nan_policy != "raise":
        raise OptionError(
            f"nan_policy must be 'raise' for a loss; got {nan_policy!r}. Correct the NaN, or leave those samples out."
        )


@dataclass(frozen=True)
class Groups:
    """The group of each sample, including those left out, as a column in memory or in blocks."""

    column: Array | da.Array

    @classmethod
    def of(
        cls,
        given: LabelsLike,
        scores: ScoresLike,
        source: Source,
        what: str,
        missing: str | None = None,
        **others: LabelsLike,
    ) -> Groups:
        """Return the groups of a source's samples; ``what`` is the argument's name, ``missing`` as in ``as_source``.

        ``others`` are inputs of the same call that may name samples, such as labels.

        Raises
        ------
        DtypeError, LabelsError
            If they are not integers, or not one per sample.

        """
        given = compute_frame(given)
        found = _found(given, scores, what, missing)
        is_place = isinstance(given, (str, os.PathLike))
        others = {name: values for name, values in others.items() if not isinstance(values, (str, os.PathLike))}
        named = {**others, what: found if is_place else given}
        check_inputs(partial(names_of, scores, "scores"), len(source.lead), **named)
        if found.dtype.kind not in "iu":
            raise DtypeError(
                f"{what} must be integers; got dtype {found.dtype}. Number them, for example with "
                f"numpy.unique({what}, return_inverse=True)[1]."
            )
        if tuple(found.shape) != tuple(source.lead):
            raise LabelsError(
                f"{what} must have the samples' shape {tuple(source.lead)}; got shape {tuple(found.shape)}. "
                "Give the group of each sample."
            )
        column: Any = flat_column(found, source.whole.shape[0])
        return cls(lazy_array(column) if is_stored(column) else column)

    def names(self) -> Ints:
        """Return the numbers of the groups there are, ascending; groups in blocks are computed."""
        lazy = not isinstance(self.column, np.ndarray)
        found = da.unique(self.column).compute() if lazy else np.unique(self.column)
        if found.size and found[-1] > np.iinfo(np.int64).max:
            raise DtypeError(
                f"groups must be integers below 2**63; got {found[-1]}. Number them, for example with "
                "numpy.unique(groups, return_inverse=True)[1]."
            )
        return np.asarray(found, np.int64)

    def codes(self, names: Ints) -> Array | da.Array:
        """Return for each sample the place of its group among these; one past the last for others."""
        if isinstance(self.column, np.ndarray):
            return _codes(self.column, names)
        return self.column.map_blocks(_codes, names, dtype=np.int64, meta=np.empty(0, np.int64))

    def numbered(self) -> tuple[Ints, Ints]:
        """Return the groups there are, ascending, and the number of each sample's among them, in memory."""
        names = self.names()
        numbers = labels_in_memory(self.codes(names))
        assert numbers is not None
        return names, numbers

    def beside_labels(self, source: Source, names: Ints) -> Source:
        """Return the source with labels and groups in one column."""
        labels: Any = source.labels
        codes: Any = self.codes(names)
        if labels is None:
            labels = np.full(codes.shape[0], -1, np.int8)
        if isinstance(labels, np.ndarray) and isinstance(codes, np.ndarray):
            return source.with_labels(pack(labels, codes, source.shape[1]))
        column = lazy_array(labels) if is_stored(labels) else da.asarray(labels)
        codes = da.asarray(codes).rechunk(column.chunks)
        made = da.map_blocks(pack, column, codes, source.shape[1], dtype=np.int64, meta=np.empty(0, np.int64))
        return source.with_labels(made)


def _found(given: LabelsLike, scores: ScoresLike, what: str, missing: str | None) -> Matrix:
    if isinstance(given, xr.DataArray):
        frame = scores["scores"] if isinstance(scores, xr.Dataset) and "scores" in scores else scores
        given = aligned(frame, given, what) if isinstance(frame, xr.DataArray) else given
        given = given.data if isinstance(given, xr.DataArray) else given
    if isinstance(given, (str, os.PathLike)) or is_zarr(given):
        try:
            return find_labels(given, missing=missing)
        except StoreError as error:
            raise StoreError(f"{what} must be integers, one a sample, or where they are stored: {error}") from None
    if isinstance(given, da.Array):
        plain_block(given._meta, what, LabelsError)
        return given
    return plain_array(given, what, LabelsError)


def _codes(column: Array, names: Ints) -> Ints:
    values = column.astype(np.int64)
    if not names.size:
        return np.zeros(values.shape, np.int64)
    places = np.minimum(np.searchsorted(names, values), names.size - 1)
    met = (names[places] == values) & ((values < 0) == (column < 0))  # unsigned ones from 2**63 on turn negative
    return np.where(met, places, names.size)
