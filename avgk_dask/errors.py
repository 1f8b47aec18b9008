"""The package's exceptions, each of which is also a built-in error.

An error about an argument reads ``"<argument> must <rule>; got <value>. <what to do>"``. Any other error names the chunk or
store that failed, why, and what to do. Errors and warnings clean their text: it is one line of limited length.
"""

from __future__ import annotations

import unicodedata
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

#: Maximum number of characters of an error, of a printed line (an error and its prefix), and of its end, which is
#: never cut.
_MOST_ERROR, MOST_LINE, _LAST = 1_200, 1_400, 350
#: Unicode categories that control a terminal, reorder or end a line, or are halves of characters; joiners occur in names.
_CONTROL, _JOINERS = ("Cc", "Cf", "Cs", "Zl", "Zp"), "\u200c\u200d"

LABELS_HINT = "Check that labels and scores belong together."
NAN_HINT = (
    "Repair the scores; leave padding out with where or ignore_index (--where, --ignore-index); or rank NaN last with "
    'nan_policy="lowest" (--nan-policy lowest).'
)


def label_hint(dtype: object) -> str:
    """Return the advice for labels of a dtype that is not an integer."""
    kind, name = getattr(dtype, "kind", "O"), str(dtype)
    if kind in "UST" or name.startswith(("str", "large_str", "category", "dict")):
        return (
            "Turn class names into the numbers of their columns, for example with [names.index(label) for label in "
            "labels], or numpy.unique(labels, return_inverse=True)[1] if the columns are in the order of the names."
        )
    hint = "Convert them with labels.astype(int)"
    if kind == "f":
        return f"{hint}; if NaN means unlabelled, fill it with -1 first."
    return f'{hint}, nullable ones with labels.astype("Int64").' if kind == "b" else f"{hint}."


def range_hint(least: int, most: int, n_classes: int) -> str:
    """Return the advice for class numbers from ``least`` (the least that is not negative) to ``most``."""
    if least >= 1 and most == n_classes:
        return f"They look as if counted from 1: if so, subtract 1. {LABELS_HINT}"
    return LABELS_HINT


def sum_hint(total: float, n_multi_hot: int) -> str:
    """Return the advice for soft labels whose rows do not sum to 1; ``total`` is the first such sum."""
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
    r"""Escape control characters, except those in ``keep``, so that none acts on a terminal, a log or a page.

    They include marks that reverse text, line separators, and characters that UTF-8 cannot encode. Letters of all scripts and
    emoji stay.

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
    """Return a text as one visible line; cut the middle of a long one, as its end says what to do.

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
    """An exception that cleans its text, also when a worker's error is unpickled."""

    def __init__(self, *args: object) -> None:
        super().__init__(*(clean(arg, _MOST_ERROR) if isinstance(arg, str) else arg for arg in args))


class AvgkError(_CleanText):
    """Base class of all errors of this package.

    Cause: see the classes below; the base class itself is never raised.

    Cure: the last sentence of the text says what to do. On the command line, the text is one line on stderr. The exit status is
    2 if the input was refused, and 1 if reading, writing or a cluster failed (``ReadError``, ``WriteError``, ``ClusterError``).

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

    Cause: a budget that is not a positive number, or larger than the number of classes; a fractional budget for top-k; or
    a budget in a truncated store that the discarded scores could change.

    Cure: pass an int, float, Fraction, Decimal or decimal string in the range given in the text.

    Examples
    --------
    >>> import numpy as np, avgk_dask as avgk
    >>> avgk.threshold(np.eye(3), 4)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    avgk_dask.errors.BudgetError: k must be a real number in (0, C] with C = 3 classes; got 4. ...
    """


