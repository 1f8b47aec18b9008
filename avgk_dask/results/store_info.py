"""What is known of a store without evaluating it, as ``info`` gives it: all that JSON can hold."""

from __future__ import annotations

from typing import TypedDict


class ValuesInfo(TypedDict):
    """What the first rows of a store look like."""

    kind: str
    low: float | None
    high: float | None
    n_nan: int
    n_rows_sampled: int


class StoreInfo(TypedDict):
    """What a store holds, how it is laid out, what evaluating it takes, and advice."""

    store: str
    #: None of a file.
    zarr_format: int | None
    n_samples: int
    n_classes: int
    truncated: str | None
    dtype: str
    rounding: str | None
    encoding: str | None
    chunks: list[int]
    shards: list[int] | None
    codecs: list[str]
    n_chunks: int
    n_bytes: int
    n_stored_bytes: int | None
    n_missing_chunks: int | None
    has_manifest: bool
    labels: str | None
    values: ValuesInfo | None
    task_memory: int
    merge_memory: int
    client_memory: int
    memory_limit: int
    reads: str
    advice: list[str]
