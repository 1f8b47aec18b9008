"""What ``avgk info`` prints."""

from __future__ import annotations

from ..results.datasets import StoreInfo, ValuesInfo
from ..results.text import Screen, wrapped

#: Columns of the names of what is told.
_NAMES = 10


def print_info(info: StoreInfo, *, width: int | None = None, colour: bool = False) -> str:
    """Return the description of a store as text.

    Lines fit ``width``; by default they are as long as they are. With ``colour`` they hold the colours of a terminal.
    """
    screen = Screen(width, colour)
    rows = [
        ("store", info["store"]),
        ("scores", _scores(info)),
        ("labels", info["labels"] or "none"),
        ("layout", _layout(info)),
        ("codecs", f"{_format(info)}: {' + '.join(info['codecs'])}"),
        ("size", _size(info)),
        (
            "missing",
            "cannot be listed"
            if info["n_missing_chunks"] is None
            else f"{info['n_missing_chunks']:,} {'chunk' if info['n_missing_chunks'] == 1 else 'chunks'}",
        ),
        ("manifest", "yes: every read is checked" if info["has_manifest"] else "none"),
        ("values", _values(info["values"])),
        (
            "memory",
            f"{_bytes(info['task_memory'])} a task (k = 1:10), of {_bytes(info['memory_limit'])}; "
            f"{_bytes(info['merge_memory'])} to merge, {_bytes(info['client_memory'])} to finish",
        ),
        ("reads", info["reads"]),
    ]
    rows += [("advice", text) for text in info["advice"]]
    return "\n".join(line for name, text in rows for line in _fact(screen, name, text))


def _fact(screen: Screen, name: str, text: str) -> list[str]:
    """Return a name and what is told of it, as lines below each other."""
    first, *more = wrapped(text, None if screen.width is None else screen.width - _NAMES)
    start = screen.painted(name, "strong") + " " * (_NAMES - len(name))
    return [start + first, *(" " * _NAMES + line for line in more)]


def _scores(info: StoreInfo) -> str:
    rounding = f" ({info['rounding']})" if info["rounding"] else ""
    rounding += f", decoded by {info['encoding']}" if info["encoding"] else ""
    rounding += f", {info['truncated']}" if info["truncated"] else ""
    return f"{info['n_samples']:,} samples x {info['n_classes']:,} classes, {info['dtype']}{rounding}"


def _format(info: StoreInfo) -> str:
    return "a file" if info["zarr_format"] is None else f"Zarr v{info['zarr_format']}"


def _layout(info: StoreInfo) -> str:
    chunks = " x ".join(f"{n:,}" for n in info["chunks"])
    shards = "" if info["shards"] is None else f" in shards of {' x '.join(f'{n:,}' for n in info['shards'])}"
    kind = ("shard" if shards else "chunk") + ("" if info["n_chunks"] == 1 else "s")
    return f"{info['n_chunks']:,} {kind}, chunks of {chunks}{shards}"


def _size(info: StoreInfo) -> str:
    stored = info["n_stored_bytes"]
    return f"{_bytes(info['n_bytes'])}" + ("" if stored is None else f", {_bytes(stored)} stored")


def _values(values: ValuesInfo | None) -> str:
    if values is None:
        return "none are stored"
    if values["low"] is None or values["high"] is None:
        return values["kind"]
    return f"{values['kind']} ({values['low'] + 0.0:.6g} to {values['high'] + 0.0:.6g} in the first {values['n_rows_sampled']} rows)"


def _bytes(n: int) -> str:
    size, units = float(n), ["bytes", "kB", "MB", "GB", "TB"]
    while size >= 1000 and len(units) > 1:
        size, units = size / 1000, units[1:]
    return f"{size:.0f} bytes" if units[0] == "bytes" else f"{size:.1f} {units[0]}"
