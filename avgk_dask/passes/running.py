"""A run of one call: what it computes with begins and ends with it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from ..sources.source import Source
from .checkpoint import Asked, open_checkpoint
from .label_hashes import label_hashes
from .progress import computing
from .run import Run


@contextmanager
def running(
    source: Source, progress: bool | None = None, nan_policy: str = "raise", checkpoint: Asked | None = None
) -> Iterator[Run]:
    """Lend the run of a call over a source, with a bar where progress is asked for, and a checkpoint.

    The source of the run may have other bands: those of the run that began the checkpoint.
    """
    with computing(progress) as compute:
        kept = None
        if checkpoint is not None and checkpoint.place is not None:
            kept, source = open_checkpoint(checkpoint, source, partial(label_hashes, compute))
        yield Run(source, compute, nan_policy, kept)
