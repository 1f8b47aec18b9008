"""Messages as the command line spells them, the package's own errors speak Python; and what they must not repeat."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ..credentials import SECRET_NAME, secrets_of

#: What an error says, and what it says to someone who typed a command.
_FORMS = (
    (r"[\w=\"']+ \(on the command line (--[^)]+)\)", r"\1"),
    (r"Name the array to use\.", "Name the array to use with --scores NAME or --labels NAME."),
    (r"Name the (column|member) to use\.", r"Name the \1 to use with --scores NAME or --labels NAME."),
    (r"Drop the names\.", "Drop --scores and --labels."),
    (r"^out must", "--out must"),
    (r"^threshold must", "--threshold must"),
    (r"^(ties|ambiguity|dtype|levels|top_m|chunk_rows|shard_chunks|alpha|seed|penalty|k_reg) must", lambda m: f"--{m[1].replace('_', '-')} must"),
    (r"anon=True", "--storage-option anon=true"),
    (r"pass them as storage options", "pass them with --storage-option"),
    (r"^k must", "-k must"),
    (r"guarantee='expected'", "--guarantee expected"),
    (r"^calibration_scores must", "CALIBRATION must"),
    (r"Use average_k_sets for a fractional k\.", "Use --rule average for a fractional k."),
)  # fmt: skip


def spelled(message: str) -> str:
    """Return a message with the options of the command line in place of Python's arguments.

    Examples
    --------
    >>> spelled('scores must be whole; got c/0 missing. Read it with missing="fill" (on the command line --missing fill).')
    'scores must be whole; got c/0 missing. Read it with --missing fill.'

    """
    for pattern, form in _FORMS:
        message = re.sub(pattern, form, message)
    return message


def secrets_in(words: Sequence[str]) -> tuple[str, ...]:
    """Return what must not be shown of the words of a command line.

    Examples
    --------
    >>> secrets_in(["info", "s3://bucket/a.zarr", "--storage-option", "secret=swordfish"])
    ('swordfish',)

    """
    found: list[str] = []
    awaited = False
    for word in words:
        text = re.sub(r"^--(storage|out|calibration|checkpoint)-option(=|$)", "", word)
        awaited = awaited or text != word
        name, equals, value = text.partition("=")
        if not awaited or (word.startswith("-") and text == word):
            awaited = False
            found += secrets_of({name: value}) if SECRET_NAME.search(name) and equals else secrets_of(word, value)
        elif name and value:
            awaited = False
            found += secrets_of({name: value})
        else:  # secret = swordfish
            found += [part for part in (name, value) if part]
    return tuple(found)
