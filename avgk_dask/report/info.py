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
    details = [
        f" ({info['rounding']})" if info["rounding"] else "",
        f", decoded by {info['encoding']}" if info["encoding"] else "",
    ]
    details.append(f", {info['truncated']}" if info["truncated"] else "")
    chunks = " x ".join(f"{n:,}" for n in info["chunks"])
    shards = "" if info["shards"] is None else f" in shards of {' x '.join(f'{n:,}' for n in info['shards'])}"
    form = "a file" if info["zarr_format"] is None else f"Zarr v{info['zarr_format']}"
    stored, missing = info["n_stored_bytes"], info["n_missing_chunks"]
    rows = [
        ("store", info["store"]),
        ("scores", f"{info['n_samples']:,} samples x {info['n_classes']:,} classes, {info['dtype']}{''.join(details)}"),
        ("labels", info["labels"] or "none"),
        ("layout", f"{_count(info['n_chunks'], 'shard' if shards else 'chunk')}, chunks of {chunks}{shards}"),
        ("codecs", f"{form}: {' + '.join(info['codecs'])}"),
        ("size", _bytes(info["n_bytes"]) + ("" if stored is None else f", {_bytes(stored)} stored")),
        ("missing", "cannot be listed" if missing is None else _count(missing, "chunk")),
        ("manifest", "yes: every read is checked" if info["has_manifest"] else "none"),
        ("values", _values(info["values"])),
        (
            "memory",
            f"{_bytes(info['task_memory'])} a task (k = 1:10), of {_bytes(info['memory_limit'])}; "
            f"{_bytes(info['merge_memory'])} to merge, {_bytes(info['client_memory'])} to finish",
        ),
        ("reads", info["reads"]),
        *(("advice", text) for text in info["advice"]),
    ]
    lines = []
    for name, text in rows:
        first, *more = wrapped(text, None if width is None else width - _NAMES)
        lines.append(screen.painted(name, "strong") + " " * (_NAMES - len(name)) + first)
        lines += [" " * _NAMES + line for line in more]
    return "\n".join(lines)


def _count(n: int, what: str) -> str:
    return f"{n:,} {what}{'' if n == 1 else 's'}"


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
