"""``ConformalPredictor``: the thresholds that ``calibrate`` found, and the sets that they give for new samples."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction

import dask.array as da
import numpy as np
import xarray as xr

from ...arrays import Array, Ints
from ...bands.conformal import ConformalMethod
from ...engine.run import running
from ...errors import OptionError, ScoresError
from ...files.sealed import FileKind
from ...results.text import ShownAsTable
from ...sources.source import Source
from ...statistics.rules import CostRule, TopRule
from ...statistics.truncated import certify_ranks, refuse_truncated
from ..inputs.labels import Groups
from ..inputs.lazy_scores import with_lead
from ..inputs.names import check_class_names, class_names_of, open_once
from ..inputs.sources import as_lazy, as_source
from ..options import BudgetsLike, LabelsLike, PlaceLike, ScoresLike, check_flag, check_nan_policy
from ..sets import apply_rule
from .evaluation import CoverageOptions, evaluate_sets

PREDICTOR_FILE = FileKind(
    "conformal predictor", "avgk_dask conformal predictor", 1, "Calibrate and save it again.", "int64"
)


def check_method(
    method: type[ConformalMethod] | ConformalMethod, source: Source, by: str | None, nan_policy: str
) -> None:
    """Refuse what a method cannot do with these scores."""
    if by is not None or method.sums_probabilities:
        refuse_truncated(source, f"thresholds by {by}" if by is not None else f"the method {method.name!r}")
    if method.sums_probabilities and nan_policy != "raise":
        raise OptionError(
            f"nan_policy must be 'raise' for the method {method.name!r}; got {nan_policy!r}. Correct the NaN, or leave those samples out."
        )


@dataclass(frozen=True, eq=False, repr=False)
class ConformalPredictor(ShownAsTable):
    """Sets that hold the label of a new sample with probability 1 - alpha at least, as ``conformal.calibrate`` makes them.

    Two are equal if their sets are, for any scores of the same dtype: if all but ``reads`` is.

    Attributes
    ----------
    method
        The name of the method, as ``calibrate`` takes it.
    alpha
        The error that is allowed, as asked, to the nearest float.
    threshold
        What a class is compared with. LAC: in the set iff its score >= threshold, in units of scores; ``-inf`` where everything is in.
        APS, RAPS: iff its cumulative score <= threshold; ``inf`` for everything. top_k: the number of ranks in each set. With ``by``
        an array, one for each class or group.
    rank
        ceil((n + 1) (1 - alpha)): the place of the threshold among the n calibration scores; an array with ``by``.
    n_calibration
        n, the number of labelled calibration samples; an array with ``by``.
    n_classes
        C.
    by
        None, ``"class"`` or ``"group"``.
    groups
        The numbers of the groups, ascending, with ``by="group"``; else None.
    penalty, k_reg
        Those of RAPS; else 0.
    seed
        That of the random numbers; None for deterministic sets.
    reads
        How often all calibration scores were read.
    class_names
        Names of the classes, if the calibration scores had some; scores with other names, or in another order, are refused.

    Examples
    --------
    >>> import numpy as np, avgk_dask as avgk
    >>> scores = np.array([[0.7, 0.2, 0.1], [0.5, 0.4, 0.1], [0.1, 0.3, 0.6], [0.2, 0.5, 0.3]])
    >>> found = avgk.conformal.calibrate(scores, np.array([0, 1, 2, 2]), alpha=0.25)
    >>> found.threshold, found.rank, found
    (0.3, 4, ConformalPredictor: lac, alpha 0.25, threshold 0.3, rank 4 of 4)
    >>> found.sets(scores[:2]).compute().astype(int)
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
    #: Alpha and the penalty exactly, the method on the calibration scores, and the level of each threshold.
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
        nan_policy: str = "raise",
    ) -> da.Array | xr.DataArray:
        """Return the sets of new samples: a lazy boolean array, chunked like the scores; one read once computed.

        Parameters
        ----------
        scores
            N x C matrix, classes last, all other axes samples: any array, a frame, or the path of a store or file.
        groups
            The group of each sample, an integer, where the predictor is by group. One that was not met in calibration gets
            sets of all classes.
        where
            One boolean per sample: those where it is False (padding) are left out altogether. By default all count.
        ignore_index
            Label of samples to leave out: short for ``where = labels != ignore_index``; with ``where``, both apply.
        nan_policy
            ``"raise"`` refuses NaN; ``"lowest"`` ranks NaN below all numbers and never puts it in a set.

        Returns
        -------
        DataArray or dask Array
            Boolean, of the scores' shape; a DataArray where the scores are one. Samples that do not exist have empty sets.

        Raises
        ------
        OptionError
            Where groups are missing, or none are needed.
        ScoresError, DtypeError
            Where the scores have other classes than those of the calibration, are no matrix of real numbers, or (when computed)
            hold NaN or no probabilities; where a truncated store does not determine the sets.

        Notes
        -----
        Cost: nothing is read before it is computed, and the scores once then. The sets are as many bytes as there are scores.

        Examples
        --------
        >>> import numpy as np, avgk_dask as avgk
        >>> scores = np.array([[0.75, 0.25], [0.5, 0.5], [0.25, 0.75]])
        >>> found = avgk.conformal.calibrate(scores, np.array([0, 0, 1]), alpha=0.5)
        >>> found.sets(np.array([[0.75, 0.25]])).compute()
        array([[ True, False]])

        """
        check_nan_policy(nan_policy)
        scores = open_once(scores)
        source, frame = as_lazy(scores, where=where, ignore_index=ignore_index)
        made = with_lead(set_matrix(self, source, scores, groups, nan_policy), source.lead)
        attrs = {"method": self.method, "alpha": self.alpha}
        return made if frame is None else xr.DataArray(made, frame.coords, frame.dims, "conformal_sets", attrs)

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
        nan_policy: str = "raise",
        progress: bool | None = None,
        missing: str | None = None,
    ) -> xr.Dataset:
        """Compute coverage and sizes of the sets of new samples, by size and by class, and whether the coverage is plausible.

        Parameters
        ----------
        scores
            N x C matrix, classes last, all other axes samples: any array, a frame, or the path of a store or file.
        labels
            N integers (negative, masked or null: unlabelled) or N class names; or the path of a store or file that
            holds them. By default the labels stored with the scores.
        groups
            The group of each sample, where the predictor is by group.
        levels
            The coverages that ``share_below`` compares with, each from 0 to 1.
        confidence
            The probability of the interval of hits, between 0 and 1.
        where
            One boolean per sample: those where it is False (padding) are left out altogether. By default all count.
        ignore_index
            Label of samples to leave out: short for ``where = labels != ignore_index``; with ``where``, both apply.
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
            Of a truncated store without the numbers by class. Numbers of labels are NaN without any.
        ``coverage, coverage_stderr, n_hits, average_set_size``
            The share of labelled samples whose set holds the label, sqrt(c (1 - c) / n) of that share c, their number; the mean size.
        ``set_size_count, set_hit_count, size_coverage``
            Over ``size``: sets of that size, those that hold the label, and their share of the labelled ones.
        ``class_n_labelled, class_coverage, class_average_set_size``
            Over ``class``, with ``class_name`` where names are stored: the same for the samples of each class; ``group_`` alike over ``group`` for a predictor by group.
        ``class_p_value_low``
            For a predictor by class (``group_`` by group): the probability of ``n_hits`` of the class or fewer, as for ``p_value_low``.
        ``macro_coverage, share_below``
            Of the classes that occur: their mean coverage, and over ``level`` the share of those whose coverage is below the level.
        ``hits_low, hits_high``
            Between these ``n_hits`` lies with the probability ``confidence``, given the rank and both numbers of samples.
        ``p_value_low, p_value_high``
            The probability of ``n_hits`` or fewer, and of ``n_hits`` or more, by the beta-binomial law of one threshold without ties;
            with ties there are more hits, so that ``p_value_low`` stays valid. All four are NaN for several thresholds.

        Raises
        ------
        OptionError
            Where groups are missing, or none are needed; where levels or the confidence are none.
        ScoresError, DtypeError
            As for ``sets``.
        LabelsError
            Where labels or groups do not fit the scores, or labels are probabilities.
        MemoryLimitError, StoreError
            If a task cannot fit its share of memory (checked before reading), or the store cannot be opened or read.

        Notes
        -----
        Cost: one read of the store; one more of a truncated one. Memory grows with the classes and groups, not with the samples.

        Examples
        --------
        >>> import numpy as np, avgk_dask as avgk
        >>> scores = np.array([[0.75, 0.25], [0.5, 0.5], [0.25, 0.75]])
        >>> found = avgk.conformal.calibrate(scores, np.array([0, 0, 1]), alpha=0.5)
        >>> result = found.evaluate(scores, np.array([0, 1, 0]))
        >>> int(result.n_hits), float(result.average_set_size), result.set_size_count.values.tolist()
        (1, 0.6666666666666666, [1, 2])

        """
        check_nan_policy(nan_policy)
        check_flag("progress", progress, or_none=True)
        scores = open_once(scores, missing)
        source = as_source(scores, labels, missing=missing, where=where, ignore_index=ignore_index)
        self._check(source, scores, nan_policy)
        if self._grouped(groups) is not None:
            source = Groups.of(groups, scores, source, "groups", missing, labels=labels, where=where).beside_labels(
                source, self._names
            )
        options = CoverageOptions.parse(levels, confidence)
        with running(source, progress, nan_policy) as run:
            return evaluate_sets(run, self, self._rule(source), options, class_names_of(scores))

    def save(self, path: PlaceLike) -> None:
        """Write the predictor to a JSON file, which ``conformal.load`` reads.

        Parameters
        ----------
        path
            Where to; a file that is there is replaced.

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
        """Return all that a file must hold."""
        return {
            "method": self.method, "alpha": str(self._alpha), "by": self.by, "penalty": str(self._penalty),
            "k_reg": self.k_reg, "seed": self.seed, "n_classes": self.n_classes, "dtype": self._method.dtype.name,
            "reads": self.reads, "levels": self._levels, "n_calibration": self._counts,
            "groups": self._names, "class_names": None if self.class_names is None else list(self.class_names),
        }  # fmt: skip

    def _rule(self, source: Source) -> CostRule:
        """Return the rule for scores of a source, which may be of another dtype than those of the calibration."""
        every = self._method.everything_in(self._levels, self._counts, self._ranks)
        levels, empty = self._method.levels_on(source.dtype, self._levels, every)
        method = self._method.on_new_samples(source.dtype)
        if self.by == "group":  # one more, of groups that were not met in calibration
            levels, empty = np.append(levels, method.everything), np.append(empty, False)
        return CostRule(method, levels, self.by or "", empty if empty.any() else None)

    def _check(self, source: Source, scores: ScoresLike, nan_policy: str) -> None:
        if source.n_classes != self.n_classes:
            raise ScoresError(
                f"scores must have the classes of the calibration, {self.n_classes}; got {source.n_classes}. "
                "Give scores of the same model."
            )
        check_class_names(scores, self.class_names, "the predictor", "list(predictor.class_names)")
        check_method(self._method, source, self.by, nan_policy)
        last_rank = self._method.last_rank(self._levels, self.n_classes)
        if last_rank is not None:
            certify_ranks(source, last_rank, "alpha")

    def _grouped(self, groups: LabelsLike) -> LabelsLike:
        if groups is None and self.by == "group":
            raise OptionError("groups must be given for a predictor by group; got None. Pass the group of each sample.")
        if groups is not None and self.by != "group":
            raise OptionError(
                f"groups must be None for a predictor by {self.by or 'nothing'}; got some. Leave them out."
            )
        return groups

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ConformalPredictor):
            return NotImplemented
        mine, theirs = self._content(), other._content()
        return all(np.array_equal(np.asarray(mine[n]), np.asarray(theirs[n])) for n in mine if n != "reads")

    def __hash__(self) -> int:
        return hash((self.method, self._alpha, self.by, self._levels.tobytes()))

    def __repr__(self) -> str:
        text = f"ConformalPredictor: {self.method}, alpha {self.alpha:g}"
        if self.by is None:
            few = " (too few samples for this alpha: every class is in)" if (self._ranks > self._counts).any() else ""
            return f"{text}, threshold {self.threshold:.6g}, rank {self.rank:,} of {self.n_calibration:,}{few}"
        n_open = int((self._ranks > self._counts).sum())
        kind = "classes" if self.by == "class" else "groups"
        return f"{text}, thresholds of {self._levels.size:,} {kind}, {n_open:,} of which have too few samples"


def set_matrix(
    predictor: ConformalPredictor, source: Source, scores: ScoresLike, groups: LabelsLike, nan_policy: str
) -> da.Array:
    """Return the sets of a source that was made of scores, as a lazy matrix (sample, class)."""
    predictor._check(source, scores, nan_policy)
    if predictor._grouped(groups) is not None:
        codes = da.asarray(Groups.of(groups, scores, source, "groups").codes(predictor._names))
        return apply_rule(source, predictor._rule(source), nan_policy, codes)
    last_rank = predictor._method.last_rank(predictor._levels, predictor.n_classes)
    if last_rank is not None and predictor.by is None:
        return apply_rule(source, TopRule(last_rank), nan_policy)
    return apply_rule(source, predictor._rule(source), nan_policy)
