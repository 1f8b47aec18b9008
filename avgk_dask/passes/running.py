"""A run of one call: what it computes with begins and ends with it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ..sources.source import Source
from .progress import computing
from .run import Run


@contextmanager
def running(source: Source, progress: bool | None = None, nan_policy: str = "raise") -> Iterator[Run]:
    """Lend the run of a call over a source, with a bar where progress is asked for."""
    with computing(progress) as compute:
        yield Run(source, compute, nan_policy)
