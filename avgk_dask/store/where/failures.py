"""Failures: whatever a client raises becomes one error of ours, without credentials, with what to do."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from zarr.abc.store import Store
from zarr.storage import FsspecStore, ObjectStore, WrapperStore

from ...credentials import has_short
from ...errors import AvgkError, StoreError, WriteError, refuse
from ...threads import FORK_CURE, was_forked_with
from .addresses import scrubbed, secrets_of, shown
from .zarr_calls import inside

_NETWORK = "Check the endpoint and the network."
_KNOWN = {
    ("No space left", "os error 28", "quota exceeded", "QuotaExceeded", "File too large"): "Make room, or choose another place.",
    ("169.254.169.254", "NoCredentials", "locate credentials"): "No credentials were found: set them in the environment, "
    "pass them as storage options, or anon=True.",
    ("[Errno 13]", "Permission denied (os error 13)"): "Check the permissions of the place.",
    ("AccessDenied", "InvalidAccessKeyId", "SignatureDoesNotMatch", "403", "401", "Forbidden", "Unauthor",
     "AuthenticationFailed", "Authorization", "PermissionDenied", "PermissionError", "NoAuthenticationInformation", "Access Key"):
    "Check the credentials, and that they may do this.",
    ("NoSuchBucket", "bucket does not exist", "ContainerNotFound", "NoSuchContainer"): "Check the bucket's name.",
    ("sending request", "onnect", "resolve", "dns", "imeout"): _NETWORK,
    ("unexpected keyword", "got an unexpected"): "Check the names of the storage options.",
}  # fmt: skip


def advice(text: str, otherwise: str) -> str:
    """Return what to do about an error of a store's client."""
    for signs, what in _KNOWN.items():
        if any(_has(text, sign) for sign in signs):
            return what
    return otherwise


#: What no second try mends: wrong calls, and what is not there or not allowed.
_LASTING = (
    TypeError, AttributeError, LookupError, NameError, ImportError, NotImplementedError, AssertionError, MemoryError,
    FileNotFoundError, PermissionError, IsADirectoryError, NotADirectoryError,
)  # fmt: skip


def may_pass(error: BaseException) -> bool:
    """Return whether an error of a store's client may be gone when it is asked again.

    Examples
    --------
    >>> may_pass(ConnectionResetError("reset by peer")), may_pass(OSError("403 Forbidden"))
    (True, False)

    """
    known = advice(f"{type(error).__name__}: {error}", _NETWORK)
    return not isinstance(error, _LASTING) and known == _NETWORK


def refuse_forked(store: Store) -> None:
    """Refuse a store whose client works on threads that stayed in the parent of this forked process: it would wait forever.

    obstore's threads are those of the process; those of fsspec belong to one file system, and a new one has its own.

    Raises
    ------
    StoreError
        With how to start processes instead.

    """
    inner: Store | None = store
    while isinstance(inner, WrapperStore):
        inner = inside(inner)
    is_stale = isinstance(inner, ObjectStore) and was_forked_with("obstore")
    if isinstance(inner, FsspecStore) and not hasattr(inner.fs, "sync_fs"):
        is_stale = getattr(inner.fs, "_pid", os.getpid()) != os.getpid()
    if is_stale and inner is not None:
        raise StoreError(
            f"{shown(inner)} cannot be used in this process: it was forked after its parent had used the client of this "
            f"store, whose threads do not survive a fork. Instead of forking, {FORK_CURE}."
        )


def _has(text: str, sign: str) -> bool:
    """Whether a text has a sign; a number only as a whole one, not among the digits of a time."""
    return sign in text and (not sign.isdigit() or re.search(rf"(?<![\d.]){sign}(?!\d)", text) is not None)


def cause(error: BaseException, secrets: Iterable[str] = ()) -> str:
    """Return an error's class and text in one line, without credentials; the class alone where these cannot be told apart."""
    name, secrets = type(error).__name__, tuple(secrets)
    text = scrubbed(str(error).split("Debug source:")[0], secrets).rstrip(".")
    return name if has_short(text, secrets) else f"{name}: {text}"


@contextmanager
def writing(location: str, *given: object) -> Iterator[None]:
    """Turn what fails while writing into a WriteError; ``given`` are the path and options, which may hold credentials."""
    try:
        yield
    except AvgkError:
        raise
    except Exception as error:
        what = cause(error, secrets_of(*given))
        todo = advice(what, "Check the place and its permissions.")
        refuse(WriteError(f"could not write {location}: {what}. {todo}"))
