"""What every tally of bands counts: rows, labels, and the data that must be refused."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import chain
from typing import Any, Self

from .entries import NO_PLACE


def join_tuples(parts: list[tuple[Any, ...]]) -> tuple[Any, ...]:
    """Give the elements of several tuples in one."""
    return tuple(chain.from_iterable(parts))


#: Band, row in it, class.
Place = tuple[int, int, int]
NOWHERE: Place = (NO_PLACE, NO_PLACE, NO_PLACE)


@dataclass(frozen=True)
class CheckedTally:
    """Counts of the bands read so far, with the first place of each kind of bad data; ``merge`` adds them up."""

    n_rows: int
    n_nan: int
    first_nan: Place
    n_bad_labels: int
    first_bad_label: Place
    #: The least hard label that is not negative, and the largest bad one.
    least_label: int
    most_label: int
    n_labelled: int

    @classmethod
    def mergers(cls) -> Mapping[str, Callable[[list[Any]], Any]]:
        """Give how to merge the fields that are not simply added."""
        return {"first_nan": min, "first_bad_label": min, "least_label": min, "most_label": max}

    @classmethod
    def merge(cls, tallies: Sequence[Self]) -> Self:
        """Give the tally of all the bands together."""
        if len(tallies) == 1:
            return tallies[0]
        mergers = cls.mergers()
        names = [field.name for field in fields(cls)]
        return cls(**{name: mergers.get(name, sum)([getattr(t, name) for t in tallies]) for name in names})
