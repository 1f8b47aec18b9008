"""``ConformalPredictor``: the thresholds from ``calibrate``, and their sets for new samples."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction

import dask.array as da
import numpy as np
import xarray as xr

from ...arrays import Array, Ints
from ...bands.conformal import ConformalMethod
from ...errors import OptionError, ScoresError
from ...files.sealed import FileKind
from ...results.text import ShownAsTable
from ...sources.source import Source
from ...statistics.rules import CostRule, TopRule
from ...statistics.truncated import certify_ranks, refuse_truncated
from ..inputs.labels import Groups
from ..inputs.names import check_class_names, class_names_of, open_once
from ..inputs.sources import as_lazy, as_source
from ..options import BudgetsLike, LabelsLike, Missing, NanPolicy, PlaceLike, ScanOptions, ScoresLike
from ..sets import apply_rule, like_scores
from .evaluation import CoverageOptions, evaluate_sets

PREDICTOR_FILE = FileKind(
    "conformal predictor", "avgk_dask conformal predictor", 1, "Calibrate and save it again.", "int64"
)


def check_method(
    method: type[ConformalMethod] | ConformalMethod, source: Source, by: str | None, nan_policy: str
) -> None:
    """Refuse scores and options that a method does not support."""
    if by is not None or method.sums_probabilities:
        refuse_truncated(source, f"thresholds by {by}" if by is not None else f"the method {method.name!r}")
    if method.sums_probabilities and nan_policy != "raise":
        raise OptionError(
            f"nan_policy must be 'raise' for the method {method.name!r}; got {nan_policy!r}. Correct the NaN, or leave those samples out."
        )


@dataclass(frozen=True, eq=False, repr=False)
class ConformalPredictor(ShownAsTable):
    """Sets that contain the label of a new sample with probability at least 1 - alpha; made by ``conformal.calibrate``.

    Two predictors are equal if all their attributes except ``reads`` are.

    Attributes
    ----------
    method
        The name of the method, as in ``calibrate``.
    alpha
        The allowed error rate, as the nearest float.
    threshold
        LAC: a class is in the set iff its score >= threshold; ``-inf`` for all classes. APS, RAPS: iff its cumulative
        score <= threshold; ``inf`` for all classes. top_k: the number of ranks in each set. With ``by`` an array, with
        one value per class or group.
    rank
        ceil((n + 1)(1 - alpha)): the rank of the threshold among the n calibration scores; an array with ``by``.
    n_calibration
        n, the number of labelled calibration samples; an array with ``by``.
    n_classes
        C.
    by
        None, ``"class"`` or ``"group"``.
    groups
        The groups, ascending, with ``by="group"``; otherwise None.
    penalty, k_reg
        The parameters of RAPS; 0 for other methods.
    seed
        Seed of the random numbers; None for deterministic sets.
    reads
        Number of reads of the calibration scores.
    class_names
        Names of the classes, or None if the calibration scores had none. Scores whose names differ are refused.

    Examples
    --------
    >>> import numpy as np, avgk_dask as avgk
    >>> scores = np.array([[0.7, 0.2, 0.1], [0.5, 0.4, 0.1], [0.1, 0.3, 0.6], [0.2, 0.5, 0.3]])
    >>> predictor = avgk.conformal.calibrate(scores, np.array([0, 1, 2, 2]), alpha=0.25)
    >>> predictor.threshold, predictor.rank, predictor
    (0.3, 4, ConformalPredictor: lac, alpha 0.25, threshold 0.3, rank 4 of 4)
    >>> predictor.sets(scores[:2]).compute().astype(int)
    array([[1, 0, 0],
           [1, 1, 0]])
    """

    method: str
    alpha: float
    threshold: float | int | Array
    rank: int | Ints
    n_calibration: int | Ints
    n_classes: int
    by: str | None
    groups: Ints | None
    penalty: float
    k_reg: int
    seed: int | None
    reads: int
    #: Exact alpha and penalty, the method for the calibration scores, and the level of each threshold.
    _alpha: Fraction = field(repr=False)
    _penalty: Fraction = field(repr=False)
    _method: ConformalMethod = field(repr=False)
    _levels: Ints = field(repr=False)
    class_names: tuple[str, ...] | None = field(default=None, repr=False)

    def sets(
        self,
        scores: ScoresLike,
        *,
        groups: LabelsLike = None,
        where: LabelsLike = None,
        ignore_index: int | None = None,
        nan_policy: NanPolicy = "raise",
    ) -> da.Array | xr.DataArray:
        """Return the sets of new samples: a lazy boolean array, chunked like the scores; one read once computed.

        Parameters
        ----------
        scores
            N x C matrix, classes last, all other axes samples: any array, a frame, or the path of a store or file.
        groups
            One integer per sample, for a predictor by group. Groups that did not occur in calibration get all classes.
        where
            One boolean per sample; samples with False (padding) are excluded. By default all samples are used.
        ignore_index
            Label of samples to exclude: short for ``where=labels != ignore_index``. Both apply if both are passed.
        nan_policy
            ``"raise"`` refuses NaN; ``"lowest"`` ranks NaN below all numbers and never puts it in a set.

        Returns
        -------
        DataArray or dask Array
            Boolean, of the scores' shape; a DataArray if the scores are one. Samples left out have empty sets.

        Raises
        ------
        OptionError
            If groups are missing, or given although the predictor is not by group.
        ScoresError, DtypeError
            If the classes differ from the calibration scores, the scores are not a matrix of real numbers, or a
            truncated store does not determine the sets. When computed: if they contain NaN, or are not probabilities
            but must be.

        Notes
        -----
        Cost: one read when computed, none before. The sets take one byte per score.

        Examples
        --------
        >>> import numpy as np, avgk_dask as avgk
        >>> scores = np.array([[0.75, 0.25], [0.5, 0.5], [0.25, 0.75]])
        >>> predictor = avgk.conformal.calibrate(scores, np.array([0, 0, 1]), alpha=0.5)
        >>> predictor.sets(np.array([[0.75, 0.25]])).compute()
        array([[ True, False]])
        """
        reading = ScanOptions(where=where, ignore_index=ignore_index, nan_policy=nan_policy)
        scores = open_once(scores)
        source, frame = as_lazy(scores, **reading.opening)
        sets = set_matrix(self, source, scores, groups, nan_policy)
        return like_scores(sets, source, frame, "conformal_sets", method=self.method, alpha=self.alpha)

    def evaluate(
        self,
        scores: ScoresLike,
        labels: LabelsLike = None,
        *,
        groups: LabelsLike = None,
        levels: BudgetsLike = 0.5,
        confidence: float = 0.95,
        where: LabelsLike = None,
        ignore_index: int | None = None,
        nan_policy: NanPolicy = "raise",
        progress: bool | None = None,
        missing: Missing | None = None,
    ) -> xr.Dataset:
        """Compute coverage and sizes of the sets of new samples, by size and by class, and p-values of the coverage.

        Parameters
        ----------
        scores
            N x C matrix, classes last, all other axes samples: any array, a frame, or the path of a store or file.
        labels
            N integers (negative, masked or null: unlabelled) or N class names; or the path of a store or file that
            holds them. By default the labels stored with the scores.
        groups
            One integer per sample, for a predictor by group.
        levels
            The coverages that ``share_below`` uses, each from 0 to 1.
        confidence
            The probability of the interval of hits, between 0 and 1.
        where
            One boolean per sample; samples with False (padding) are excluded. By default all samples are used.
        ignore_index
            Label of samples to exclude: short for ``where=labels != ignore_index``. Both apply if both are passed.
        nan_policy
            ``"raise"`` refuses NaN; ``"lowest"`` ranks NaN below all numbers and never puts it in a set.
        progress
            Whether to show a progress bar on stderr. None logs one line per minute to ``avgk_dask`` instead.
        missing
            What a chunk missing from a store means: ``"raise"`` an error that names it (the default), ``"fill"`` the
            array's fill value.

        Returns
        -------
        Dataset
            For a truncated store without the variables by class. Variables about labels are NaN without labels.
        ``coverage, coverage_stderr, n_hits, average_set_size``
            The share c of labelled samples whose set contains the label, its standard error sqrt(c (1 - c) / n), the
            number of these samples, and the mean size of all sets.
        ``set_size_count, set_hit_count, size_coverage``
            Over ``size``: the number of sets, the number that contain the label, and their share of labelled samples.
        ``class_n_labelled, class_coverage, class_average_set_size``
            The same over ``class``, with ``class_name`` if names are known. A predictor by group also has the ``group_``
            variables over ``group``.
        ``class_p_value_low``
            For a predictor by class (``group_`` for one by group): the probability of at most the observed hits of the
            class, as for ``p_value_low``.
        ``macro_coverage, share_below``
            For the classes that occur: their mean coverage, and over ``level`` the share whose coverage is below the level.
        ``hits_low, hits_high``
            Interval that contains ``n_hits`` with probability ``confidence``, given the rank and both sample counts.
        ``p_value_low, p_value_high``
            The probability of ``n_hits`` or fewer, and of ``n_hits`` or more, by the beta-binomial law of one threshold
            without ties. Ties add hits, so that ``p_value_low`` stays valid. All four are NaN for several thresholds.

        Raises
        ------
        OptionError
            As for ``sets``, or if ``levels`` or ``confidence`` are out of range.
        ScoresError, DtypeError
            As for ``sets``.
        LabelsError
            If labels or groups do not fit the scores, or labels are probabilities.
        MemoryLimitError, StoreError
            If a task cannot fit its share of memory (checked before reading), or the store cannot be opened or read.

        Notes
        -----
        Cost: one read of the store, two of a truncated one. Memory grows with classes and groups, not with samples.

        Examples
        --------
        >>> import numpy as np, avgk_dask as avgk
        >>> scores = np.array([[0.75, 0.25], [0.5, 0.5], [0.25, 0.75]])
        >>> predictor = avgk.conformal.calibrate(scores, np.array([0, 0, 1]), alpha=0.5)
        >>> result = predictor.evaluate(scores, np.array([0, 1, 0]))
        >>> int(result.n_hits), float(result.average_set_size), result.set_size_count.values.tolist()
        (1, 0.6666666666666666, [1, 2])
        """
        reading = ScanOptions(
            where=where, ignore_index=ignore_index, nan_policy=nan_policy, progress=progress, missing=missing
        )
        scores = open_once(scores, missing)
        source = as_source(scores, labels, **reading.opening)
        self._check(source, scores, groups, nan_policy)
        if groups is not None:
            column = Groups.from_input(groups, scores, source, "groups", missing, labels=labels, where=where)
            source = column.pack_with_labels(source, self._names)
        options = CoverageOptions.parse(levels, confidence)
        with reading.run(source) as run:
            return evaluate_sets(run, self, self._rule(source), options, class_names_of(scores))

    def save(self, path: PlaceLike) -> None:
        """Write the predictor to a JSON file, which ``conformal.load`` reads.

        Parameters
        ----------
        path
            Path of the file. An existing file is replaced.
        """
        PREDICTOR_FILE.write(path, self._content())

    @property
    def _counts(self) -> Ints:
        return np.atleast_1d(self.n_calibration)

    @property
    def _ranks(self) -> Ints:
        return np.atleast_1d(self.rank)

    @property
    def _names(self) -> Ints:
        return np.zeros(0, np.int64) if self.groups is None else self.groups

    def _content(self) -> dict[str, object]:
        """Return the content of its file."""
        return {
            "method": self.method, "alpha": str(self._alpha), "by": self.by, "penalty": str(self._penalty),
            "k_reg": self.k_reg, "seed": self.seed, "n_classes": self.n_classes, "dtype": self._method.dtype.name,
            "reads": self.reads, "levels": self._levels, "n_calibration": self._counts,
            "groups": self._names, "class_names": None if self.class_names is None else list(self.class_names),
        }  # fmt: skip

    def _rule(self, source: Source) -> CostRule:
        """Return the rule for a source, whose dtype may differ from the calibration scores."""
        every = self._method.everything_in(self._levels, self._counts, self._ranks)
        levels, empty = self._method.levels_on(source.dtype, self._levels, every)
        method = self._method.on_new_samples(source.dtype)
        if self.by == "group":  # one more for the groups that did not occur in calibration
            levels, empty = np.append(levels, method.everything), np.append(empty, False)
        return CostRule(method, levels, self.by or "", empty if empty.any() else None)

    def _check(self, source: Source, scores: ScoresLike, groups: LabelsLike, nan_policy: str) -> None:
        """Refuse scores of another model, missing or needless groups, and options that the method does not support."""
        if source.n_classes != self.n_classes:
            raise ScoresError(
                f"scores must have {self.n_classes} classes, like the calibration scores; got {source.n_classes}. Pass "
                "scores of the same model."
            )
        check_class_names(scores, self.class_names, "the predictor", "list(predictor.class_names)")
        check_method(self._method, source, self.by, nan_policy)
        last_rank = self._method.last_rank(self._levels, self.n_classes)
        if last_rank is not None:
            certify_ranks(source, last_rank, "alpha")
        if groups is None and self.by == "group":
            raise OptionError(
                "groups are required for a predictor calibrated by group; got None. Pass the group of each sample."
            )
        if groups is not None and self.by != "group":
            raise OptionError("groups must be None unless the predictor was calibrated by group. Leave them out.")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ConformalPredictor):
            return NotImplemented
        ours, theirs = self._content(), other._content()
        return all(np.array_equal(np.asarray(ours[n]), np.asarray(theirs[n])) for n in ours if n != "reads")

    def __hash__(self) -> int:
        return hash((self.method, self._alpha, self.by, self._levels.tobytes()))

    def __repr__(self) -> str:
        text = f"ConformalPredictor: {self.method}, alpha {self.alpha:g}"
        if self.by is None:
            few = (
                " (too few samples for this alpha: sets hold every class)" if (self._ranks > self._counts).any() else ""
            )
            return f"{text}, threshold {self.threshold:.6g}, rank {self.rank:,} of {self.n_calibration:,}{few}"
        n_open = int((self._ranks > self._counts).sum())
        kind = "classes" if self.by == "class" else "groups"
        return f"{text}, thresholds of {self._levels.size:,} {kind}, {n_open:,} of which have too few samples"


def set_matrix(
    predictor: ConformalPredictor, source: Source, scores: ScoresLike, groups: LabelsLike, nan_policy: str
) -> da.Array:
    """Return the sets for the source of some scores, as a lazy matrix (sample, class)."""
    predictor._check(source, scores, groups, nan_policy)
    codes = None
    if groups is not None:
        codes = da.asarray(Groups.from_input(groups, scores, source, "groups").codes(predictor._names))
    last_rank = predictor._method.last_rank(predictor._levels, predictor.n_classes)
    if last_rank is not None and predictor.by is None:
        return apply_rule(source, TopRule(last_rank), nan_policy)
    return apply_rule(source, predictor._rule(source), nan_policy, codes)
