"""The package's exceptions: each is also the built-in error a caller would expect.

The text about an argument reads ``"<argument> must <rule>; got <value>. <what to do>"``. Any other names the chunk or store that
failed, why, and what to do. It is one line of bounded length, whatever the names in it are: errors and warnings
clean their own text (``clean``).
"""

from __future__ import annotations

import unicodedata
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

#: Characters at most of an error, of a printed line (an error and what comes before it), and of its end, which always stays.
_MOST_ERROR, MOST_LINE, _LAST = 1_200, 1_400, 350
#: Categories of characters that control a terminal, reorder a line or end it, and of halves of characters; joiners are parts of names.
_CONTROL, _JOINERS = ("Cc", "Cf", "Cs", "Zl", "Zp"), "\u200c\u200d"

#: What to do about labels that do not fit the scores, and about NaN.
LABELS_CURE = "Check that labels and scores belong together."
NAN_CURE = (
    "Repair the scores; leave padding out with where or ignore_index (--where, --ignore-index); or rank NaN last with "
    'nan_policy="lowest" (--nan-policy lowest).'
)


def label_cure(dtype: object) -> str:
    """Return what to do about labels of a dtype that is not an integer one."""
    kind, name = getattr(dtype, "kind", "O"), str(dtype)
    if kind in "UST" or name.startswith(("str", "large_str", "category", "dict")):
        return (
            "Turn class names into the numbers of their columns, for example with [names.index(label) for label in "
            "labels], or numpy.unique(labels, return_inverse=True)[1] where the columns are in the order of the names."
        )
    cure = "Convert them with labels.astype(int)"
    if kind == "f":
        return f"{cure}; where NaN means unlabelled, fill it with -1 before."
    return f'{cure}, nullable ones with labels.astype("Int64").' if kind == "b" else f"{cure}."


def range_cure(least: int, most: int, n_classes: int) -> str:
    """Return what to do about class numbers from ``least`` (the least that is not negative) to ``most``."""
    if least >= 1 and most == n_classes:
        return f"They look as if counted from 1: if so, subtract 1. {LABELS_CURE}"
    return LABELS_CURE


def sum_cure(total: float, n_multi_hot: int) -> str:
    """Return what to do about soft labels with rows that do not sum to 1, given the first sum."""
    if n_multi_hot:
        return (
            "Errors are defined for one right label per sample: pass class numbers, or divide each row by its sum if one of "
            "its labels is right and all are equally likely."
        )
    if total == 0:
        return (
            "Leave samples without a label out with where (--where), or pass class numbers, of which -1 is unlabelled."
        )
    return "Divide each row by its sum; several right labels per sample (multi-label data) are not supported."


def visible(text: str, keep: str = "") -> str:
    r"""Return a text with its control characters, but those to keep, as escapes: none can act on a terminal, a log or a page.

    These include marks that reverse what follows, line separators, and what UTF-8 cannot encode. Letters of all scripts and emoji stay.

    Examples
    --------
    >>> print(visible("a" + chr(0x202E) + "b" + chr(10) + "é猫"))
    a\u202eb\né猫

    """
    if text.isprintable():
        return text
    keep += _JOINERS
    escape = (c if c in keep or unicodedata.category(c) not in _CONTROL else ascii(c)[1:-1] for c in text)
    return "".join(escape)


