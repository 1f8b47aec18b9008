"""What every pass over scores and labels counts: rows, labels, and the data that must be refused."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from ..records import BEYOND, LEAST, MOST, Count, State

#: Band, row in it, class.
Place = tuple[int, int, int]
NOWHERE: Place = (BEYOND, BEYOND, BEYOND)


@dataclass(frozen=True)
class CheckedTally(State):
    """Counts of the bands read so far, with the first place of each kind of bad data."""

    VERSION: ClassVar[int] = 2

    n_rows: Count
    n_nan: Count
    first_nan: Annotated[Place, LEAST]
    n_bad_labels: Count
    first_bad_label: Annotated[Place, LEAST]
    #: The least hard label that is not negative, and the largest bad one.
    least_label: Annotated[int, LEAST]
    most_label: Annotated[int, MOST]
    #: Rows of soft labels that do not sum to 1, the first with its band and its sum, and those with several ones and zeros.
    n_bad_sums: Count
    first_bad_sum: Annotated[tuple[int, int, float], LEAST]
    n_multi_hot: Count
    n_labelled: Count
