"""Settings, all under ``avgk`` in Dask's own configuration.

Only ``ranked-bytes`` and ``ranked-bins`` can change a result: they decide whether straddle strengths are exact, which the
result reports.
"""

from __future__ import annotations

from typing import Any

from dask import config

DEFAULTS: dict[str, int | float | None] = {
    # Score matrices up to this many scores are scanned at once, without a pilot.
    "small-scores": 1 << 18,
    # Score matrices up to this many scores are processed in plain NumPy, without compiling.
    "plain-scores": 1 << 18,
    # Chunks the pilot reads: this share of all, within these bounds.
    "pilot-share": 0.05,
    "pilot-least": 4,
    "pilot-most": 16,
    # Bytes of whole rows (4 or 8 per key, and 12 per row) held over all bands together. If relevant scores take more, only those
    # close to the thresholds are held, as events.
    "kept-bytes": 1 << 27,
    # Events held over all bands together (17 to 28 bytes each). If more are expected, bands are scanned in waves.
    "max-events": 6 << 20,
    # Bytes of ranked scores (4 or 8 each) held over all samples and ranks together. Beyond, straddle strengths come from
    # this number of bins (32 bytes each), with a certified error.
    "ranked-bytes": 1 << 27,
    "ranked-bins": 1 << 19,
    # Distinct costs of labels held for conformal thresholds, over all bands together (24 bytes each). Beyond, they are
    # counted in bins, and a second read settles the threshold.
    "label-costs": 1 << 20,
    # Groups of bands whose equal events are counted together, if they are many.
    "tie-groups": 512,
    # Events that any band may hold.
    "least-events": 1 << 16,
    # Scores processed at a time, to stay in cache.
    "tile-scores": 1 << 20,
    # Chunks of fewer rows are read together, as one band of up to this many bytes.
    "band-bytes": 4 << 20,
    # Bytes of a slab, when a band is read in several along the classes.
    "slab-bytes": 8 << 20,
    # A task reads bands of at least this many bytes, one after the other ...
    "task-bytes": 8 << 20,
    # ... and there are at most this many tasks.
    "max-tasks": 4096,
    "fan-in": 16,
    # Bytes that a process reads ahead of its scans from stores whose answers take time, at most an eighth of its memory.
    "ahead-bytes": 1 << 28,
    # Seconds for which a read that failed is tried again, if the failure may be temporary.
    "retry-seconds": 10,
    # Seconds without a finished task after which a run on a cluster says why, each time, and after which it ends.
    "stall-seconds": 60,
    "stall-limit": 600,
    # Seconds between the log lines of a run that shows no bar.
    "log-seconds": 60,
    # Bytes of sets, as bits, that are computed at once when sets are written.
    "window-bytes": 16 << 20,
    # Bytes a task may take; by default the worker's share of its memory.
    "memory-limit": None,
    # Bytes of scores in a file that can only be read from front to back, and is held in each process that reads it. At most a
    # quarter of the memory.
    "file-bytes": 1 << 30,
    # Bytes that a file of metadata (zarr.json and the like) may have.
    "metadata-bytes": 64_000_000,
    # Chunks that an array may have; more are taken for damaged metadata.
    "max-chunks": 10_000_000,
}


def setting(name: str) -> Any:
    """Return a setting: ``dask.config.set({"avgk.fan-in": 2})`` changes it."""
    return config.get(f"avgk.{name}", DEFAULTS[name])
