"""Checks of the options that several functions share."""

from __future__ import annotations

from ..errors import OptionError


def check_nan_policy(nan_policy: str) -> None:
    """Refuse an unknown policy."""
    if nan_policy not in ("raise", "lowest"):
        raise OptionError(f"nan_policy must be 'raise' or 'lowest'; got {nan_policy!r}. Leave it out to refuse NaN.")


def check_ties(ties: str) -> None:
    """Refuse an unknown order of ties."""
    if ties not in ("first", "spread"):
        raise OptionError(f"ties must be 'first' or 'spread'; got {ties!r}. Leave it out to keep the first ones.")


def check_guarantee(guarantee: str | None) -> None:
    """Refuse an unknown guarantee."""
    if guarantee not in (None, "expected"):
        raise OptionError(f"guarantee must be 'expected' or None; got {guarantee!r}. Leave it out for none.")
