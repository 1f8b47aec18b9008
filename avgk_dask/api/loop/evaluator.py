"""``Evaluator``: the result of ``evaluate``, from the batches of an evaluation loop, without a store."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Self

import numpy as np
import xarray as xr

from ...axis_names import check_batch, check_names, names_from_list
from ...credentials import shown
from ...errors import AvgkError, LabelsError, OptionError, ScoresError, warn_of
from ...exact.budgets import DEFAULT_BUDGETS, parse_budgets
from ...results.datasets import kind_sentence
from ..breakdowns import classes_result
from ..evaluate import outcome_result
from ..options import BudgetsLike, check_flag, check_nan_policy
from .batches import HARD, as_batch, check_alike
from .files import naming_file, read_state, write_state
from .streaming import EvaluatorSpec, EvaluatorState, StreamingScan


class Evaluator:
    """Evaluates the batches of a loop as they come: the Dataset of ``evaluate``, bit for bit, and nothing is stored.

    The number of samples need not be known. Samples count in the order in which they come, which is the order in which ties at
    a threshold are kept. What is held is what lies near the thresholds, within a fixed limit for any number of samples.

    Parameters
    ----------
    n_classes
        Number of classes.
    k
        Budget or sequence of budgets in (0, C], as for ``evaluate``.
    straddle
        Whether to analyse the ambiguity as well. It holds twice the largest k scores of each sample, 4 or 8 bytes each, up to
        ``avgk.ranked-bytes`` (128 MB), and bins beyond that, with the error certified.
    nan_policy
        ``"raise"`` refuses NaN; ``"lowest"`` ranks NaN below all numbers and never puts it in a set.
    by
        ``"class"``: ``result`` is the Dataset of ``breakdown`` by class instead, which needs class numbers as labels. For
        both, update two evaluators.
    like
        An evaluator of the same samples in the same order, and with the same options, whose ``result`` was refused. It tells
        where thresholds and cuts through ties are.

    Attributes
    ----------
    n_samples
        Samples so far; those that do not exist do not count.
    n_bytes
        Bytes of the retained scores and counts.

    Raises
    ------
    BudgetError
        Where a budget is no number in (0, C].
    OptionError
        Where ``n_classes`` is no positive integer, an option is none of the values it may take, or ``like`` was asked for
        something else.

    Notes
    -----
    Cost: each batch is looked at once. Small batches are copied, and scanned together in pieces of ``avgk.task-bytes`` (8 MB).

    Memory: a piece of rows; and at most ``avgk.max-events`` events (6 million of 18 to 32 bytes), of which half is planned for.
    That is some 80 MB for any number of samples, and 250 MB for a moment when brackets are narrowed. The first piece gives each
    threshold a generous bracket, from half of k to twice k labels a sample. Everything inside is held while it fits; for k up to
    10 that is a hundred thousand samples. Then brackets are narrowed, as far as is needed, by what the counts so far say of any
    number of samples to come, and what lies outside becomes counts.

    With clusters, some 16 more bytes are held for each cluster and budget.

    No number is ever wrong: at the end the counts prove that each threshold was held. Where later batches are so unlike the
    first ones that it was not, or where a budget ends among millions of ties, ``result`` refuses with an ``UnsettledError``.
    A second run, with ``like``, then has brackets that are certain to hold; it is refused only if more lies inside than can
    be held, and leaves narrower ones.

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
        if isinstance(n_classes, bool) or not isinstance(n_classes, (int, np.integer)) or n_classes < 1:
            raise OptionError(f"n_classes must be a positive integer; got {n_classes!r}. Pass the number of classes.")
        check_nan_policy(nan_policy)
        check_flag("straddle", straddle)
        is_class = isinstance(by, str) and by == "class"
        if (by is not None and not is_class) or (is_class and straddle):
            got = "'class' with straddle=True" if is_class else f"{by!r:.80}".replace("\n", " ")
            raise OptionError(f"by must be 'class', without straddle, or None; got {got}. Leave one of them out.")
        budgets = parse_budgets(k, int(n_classes))
        spec = EvaluatorSpec(int(n_classes), budgets, bool(straddle), nan_policy, by is not None)
        self._state = EvaluatorState(spec)
        #: The error that every call raises, once scores or labels were refused that had been taken in.
        self._failed: AvgkError | None = None
        #: The file that some of it comes from, or nothing.
        self._file = ""
        if like is not None:
            if not isinstance(like, Evaluator):
                raise OptionError(
                    f"like must be an Evaluator; got {type(like).__name__}. Pass the one that was refused."
                )
            self._check_spec(like, "like")
            with naming_file(like._file):
                first = like._state.scan
                self._state.hints = None if first is None else first.as_hints()

    def _check_spec(self, other: Evaluator, what: str) -> None:
        mine, its = self._state.spec, other._state.spec
        if its != mine:
            raise OptionError(f"{what} must have the same options; got {its}. Make it with {mine}.")

    def _check_sound(self) -> None:
        if self._failed is not None:
            raise self._failed

    @property
    def n_samples(self) -> int:
        """Samples so far; those that do not exist do not count."""
        return self._state.n_samples

    @property
    def n_bytes(self) -> int:
        """Bytes of the retained scores and counts."""
        return 0 if self._state.scan is None else self._state.scan.n_bytes

    def __repr__(self) -> str:
        spec, scan = self._state.spec, self._state.scan
        budgets = ", ".join(f"{float(k):g}" for k in spec.budgets)
        held = "all scores" if scan is None or scan.scan is None else "what lies near the thresholds"
        return (
            f"<avgk_dask.Evaluator: {self.n_samples:,} samples of {spec.n_classes:,} classes, k = {budgets}; "
            f"holds {held}, {self.n_bytes / 1e6:,.1f} MB>"
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
        """Take in a batch: scores of samples x classes, and a label (or a row of probabilities) for each sample.

        Parameters
        ----------
        scores
            Matrix of samples x ``n_classes``: an array of NumPy, torch, JAX or another that NumPy can read, of one dtype in
            all batches. Of more dimensions, all but the last are samples. The array may be used again afterwards.
        labels
            One integer for each sample (negative, masked or null: unlabelled), or a matrix of probabilities like the
            scores; either all batches have labels, of one kind, or none has.
        where
            One boolean per sample: samples where it is False do not exist (padding).
        ignore_index
            The label of samples that do not exist: short for ``where = labels != ignore_index``.
        clusters
            Integer below 2**31 for each sample, the same for samples that belong together, in this batch or any other (tokens
            of a document): standard errors are then those of independent clusters. Either all batches have them, or none.

        Raises
        ------
        ScoresError, LabelsError, DtypeError, OptionError
            If the batch does not fit, which leaves everything unchanged; also if it names its classes otherwise than the batches
            before, or labels, ``where`` or clusters name samples otherwise than the scores. NaN is found when a piece is full,
            which refuses every call after that, or by ``result``.
        """
        self._check_sound()
        state, spec = self._state, self._state.spec
        others = {"labels": labels, "where": where, "clusters": clusters}
        class_names = check_batch(scores, others, state.class_names, "the batches before")
        batch, n_given = as_batch(
            scores, labels, where, ignore_index, clusters, n_classes=spec.n_classes, first=state.n_given
        )
        if spec.by_class and batch.kind != HARD:
            raise LabelsError(
                f"labels must be class numbers alone for by='class'; got {batch.kind}. Give one for each sample."
            )
        if state.scan is None and len(batch.scores):
            state.scan = StreamingScan(spec, batch.scores.dtype, batch.kind, state.hints)
        if state.scan is not None:
            check_alike(batch, state.scan.dtype, state.scan.kind)
        state.n_given, state.class_names = state.n_given + n_given, class_names
        state.is_masked |= where is not None or ignore_index is not None
        if state.scan is not None:
            with self._failing():
                state.scan.add(batch)

    @contextmanager
    def _failing(self) -> Iterator[None]:
        """Refuse every later call once this one has failed, which may have gone half-way."""
        try:
            with naming_file(self._file):
                yield
        except AvgkError as error:
            self._failed = error
            raise

    def result(self) -> xr.Dataset:
        """Return the result for all samples so far; more may come after it.

        Returns
        -------
        Dataset
            What ``evaluate`` (or ``breakdown`` by class) gives for the same samples, labels and options. The attribute ``store`` is empty,
            ``reads`` is 1, and ``score_kind`` looks at a few samples of each piece.

        Raises
        ------
        UnsettledError
            If the retained scores do not prove every threshold; the text says for which k, and what to do.
        ScoresError
            If there is no sample.
        """
        self._check_sound()
        state = self._state
        if state.scan is None or not state.n_samples:
            raise ScoresError("scores must hold at least one sample; got none. Call update first.")
        with naming_file(self._file):
            outcome = state.scan.outcome()
            if state.spec.by_class:
                result = classes_result(outcome, 1, state.class_names)
            else:
                result = outcome_result(outcome, state.spec.straddle, 1)
        if state.is_masked:
            result.attrs["n_left_out"] = state.n_given - state.n_samples
        warn_of(kind_sentence(result))
        return result

    def merge(self, other: Evaluator) -> Self:
        """Take in all samples of another evaluator, after the own ones; the other does not change.

        Parameters
        ----------
        other
            An evaluator with the same options, such as that of another process.

        Returns
        -------
        Evaluator
            This one.

        Raises
        ------
        OptionError, DtypeError, LabelsError, ScoresError
            If the other has other options, or has scores of another dtype, labels of another kind or classes of
            other names.
        """
        if not isinstance(other, Evaluator):
            raise OptionError(f"other must be an Evaluator; got {type(other).__name__}. Load it with Evaluator.load.")
        if other is self:
            raise OptionError("other must be another Evaluator; got the same. Its samples are there already.")
        self._check_spec(other, "other")
        mine, its = self._state, other._state
        if mine.class_names is not None and its.class_names is not None:
            names = names_from_list(mine.class_names, "this evaluator"), names_from_list(its.class_names, "other")
            check_names(*names, "class", ScoresError)
        self._check_sound()
        other._check_sound()
        if its.scan is not None:
            if mine.scan is None:
                mine.scan = StreamingScan(mine.spec, its.scan.dtype, its.scan.kind, mine.hints)
            check_alike(its.scan.waiting.rows, mine.scan.dtype, mine.scan.kind)
            self._file = self._file or other._file
            with self._failing():
                mine.scan.merge(its.scan, mine.n_given)
        mine.class_names = mine.class_names or its.class_names
        mine.n_given += its.n_given
        mine.is_masked |= its.is_masked
        return self

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the evaluator to a file: plain arrays and JSON, with a hash.

        Parameters
        ----------
        path
            Path or URL of the file; one that is there is replaced.

        Raises
        ------
        WriteError
            If it cannot be written.
        """
        self._check_sound()
        write_state(path, self._state)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Return the evaluator that ``save`` wrote; it goes on as if nothing had happened.

        Parameters
        ----------
        path
            Path or URL of the file.

        Returns
        -------
        Evaluator
            In the state that was saved.

        Raises
        ------
        ReadError
            If there is no such file, it is damaged, or another version wrote it. A file that was forged, whose hash is right, is
            refused here, or by the first call that meets what does not fit together.
        """
        made = cls.__new__(cls)
        made._state, made._failed, made._file = read_state(path), None, shown(path)
        return made
