"""``Evaluator``: the result of ``evaluate`` from the batches of an evaluation loop, without a store."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Self

import xarray as xr

from ...axis_names import check_batch, check_names, names_from_list
from ...credentials import redact
from ...errors import AvgkError, LabelsError, OptionError, ScoresError, warn_about
from ...exact.budgets import DEFAULT_BUDGETS, parse_budgets
from ...results.datasets import kind_sentence
from ..breakdowns import classes_result
from ..evaluate import outcome_result
from ..options import BudgetsLike, check_count, check_flag, check_nan_policy
from .files import naming_file, read_state, write_state
from .streaming import HARD, EvaluatorSpec, EvaluatorState, StreamingScan, as_batch


class Evaluator:
    """Evaluates the batches of a loop as they arrive: the Dataset of ``evaluate``, bit for bit, without storing the scores.

    The number of samples need not be known. Ties at a threshold are kept in the order in which the samples arrive. Only
    scores near the thresholds are retained, within a fixed memory limit for any number of samples.

    Parameters
    ----------
    n_classes
        Number of classes.
    k
        Budget or sequence of budgets in (0, C], as for ``evaluate``.
    straddle
        Whether to compute the straddle strengths as well. This retains the 2 k largest scores of each sample for the
        largest k, 4 or 8 bytes each, up to ``avgk.ranked-bytes`` (128 MB), and then bins with a certified error.
    nan_policy
        ``"raise"`` refuses NaN; ``"lowest"`` ranks NaN below all numbers and never puts it in a set.
    by
        ``"class"``: ``result`` returns the Dataset of ``breakdown`` by class instead, which needs class numbers as labels.
        For both results, update two evaluators.
    like
        An evaluator with the same options and the same samples in the same order, whose ``result`` raised an
        ``UnsettledError``. Its counts show where the thresholds and the cuts through ties are.

    Attributes
    ----------
    n_samples
        Number of samples so far, without those left out.
    n_bytes
        Bytes of the retained scores and counts.

    Raises
    ------
    BudgetError
        If a budget is not a number in (0, C].
    OptionError
        If ``n_classes`` is not a positive integer, an option is not one of the values it may take, or ``like`` has other
        options.

    Notes
    -----
    Cost: each batch is scanned once. Small batches are copied, and scanned together in pieces of ``avgk.task-bytes`` (8 MB).

    Memory: one piece, and at most ``avgk.max-events`` events (6 million of 18 to 32 bytes), usually half of them. This is
    about 80 MB for any number of samples, and 250 MB for a moment when brackets are narrowed. The first piece gives each
    threshold a generous bracket, from k / 2 to 2 k labels per sample. All scores inside are retained while they fit: for k
    up to 10, those of a hundred thousand samples. Then the counts so far narrow the brackets, for any number of further
    samples, and scores outside become counts. Clusters take about 16 more bytes per cluster and budget.

    Results are never wrong: at the end the counts prove that each threshold was retained. If it was not, because later
    batches differ strongly from the first ones, or if a budget ends among millions of ties, ``result`` raises an
    ``UnsettledError``. A second run with ``like`` uses brackets that contain the thresholds for certain. It fails only if
    more scores lie inside than can be retained, and then leaves narrower brackets.

    Examples
    --------
    >>> import numpy as np, avgk_dask as avgk
    >>> rng = np.random.default_rng(0)
    >>> scores, labels = rng.dirichlet(np.ones(10), 100), rng.integers(0, 10, 100)
    >>> evaluator = avgk.Evaluator(n_classes=10, k=[1, 2.5])
    >>> for first in range(0, 100, 32):
    ...     evaluator.update(scores[first : first + 32], labels[first : first + 32])
    >>> evaluator.result().equals(avgk.evaluate(scores, labels, k=[1, 2.5], straddle=False))
    True
    """

    def __init__(
        self,
        n_classes: int,
        k: BudgetsLike = DEFAULT_BUDGETS,
        *,
        straddle: bool = False,
        nan_policy: str = "raise",
        by: str | None = None,
        like: Evaluator | None = None,
    ) -> None:
        check_count("n_classes", n_classes, "Pass the number of classes.")
        check_nan_policy(nan_policy)
        check_flag("straddle", straddle)
        is_class = isinstance(by, str) and by == "class"
        if (by is not None and not is_class) or (is_class and straddle):
            got = "'class' with straddle=True" if is_class else f"{by!r:.80}".replace("\n", " ")
            raise OptionError(f"by must be None, or 'class' with straddle=False; got {got}. Leave one of them out.")
        budgets = parse_budgets(k, int(n_classes))
        spec = EvaluatorSpec(int(n_classes), budgets, bool(straddle), nan_policy, by is not None)
        self._state = EvaluatorState(spec)
        #: The error that every later call raises, after a failure while scores were added.
        self._failed: AvgkError | None = None
        #: The file from which some of the state was loaded, or "".
        self._file = ""
        if like is not None:
            if not isinstance(like, Evaluator):
                raise OptionError(
                    f"like must be an Evaluator; got {type(like).__name__}. Pass the one of the first run."
                )
            self._check_spec(like, "like")
            with naming_file(like._file):
                first = like._state.scan
                self._state.hints = None if first is None else first.as_hints()

    def _check_spec(self, other: Evaluator, argument: str) -> None:
        ours, theirs = self._state.spec, other._state.spec
        if theirs != ours:
            raise OptionError(f"{argument} must have the same options; got {theirs}. Create it with {ours}.")

    def _check_sound(self) -> None:
        if self._failed is not None:
            raise self._failed

    @property
    def n_samples(self) -> int:
        """Number of samples so far, without those left out."""
        return self._state.n_samples

    @property
    def n_bytes(self) -> int:
        """Bytes of the retained scores and counts."""
        return 0 if self._state.scan is None else self._state.scan.n_bytes

    def __repr__(self) -> str:
        spec, scan = self._state.spec, self._state.scan
        budgets = ", ".join(f"{float(k):g}" for k in spec.budgets)
        retained = "all scores" if scan is None or scan.scan is None else "the scores near the thresholds"
        return (
            f"<avgk_dask.Evaluator: {self.n_samples:,} samples of {spec.n_classes:,} classes, k = {budgets}; "
            f"retains {retained}, {self.n_bytes / 1e6:,.1f} MB>"
        )

    def update(
        self,
        scores: object,
        labels: object = None,
        *,
        where: object = None,
        ignore_index: int | None = None,
        clusters: object = None,
    ) -> None:
        """Add a batch: scores of samples x classes, and a label (or a row of probabilities) for each sample.

        Parameters
        ----------
        scores
            Matrix of samples x ``n_classes``: an array of NumPy, torch, JAX or another library that NumPy can read, with the
            same dtype in all batches. With more dimensions, the last axis is the class axis. The array may be reused.
        labels
            One integer per sample (negative, masked or null: unlabelled), or a matrix of probabilities like the scores.
            Either all batches have labels of the same kind, or none has labels.
        where
            One boolean per sample: samples where it is False (padding) are left out.
        ignore_index
            The label of samples to leave out: short for ``where = labels != ignore_index``.
        clusters
            One integer below 2**31 per sample, equal for samples that belong together in any batch, such as the tokens of
            a document. Standard errors then assume independent clusters. Either all batches have clusters, or none.

        Raises
        ------
        ScoresError, LabelsError, DtypeError, OptionError
            If the batch does not fit, if its class names differ from those of earlier batches, or if the sample names of
            labels, ``where`` or clusters differ from those of the scores; the evaluator then stays unchanged. NaN raises
            an error when a piece is full, and in every later call, or in ``result``.
        """
        self._check_sound()
        state, spec = self._state, self._state.spec
        others = {"labels": labels, "where": where, "clusters": clusters}
        class_names = check_batch(scores, others, state.class_names, "the earlier batches")
        batch, n_samples = as_batch(
            scores, labels, where, ignore_index, clusters, n_classes=spec.n_classes, first=state.n_given
        )
        if spec.by_class and batch.kind != HARD:
            raise LabelsError(
                f"labels must be class numbers without clusters for by='class'; got {batch.kind}. Pass one for each "
                "sample."
            )
        if state.scan is None and len(batch.scores):
            state.scan = StreamingScan(spec, batch.scores.dtype, batch.kind, state.hints)
        if state.scan is not None:
            state.scan.check_alike(batch)
        state.n_given, state.class_names = state.n_given + n_samples, class_names
        state.is_masked |= where is not None or ignore_index is not None
        if state.scan is not None:
            with self._failing():
                state.scan.add(batch)

    @contextmanager
    def _failing(self) -> Iterator[None]:
        """Make every later call fail if this one fails, since it may have changed part of the state."""
        try:
            with naming_file(self._file):
                yield
        except AvgkError as error:
            self._failed = error
            raise

    def result(self) -> xr.Dataset:
        """Return the result for all samples so far; more may be added later.

        Returns
        -------
        Dataset
            The result of ``evaluate`` (or ``breakdown`` by class) for the same samples, labels and options. The attribute
            ``store`` is empty, ``reads`` is 1, and ``score_kind`` is based on a few samples of each piece.

        Raises
        ------
        UnsettledError
            If the retained scores do not prove every threshold. The message names these k, and what to do.
        ScoresError
            If no sample was added.
        """
        self._check_sound()
        state = self._state
        if state.scan is None or not state.n_samples:
            raise ScoresError("scores must hold at least one sample; got none. Call update first.")
        with naming_file(self._file):
            outcome = state.scan.outcome()
            if state.spec.by_class:
                result = classes_result(outcome, state.class_names)
            else:
                result = outcome_result(outcome, state.spec.straddle, 1)
        if state.is_masked:
            result.attrs["n_left_out"] = state.n_given - state.n_samples
        warn_about(kind_sentence(result))
        return result

    def merge(self, other: Evaluator) -> Self:
        """Append all samples of another evaluator, which stays unchanged.

        Parameters
        ----------
        other
            An evaluator with the same options, for example from another process.

        Returns
        -------
        Evaluator
            This one.

        Raises
        ------
        OptionError, DtypeError, LabelsError, ScoresError
            If options, dtype, kind of labels or class names differ.
        """
        if not isinstance(other, Evaluator):
            raise OptionError(f"other must be an Evaluator; got {type(other).__name__}. Load it with Evaluator.load.")
        if other is self:
            raise OptionError("other must be a different Evaluator; got the same one. It already has these samples.")
        self._check_spec(other, "other")
        ours, theirs = self._state, other._state
        if ours.class_names is not None and theirs.class_names is not None:
            names = names_from_list(ours.class_names, "this evaluator"), names_from_list(theirs.class_names, "other")
            check_names(*names, "class", ScoresError)
        self._check_sound()
        other._check_sound()
        if theirs.scan is not None:
            if ours.scan is None:
                ours.scan = StreamingScan(ours.spec, theirs.scan.dtype, theirs.scan.kind, ours.hints)
            ours.scan.check_alike(theirs.scan.waiting.rows)
            self._file = self._file or other._file
            with self._failing():
                ours.scan.merge(theirs.scan, ours.n_given)
        ours.class_names = ours.class_names or theirs.class_names
        ours.n_given += theirs.n_given
        ours.is_masked |= theirs.is_masked
        return self

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the evaluator to a file: plain arrays and JSON, with a hash.

        Parameters
        ----------
        path
            Path or URL of the file. An existing file is replaced.

        Raises
        ------
        WriteError
            If it cannot be written.
        """
        self._check_sound()
        write_state(path, self._state)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Load an evaluator that ``save`` wrote, to continue the loop.

        Parameters
        ----------
        path
            Path or URL of the file.

        Returns
        -------
        Evaluator
            In the saved state.

        Raises
        ------
        ReadError
            If the file does not exist, is damaged, or another version wrote it. A forged file with a correct hash is
            refused here, or by the first call that uses the inconsistent part.
        """
        evaluator = cls.__new__(cls)
        evaluator._state, evaluator._failed, evaluator._file = read_state(path), None, redact(path)
        return evaluator
