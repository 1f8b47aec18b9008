"""The report: self-contained HTML pages of results. Reads result Datasets, computes nothing."""

from .comparing import print_comparison, render_comparison, write_comparison
from .describing import print_info
from .group_tables import print_breakdown
from .page import render_report, write_report
from .text import print_table

__all__ = [
    "print_breakdown",
    "print_comparison",
    "print_info",
    "print_table",
    "render_comparison",
    "render_report",
    "write_comparison",
    "write_report",
]