class ScoresError(AvgkError, ValueError):
    """The score matrix has a wrong shape, or values that cannot be ranked; also a ``ValueError``.

    Cause: an array that is not a matrix (sample, class), is empty or transposed, contains NaN or nulls, or has NumPy's masked
    type (even if nothing is masked); a truncated store where whole rows are needed; or metadata that contradict the array.

    Cure: transpose, fill or repair the scores as the text says; ``nan_policy="lowest"`` ranks NaN last.

    Examples
    --------
    >>> import numpy as np, avgk_dask as avgk
    >>> avgk.evaluate(np.array([[0.5, np.nan]]), k=1)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    avgk_dask.errors.ScoresError: scores must not contain NaN; got 1, ... sample 0, class 1. ...
    """


class LabelsError(AvgkError, ValueError):
    """The labels do not fit the scores: their number, range or values; also a ``ValueError``.

    Cause: a different number of labels and samples, a label of C or more, a soft label outside [0, 1], soft labels of a sample
    that do not sum to 1 (as in multi-label data), sample names that differ from those of the scores or their order, or no
    labels for a function that needs them.

    Cure: check that labels and scores belong together. Negative, masked and null class numbers mean unlabelled samples;
    probabilities may not be masked or null.

    Examples
    --------
    >>> import numpy as np, avgk_dask as avgk
    >>> avgk.evaluate(np.eye(3), [0, 1, 3], k=1)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    avgk_dask.errors.LabelsError: labels must lie in 0..2 (or be negative: unlabelled); got 1 ... sample 2. ...
    """


class DtypeError(AvgkError, TypeError):
    """An argument has an unsupported type or dtype; also a ``TypeError``.

    Cause: scores that are complex, boolean, text or wider than 64 bits; hard labels that are not integers; a sparse matrix, or
    an object that is not an array.

    Cure: convert it with ``astype``, ``toarray`` or ``numpy.asarray``; replace class names by the numbers of their columns.

    Examples
    --------
    >>> import numpy as np, avgk_dask as avgk
    >>> avgk.evaluate(np.eye(2), np.array([0.0, 1.0]), k=1)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    avgk_dask.errors.DtypeError: labels must be integers (or an N x C matrix of probabilities); got dtype float64. ...
    """


class MemoryLimitError(AvgkError, ValueError):
    """The plan does not fit the memory of a task; also a ``ValueError``.

    Cause: chunks with so many rows that a task would exceed a worker thread's share of memory or the setting
    ``avgk.memory-limit``. It is raised before reading.

    Cure: store the scores in chunks of fewer rows (``ingest`` writes chunks of about 10 MB), or use workers with more memory or
    fewer threads.

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

    Cause: it does not exist, is not a Zarr store, lacks an array of that name, was not finished by its writer, exists already,
    or is out of reach.

    Cure: check the path, name and credentials; finish an incomplete store with ``ScoreWriter(..., resume=True)`` or
    ``join_parts``; choose another path, or ``overwrite=True``.

    Examples
    --------
    >>> import avgk_dask as avgk
    >>> avgk.open_scores("nothing.zarr")
    Traceback (most recent call last):
    avgk_dask.errors.StoreError: no such store or file: 'nothing.zarr'. Check the path.
    """


class ReadError(StoreError):
    """A part of an open store could not be read; also an ``OSError``.

    Cause: a chunk that is missing, shortened, changed or swapped, or a network that failed. The text names the chunk.

    Cure: restore the chunk or write the store again. If a writer left out chunks that hold only the fill value, use
    ``missing="fill"`` (on the command line ``--missing fill``). ``verify`` lists every bad chunk.

    Examples
    --------
    >>> import avgk_dask as avgk, zarr
    >>> avgk.evaluate(zarr.create_array({}, shape=(4, 3), dtype="f4"), k=1)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    avgk_dask.errors.ReadError: the one chunk of array '/' in ... is missing: c/0/0 (4 samples and 48 bytes when decoded). Restore it, ...
    """


