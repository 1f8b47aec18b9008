"""The report: self-contained HTML pages of results. Reads result Datasets, computes nothing."""

from .breakdown import print_breakdown, print_pairs, render_breakdown, write_breakdown
from .comparison import print_comparison, render_comparison, write_comparison
from .coverage import print_coverage, render_coverage, write_coverage
from .page import render_report, write_report
from .tables import print_info, print_utilities
from .text import print_table, print_transfer

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