def clean(text: str, most: int = MOST_LINE) -> str:
    """Return a text as one visible line of bounded length: its beginning, and its end, which says what to do.

    Examples
    --------
    >>> clean("got " + 2_000 * "x" + ". Shorten it.", 60)
    'got xxxxxxxxxxxx … (2,017 characters) … xxxxxxx. Shorten it.'

    """
    line = visible(text)
    if len(line) <= most:
        return line
    middle = f" … ({len(line):,} characters) … "
    last = min(_LAST, most // 3)
    return f"{line[: most - last - len(middle)]}{middle}{line[-last:]}"


class _CleanText(Exception):  # noqa: N818 - errors and warnings are such
    """An exception whose text is clean, however it is made: by a call, or by unpickling what a worker raised."""

    def __init__(self, *args: object) -> None:
        super().__init__(*(clean(arg, _MOST_ERROR) if isinstance(arg, str) else arg for arg in args))


class AvgkError(_CleanText):
    """Base class: catching it catches every refusal of this package.

    Cause: any of those of the classes below; it is never raised itself.

    Cure: the last sentence of the text says what to do. On the command line the text is one line on
    stderr, with exit status 2 if the input was refused and 1 if reading, writing or a cluster failed (``ReadError``,
    ``WriteError``, ``ClusterError``).

    Examples
    --------
    >>> import numpy as np, avgk_dask as avgk
    >>> try:
    ...     avgk.evaluate(np.eye(3), k=4)
    ... except avgk.AvgkError as error:
    ...     print(type(error).__name__, "and", isinstance(error, ValueError))
    BudgetError and True

    """


class BudgetError(AvgkError, ValueError):
    """A budget ``k`` is not a real number in (0, C]; also a ``ValueError``.

    Cause: a budget that is 0, negative, more than the number of classes or not a number; a fractional one
    where top-k needs an integer; or, for a truncated store, one that the discarded scores could change.

    Cure: pass an int, float, Fraction, Decimal or decimal string within the range that the text states.

    Examples
    --------
    >>> import numpy as np, avgk_dask as avgk
    >>> avgk.threshold(np.eye(3), 4)
    Traceback (most recent call last):
    avgk_dask.errors.BudgetError: k must be a real number in (0, C] with C = 3 classes; got 4. Pass numbers above 0, up to 3.

    """


class ScoresError(AvgkError, ValueError):
    """The score matrix has a wrong shape, or holds values that cannot be ranked; also a ``ValueError``.

    Cause: not a matrix (sample, class), an empty or transposed one, NaN (the text names the first), NumPy's masked type
    (even if nothing is masked) or nulls, a truncated store where whole rows are needed, or an array that is not
    what its metadata say.

    Cure: transpose, fill or repair the scores as the text says; ``nan_policy="lowest"`` ranks NaN last.

    Examples
    --------
    >>> import numpy as np, avgk_dask as avgk
    >>> avgk.evaluate(np.array([[0.5, np.nan]]), k=1)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    avgk_dask.errors.ScoresError: scores must not hold NaN; got 1 of them, the first at sample 0, class 1. Repair ...

    """


class LabelsError(AvgkError, ValueError):
    """The labels do not fit the scores: length, range or values; also a ``ValueError``.

    Cause: another number of labels than samples, a label of C or more, a soft label outside [0, 1], soft labels of a
    sample that do not sum to 1 (as in multi-label data), labels whose sample names differ from those of the scores or come in
    another order, or no labels where a function needs some.

    Cure: check that labels and scores belong together. Negative, masked and null class numbers mean unlabelled
    samples, but no probability may be masked or null.

    Examples
    --------
    >>> import numpy as np, avgk_dask as avgk
    >>> avgk.evaluate(np.eye(3), [0, 1, 3], k=1)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    avgk_dask.errors.LabelsError: labels must lie in 0..2 (or be negative: unlabelled); got 1 that does not, the first at sample 2. ...

    """


class DtypeError(AvgkError, TypeError):
    """An argument has a type or dtype that cannot be used; also a ``TypeError``.

    Cause: scores that are complex, boolean, text or wider than 64 bits; hard labels that are not integers;
    a sparse matrix, or an object that is not an array.

    Cure: convert it first, with ``astype``, ``toarray`` or ``numpy.asarray``; class names into their columns' numbers.

    Examples
    --------
    >>> import numpy as np, avgk_dask as avgk
    >>> avgk.evaluate(np.eye(2), np.array([0.0, 1.0]), k=1)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    avgk_dask.errors.DtypeError: labels must be integers (or an N x C matrix of probabilities); got dtype float64. Convert ...

    """


class MemoryLimitError(AvgkError, ValueError):
    """The plan cannot run within the memory a task may use; also a ``ValueError``.

    Cause: chunks of so many rows that one task would take more than a worker thread's share of memory, or
    than the setting ``avgk.memory-limit``. It is raised before anything is read.

    Cure: store the scores in chunks of fewer rows (``ingest`` makes some of about 10 MB), or use workers with
    more memory or fewer threads.

    Examples
    --------
    >>> import dask, numpy as np, avgk_dask as avgk
    >>> with dask.config.set({"avgk.memory-limit": "1MB"}):
    ...     avgk.evaluate(np.eye(3), k=1)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    avgk_dask.errors.MemoryLimitError: ... 1 MB ...

    """


class StoreError(AvgkError, OSError):
    """A store or file could not be opened or written; also an ``OSError``.

    Cause: nothing is there, it is not a Zarr store, it has no array of that name, its writer did not finish, it
    exists already, or its place cannot be reached or written.

    Cure: check the path, name and credentials; finish an incomplete store with
    ``ScoreWriter(..., resume=True)`` or ``join_parts``; choose another path, or ``overwrite=True``.

    Examples
    --------
    >>> import avgk_dask as avgk
    >>> avgk.open_scores("nothing.zarr")
    Traceback (most recent call last):
    avgk_dask.errors.StoreError: store must exist; got 'nothing.zarr', and nothing is there. Check the path.

    """


class ReadError(StoreError):
    """A store opened well, but a part of it could not be read; also an ``OSError``.

    Cause: a chunk that is missing, shortened, changed or swapped, or a network that failed. The text names the chunk.

    Cure: restore the chunk or write the store again; if a writer left out chunks that hold nothing
    but the fill value, ``missing="fill"`` (on the command line ``--missing fill``). ``verify`` lists every bad chunk.

    Examples
    --------
    >>> import avgk_dask as avgk, zarr
    >>> avgk.evaluate(zarr.create_array({}, shape=(4, 3), dtype="f4"), k=1)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    avgk_dask.errors.ReadError: the one chunk of array '/' in ... is missing: c/0/0 (4 samples and 48 bytes when decoded). Restore it, ...

    """


class WriteError(StoreError):
    """A store could be begun, or was there, but writing to it failed; also an ``OSError``.

    Cause: a full disk, a place that may not be written, credentials that do not allow it, or a network that failed.

    Cure: free some space, check place and permissions, or choose another path. A store that was partly written says that
    it is incomplete, and ``ScoreWriter(..., resume=True)`` goes on with it.

    Examples
    --------
    >>> import avgk_dask as avgk
    >>> avgk.ScoreWriter("/dev/null/scores.zarr", n_classes=3)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    avgk_dask.errors.WriteError: could not write /dev/null/scores.zarr: ... Check the place and its permissions.

    """


class ClusterError(AvgkError, RuntimeError):
    """A cluster cannot finish the work; also a ``RuntimeError``.

    Cause: it has no workers, all of them are paused because their memory is full, nothing was finished for the seconds
    of the setting ``avgk.stall-limit``, the scheduler is lost, or a task ended its workers again and again; the text
    names the rows and chunks that this one was reading.

    Cure: start workers, with more memory or fewer threads, or store the scores in smaller chunks (``info`` estimates the
    memory that a worker needs), and run it again.

    Examples
    --------
    >>> import avgk_dask as avgk
    >>> issubclass(avgk.ClusterError, avgk.AvgkError), issubclass(avgk.ClusterError, RuntimeError)
    (True, True)

    """


class UnsettledError(AvgkError, RuntimeError):
    """An ``Evaluator`` did not retain the scores that a threshold or its ties need; also a ``RuntimeError``.

    Cause: later batches are so unlike the first ones that a threshold lies outside the bracket retained; or a budget
    ends among more ties than can be held one by one. No number is given that might be wrong.

    Cure: run the loop again, the same batches in the same order, with an ``Evaluator(n_classes, k, like=first)``: it knows
    where to look. Or write the scores with ``ScoreWriter``, and ``evaluate`` the store.

    Attributes
    ----------
    budgets
        The budgets that are not settled, as floats.

    Examples
    --------
    >>> import avgk_dask as avgk
    >>> avgk.UnsettledError("k = 2 cannot be settled: its threshold was not retained.").budgets
    ()

    """

    budgets: tuple[float, ...] = ()


class OptionError(AvgkError, ValueError):
    """An option has a value that it may not take; also a ``ValueError``.

    Cause: a misspelt choice, or a number out of range.

    Cure: use one of the values that the text lists, or leave the option out.

    Examples
    --------
    >>> import numpy as np, avgk_dask as avgk
    >>> avgk.evaluate(np.eye(3), k=1, ties="random")
    Traceback (most recent call last):
    avgk_dask.errors.OptionError: ties must be 'first' or 'spread'; got 'random'. Leave it out to keep the first ones.

    """


class LeftoverWarning(_CleanText, UserWarning):
    """Something that an earlier run left was taken over, put back or removed; a ``UserWarning``, never raised.

    Cause: a writer was killed: its lease, its draft or its folder ``.NAME-avgk-…`` next to the target was still there.

    Cure: nothing is to be done; the text says what was found and done. On the command line it is a line on stderr,
    unless ``--quiet``.

    Examples
    --------
    >>> import warnings, avgk_dask as avgk
    >>> warnings.filterwarnings("default", category=avgk.LeftoverWarning)

    """


class ResultWarning(_CleanText, UserWarning):
    """A result is right and may still mislead; a ``UserWarning``, raised only where warnings are errors.

    Cause: ``evaluate`` met scores that are not probabilities, or a calibrator was fitted that has no best value.

    Cure: the text says it. On the command line it is printed below the table, or on stderr.

    Examples
    --------
    >>> import warnings, avgk_dask as avgk
    >>> warnings.filterwarnings("ignore", category=avgk.ResultWarning)

    """


@contextmanager
def naming(what: str) -> Iterator[None]:
    """Put a name in front of the text of an error, if it is about one of several things."""
    try:
        yield
    except AvgkError as error:
        error.args = (clean(f"{what}: {error}", _MOST_ERROR), *error.args[1:])
        raise


def warn_of(text: str) -> None:
    """Warn the caller of the public function that calls this; does nothing if the text is empty."""
    if text:
        warnings.warn(ResultWarning(text), stacklevel=3)


def refuse(error: AvgkError) -> NoReturn:
    """Raise an error alone, not chained to the one being handled, whose text may hold credentials.

    ``from None`` hides that one from tracebacks, and leaves it to whatever else follows the chain.
    """
    try:
        raise error from None
    except AvgkError:
        error.__context__ = None
        raise
