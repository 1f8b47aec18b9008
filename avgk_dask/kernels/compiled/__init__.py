"""Compiled code on disk that notices changes of every file it was made from."""

from __future__ import annotations

from typing import Any


def notice_changes(kernel: Any, *called: Any) -> None:
    """Let numba's cache of a kernel notice changes of the files of the kernels it calls.

    By itself it notices changes of the kernel's own file only, and would go on to use what was compiled with the
    older kernels. What is noticed is handed on: to name the kernels called directly is enough.
    """
    files: list[Any] = [getattr(getattr(one, "_cache", None), "_cache_file", None) for one in (kernel, *called)]
    if all(hasattr(file, "_source_stamp") for file in files):
        files[0]._source_stamp = tuple(file._source_stamp for file in files)
