"""A search for thresholds that shares the read of its first scan with counts of other sets."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..records import Several, State
from ..scans.above_scan import AbovePlan, beside
from ..scans.band_pass import Pass
from ..states.above_tally import AboveTally
from .threshold_search import ThresholdSearch


@dataclass(frozen=True)
class BesideSearch:
    """A search whose first scan, in one pass or in waves, reads every band once: the sets are counted there, too."""

    search: ThresholdSearch
    above: AbovePlan
    tallies: tuple[AboveTally, ...] = ()

    @property
    def tally(self) -> AboveTally:
        """What was counted of all bands."""
        return AboveTally.merge(self.tallies)

    def next_pass(self) -> Pass | None:
        """Return the next pass of the search; a first scan with the counts beside it."""
        what = self.search.next_pass()
        return replace(what, **beside(what, self.above)) if what is not None and what.name == "scan" else what

    def advance(self, state: State) -> BesideSearch:
        """Take what the last pass found."""
        if not isinstance(state, Several):
            return replace(self, search=self.search.advance(state))  # type: ignore[arg-type]
        found, counted = state.parts
        assert isinstance(counted, AboveTally)
        return replace(self, search=self.search.advance(found), tallies=(*self.tallies, counted))  # type: ignore[arg-type]
