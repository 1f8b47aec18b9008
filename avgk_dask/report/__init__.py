"""The report: one self-contained HTML page of a result. Reads a result Dataset, computes nothing."""

from .describing import print_info
from .page import render_report, write_report
from .text import print_table

__all__ = ["print_info", "print_table", "render_report", "write_report"]
