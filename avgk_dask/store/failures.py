"""Failures: whatever a client raises becomes one error of ours, without credentials, with what to do."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from ..errors import AvgkError, WriteError
from .showing import Options, scrubbed

_KNOWN = {
    ("No space left", "os error 28", "quota exceeded", "QuotaExceeded", "File too large"): "Make room, or choose another place.",
    ("169.254.169.254", "NoCredentials", "locate credentials"): "No credentials were found: set them in the environment, "
    "pass them as storage options, or anon=True.",
    ("[Errno 13]", "Permission denied (os error 13)"): "Check the permissions of the place.",
    ("AccessDenied", "InvalidAccessKeyId", "SignatureDoesNotMatch", "403", "401", "Forbidden", "Unauthor",
     "AuthenticationFailed", "Authorization", "PermissionDenied", "PermissionError", "NoAuthenticationInformation", "Access Key"):
    "Check the credentials, and that they may do this.",
    ("NoSuchBucket", "bucket does not exist", "ContainerNotFound", "NoSuchContainer"): "Check the bucket's name.",
    ("sending request", "onnect", "resolve", "dns", "imeout"): "Check the endpoint and the network.",
    ("unexpected keyword", "got an unexpected"): "Check the names of the storage options.",
}  # fmt: skip


def advice(text: str, otherwise: str) -> str:
    """Give what to do about an error of a store's client."""
    for signs, what in _KNOWN.items():
        if any(_has(text, sign) for sign in signs):
            return what
    return otherwise


def _has(text: str, sign: str) -> bool:
    """Whether a text has a sign; a number only as a whole one, not among the digits of a time."""
    return sign in text and (not sign.isdigit() or re.search(rf"(?<![\d.]){sign}(?!\d)", text) is not None)


def cause(error: BaseException, options: Options | None = None) -> str:
    """Give an error's class and text in one line, without credentials."""
    text = str(error).split("Debug source:")[0]
    return scrubbed(f"{type(error).__name__}: {text}", options).rstrip(".")


@contextmanager
def writing(location: str, options: Options | None = None) -> Iterator[None]:
    """Turn what fails while writing into a WriteError."""
    try:
        yield
    except AvgkError:
        raise
    except Exception as error:
        what = cause(error, options)
        # Not chained: the error's own text may hold credentials.
        raise WriteError(
            f"could not write {location}: {what}. {advice(what, 'Check the place and its permissions.')}"
        ) from None
