"""Compiled kernels, whose cache notices changes in every file that they were made from."""

from __future__ import annotations

from typing import Any


def notice_changes(kernel: Any, *called: Any) -> None:
    """Let numba's cache of a kernel notice changes in the files of the kernels that it calls directly.

    Without this it notices changes in the kernel's own file only, and would use code compiled with the older kernels.
    """
    files: list[Any] = [getattr(getattr(one, "_cache", None), "_cache_file", None) for one in (kernel, *called)]
    if all(hasattr(file, "_source_stamp") for file in files):
        files[0]._source_stamp = tuple(file._source_stamp for file in files)