class WriteError(StoreError):
    """Writing to a store failed; also an ``OSError``.

    Cause: a full disk, missing permissions or credentials, or a network that failed.

    Cure: free some space, check location and permissions, or choose another path. A partly written store is marked as
    incomplete, and ``ScoreWriter(..., resume=True)`` continues it.

    Examples
    --------
    >>> import avgk_dask as avgk
    >>> avgk.ScoreWriter("/dev/null/scores.zarr", n_classes=3)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    avgk_dask.errors.WriteError: could not write /dev/null/scores.zarr: ... Check ...
    """


class ClusterError(AvgkError, RuntimeError):
    """A cluster cannot finish the work; also a ``RuntimeError``.

    Cause: it has no workers, all of them are paused because their memory is full, nothing was finished for the seconds of the
    setting ``avgk.stall-limit``, the scheduler is lost, or a task killed its workers repeatedly; the text names the rows and
    chunks that this task was reading.

    Cure: start workers, with more memory or fewer threads, or store the scores in smaller chunks (``info`` estimates the memory
    of a worker), and run it again.

    Examples
    --------
    >>> import avgk_dask as avgk
    >>> issubclass(avgk.ClusterError, avgk.AvgkError), issubclass(avgk.ClusterError, RuntimeError)
    (True, True)
    """


class UnsettledError(AvgkError, RuntimeError):
    """An ``Evaluator`` did not retain the scores that a threshold or its ties need; also a ``RuntimeError``.

    Cause: later batches differ so much from the first ones that a threshold lies outside the retained bracket, or a budget ends
    among too many ties to retain. No number that might be wrong is returned.

    Cure: run the loop again with the same batches in the same order and an ``Evaluator(n_classes, k, like=first)``, which knows
    the thresholds. Or write the scores with ``ScoreWriter``, and ``evaluate`` the store.

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
    """An option has an invalid value; also a ``ValueError``.

    Cause: a misspelt choice, or a number out of range.

    Cure: use one of the values in the text, or leave the option out.

    Examples
    --------
    >>> import numpy as np, avgk_dask as avgk
    >>> avgk.evaluate(np.eye(3), k=1, ties="random")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    avgk_dask.errors.OptionError: ties must be 'first' or 'spread'; got 'random'. ...
    """


class LeftoverWarning(_CleanText, UserWarning):
    """Files of an earlier run were taken over, restored or removed; a ``UserWarning``, never raised.

    Cause: a writer was killed and left its lease, its draft or its folder ``.NAME-avgk-…`` next to the target.

    Cure: none is needed; the text states the action taken. On the command line it is a line on stderr, unless ``--quiet``.

    Examples
    --------
    >>> import warnings, avgk_dask as avgk
    >>> warnings.filterwarnings("default", category=avgk.LeftoverWarning)
    """


class ResultWarning(_CleanText, UserWarning):
    """A correct result may mislead; a ``UserWarning``, raised only if warnings are errors.

    Cause: scores in ``evaluate`` that are not probabilities, or a fitted calibrator without a best value.

    Cure: see the text. On the command line it is printed below the table, or on stderr.

    Examples
    --------
    >>> import warnings, avgk_dask as avgk
    >>> warnings.filterwarnings("ignore", category=avgk.ResultWarning)
    """


@contextmanager
def naming(name: str) -> Iterator[None]:
    """Put a name in front of the text of an error that concerns one of several objects."""
    try:
        yield
    except AvgkError as error:
        error.args = (clean(f"{name}: {error}", _MOST_ERROR), *error.args[1:])
        raise


def warn_about(text: str) -> None:
    """Warn the caller of the calling public function, unless the text is empty."""
    if text:
        warnings.warn(ResultWarning(text), stacklevel=3)


def refuse(error: AvgkError) -> NoReturn:
    """Raise an error that is not chained to the current exception, whose text may contain credentials.

    ``from None`` only hides that exception from tracebacks; other code may follow ``__context__``.
    """
    try:
        raise error from None
    except AvgkError:
        error.__context__ = None
        raise
