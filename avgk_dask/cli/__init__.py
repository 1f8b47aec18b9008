"""The command line: ``avgk``."""

from .main import main

__all__ = ["main"]
