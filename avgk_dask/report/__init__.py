"""The report: self-contained HTML pages of results. Reads result Datasets, computes nothing."""

from .comparing import print_comparison, render_comparison, write_comparison
from .coverage_pages import render_coverage, write_coverage
from .describing import print_info
from .group_pages import render_breakdown, write_breakdown
from .group_tables import print_breakdown
from .page import render_report, write_report
from .pair_tables import print_pairs
from .text import print_coverage, print_table, print_transfer
from .utility_tables import print_utilities

__all__ = [
    "print_breakdown",
    "print_comparison",
    "print_coverage",
    "print_info",
    "print_pairs",
    "print_table",
    "print_transfer",
    "print_utilities",
    "render_breakdown",
    "render_comparison",
    "render_coverage",
    "render_report",
    "write_breakdown",
    "write_comparison",
    "write_coverage",
    "write_report",
]
