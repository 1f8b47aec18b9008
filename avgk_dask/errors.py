"""The package's exceptions: each is also the built-in error a caller would expect."""

from __future__ import annotations


class AvgkError(Exception):
    """Base class: catching it catches every refusal of this package."""


class BudgetError(AvgkError, ValueError):
    """A budget ``k`` is not a real number in (0, C]."""


class ScoresError(AvgkError, ValueError):
    """The score matrix has a wrong shape, or holds values that cannot be ranked."""


class LabelsError(AvgkError, ValueError):
    """The labels do not fit the scores: length, range or values."""


class DtypeError(AvgkError, TypeError):
    """An argument has a type or dtype that cannot be used."""


class MemoryLimitError(AvgkError, ValueError):
    """The plan cannot run within the memory a task may use."""


class StoreError(AvgkError, OSError):
    """A store could not be opened, read or written."""


class ReadError(StoreError):
    """A store opened well, but a part of it could not be read."""


class OptionError(AvgkError, ValueError):
    """An option is none of the values it may take."""
