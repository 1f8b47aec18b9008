"""Names that moved to ``statistics.outcome``."""

from ..statistics.outcome import Grouping as Grouping
from ..statistics.outcome import Outcome as Outcome
