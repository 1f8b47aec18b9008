"""Credentials: find the secrets in locations and options, and remove them from texts.

User, password, query and fragment of a URL are hidden, and the values of all options except those known to be harmless.
"""

from __future__ import annotations

import base64
import binascii
import html
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple
from urllib.parse import quote, quote_plus, unquote, unquote_plus

HIDDEN = "***"
#: Shorter secrets are not replaced in texts: too many words contain them.
LEAST = 4

#: Names whose values are secret, including all nested values.
SECRET_NAME = re.compile(
    r"key|secret|token|pass|pwd|sig|credential|connection|auth|cookie|header|bearer|private|sas", re.IGNORECASE
)
#: Names of options whose values are not secret, such as an endpoint or a bucket; without underscores.
_PLACE_NAME = re.compile(
    r"(endpoint(url)?|region(name)?|account(name|host)|protocol|suffix|host(name)?|port|bucket|container(name)?"
    r"|project|profile|client|mode|version)$",
    re.IGNORECASE,
)
_PLAIN_VALUES = ("http", "https", "true", "false", "none", "null", "anon", "basic", "bearer")
_CLOUD_VARIABLES = ("AWS_", "AZURE_", "GOOGLE_", "GCP_", "S3_")
#: Maximum depth of the search for secrets in nested options and objects.
_DEPTH = 6

# These patterns take linear time on any text: the length of a name is limited, or a match must start at its first letter.
#: A URL with one slash, as pathlib leaves it, or two.
_URL = re.compile(r"(?:^|(?<=::))[A-Za-z][\w+.-]+:/(?=[^/])|[A-Za-z][\w+.-]{0,99}://")
_URL_IN_TEXT = re.compile(r"[A-Za-z][\w+.-]{0,99}://[^\s'\"<>|\\]*[^\s'\"<>|\\).,;:\]}]")
_HOST = re.compile(r"(\[[^\]]*\]|[^:@\[\]]*)(:\d{0,5})?")
#: Hosts that are certainly not user names: the number after their colon is a port.
_SURE_HOST = re.compile(r"(localhost|\d+(\.\d+){3}|\[[^\]]*\])(:\d{0,5})?")
#: In URLs of Azure, the name before the @ is a container.
_AZURE = re.compile(r"(az|azure|abfss?|wasbs?|adl)://?", re.IGNORECASE)
_PAIR = re.compile(rf"(?i)(?<![\w.-])(?=[\w.-]*?(?:{SECRET_NAME.pattern}))([\w.-]+)=([^&;,\s\"'/]+)")


def redact(location: object) -> str:
    """Return a path unchanged, and a URL without user, password, query and fragment.

    Examples
    --------
    >>> redact("https://me:secret@example.org/scores.zarr?sig=abc"), redact("/home/me@work/a?b.zarr")
    ('https://***@example.org/scores.zarr', '/home/me@work/a?b.zarr')
    """
    text = os.fspath(location) if isinstance(location, (str, os.PathLike)) else str(location)
    if not _URL.search(text):
        return text
    return "::".join(
        link.redacted() if link else part if clear and "@" not in part else HIDDEN
        for part, link, clear in _read_links(text)
    )


def _read_links(text: str) -> Iterator[tuple[str, _Link | None, bool]]:
    """Yield each link of a chain, its parts if it is a URL, and whether it is clear of the secrets of earlier links.

    A password or query may contain ``::``, so it may extend into all later links.
    """
    clear = True
    for part in _links(text):
        link = _Link.parse(part)
        yield part, link, clear
        clear = clear and not (link and (link.user or link.query))


def _links(text: str) -> list[str]:
    """Split a chain such as simplecache::s3://bucket/a into links, but not at the colons of an address such as [::1].

    Examples
    --------
    >>> _links("a::http://[::1]:80/b::c")
    ['a', 'http://[::1]:80/b', 'c']
    """
    *parts, after = text.split("::")
    links, bracket = [after], ""  # go from right to left, and remember the last bracket
    for part in reversed(parts):
        bracket = next((c for c in after if c in "[]"), bracket)
        if bracket == "]":
            links[-1] = f"{part}::{links[-1]}"
        else:
            links.append(part)
        after = part
    return links[::-1]


def is_url(location: object) -> bool:
    """Whether a path is a URL, even if pathlib has reduced its slashes to one."""
    return bool(_URL.search(str(location)))


def shown_address(address: object) -> str:
    """Return the address of a server without credentials. The address may lack a scheme."""
    return redact(address) if "://" in str(address) else redact(f"http://{address}").removeprefix("http://")


class _Link(NamedTuple):
    """The parts of a URL: its scheme, its login, its host and path, and its query with the fragment."""

    scheme: str
    user: str
    place: str
    query: str

    @classmethod
    def parse(cls, text: str) -> _Link | None:
        """Split a URL, or return None if the text is not one. If a URL is ambiguous, more is hidden rather than less."""
        match = _URL.search(text)
        if match is None:
            return None
        scheme, rest = text[: match.end()], text[match.end() :]
        if "@" in text[: match.start()]:
            return cls("", text, "", "")
        if scheme == "file://" and rest.startswith("/"):
            return cls(scheme, "", rest, "")
        user, place = _split_login(match[0], rest)
        if re.search(r"[?#]", user):  # a password with a question mark, or an @ in the query
            return cls(scheme, rest, "", "")
        end = re.search(r"[?#]|$", place).start()  # type: ignore[union-attr]
        return cls(scheme, user, place[:end], place[end:])

    def redacted(self) -> str:
        place = _PAIR.sub(rf"\1={HIDDEN}", self.place)
        mark = "" if not self.user else HIDDEN if place[:1] in ("", "/") else f"{HIDDEN}@"
        return f"{self.scheme}{mark}{place}"


def _split_login(scheme: str, rest: str) -> tuple[str, str]:
    """Return the login of a URL, and the rest. A password may contain slashes."""
    server = re.split(r"[/?#]", rest, maxsplit=1)[0]
    login, at, address = rest.rpartition("@")
    if _AZURE.fullmatch(scheme) and ":" not in server:
        return "", rest
    if "@" in server or (at and ":" in server and not _SURE_HOST.fullmatch(server)):
        return login, address
    return ("", rest) if _HOST.fullmatch(server) else (server, rest[len(server) :])


def secrets_of(*places: object) -> tuple[str, ...]:
    """Return the secrets in locations and options: URLs, mappings, and lists of them.

    Examples
    --------
    >>> secrets_of("https://me:hunter2@example.org/a", {"region": "eu-1", "secret": "swordfish"})
    ('me:hunter2', 'hunter2', 'swordfish')
    """
    return tuple(dict.fromkeys(secret for place in places for secret in _secrets("", place, False, 0) if secret))


def _secrets(name: str, value: object, below: bool, depth: int) -> Iterator[str]:
    """Yield the secrets in a named value. Pass ``below`` if an enclosing name is secret."""
    is_named = bool(SECRET_NAME.search(name))
    below = below or is_named
    if depth > _DEPTH or value is None or isinstance(value, bool):
        return
    if isinstance(value, (bytes, bytearray)):
        value = bytes(value).decode("utf-8", "backslashreplace")
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    if isinstance(value, (int, float)):
        value = str(value) if is_named else ""
    if isinstance(value, str):
        # An option may leave out the scheme of an address: me:password@host
        bare = bool(name) and not _URL.search(value) and re.match(r"[^/\s@][^/\s@:]*:.*@", value)
        yield from _url_secrets(f"http://{value}" if bare else value)
        is_place = not name or _PLACE_NAME.search(re.sub(r"[\W_]", "", name))
        if below or not is_place:
            yield from _value_secrets(value, is_named)
    elif isinstance(value, Mapping):
        for part, inner in value.items():
            yield from _secrets(str(part), inner, below, depth + 1)
        yield from _logins([v for n, v in value.items() if re.search("(?i)user|login|pass|pwd", str(n))])
    elif isinstance(value, Iterable) and not hasattr(value, "shape"):
        values = list(value) if isinstance(value, (Sequence, set, frozenset)) else []
        for inner in values:
            yield from _secrets("" if not below else name, inner, below, depth + 1)
        yield from _logins(values if below else [])
    elif depth and not callable(value) and hasattr(value, "__dict__"):
        yield from _secrets(name, {k.strip("_"): v for k, v in vars(value).items()}, below, depth + _DEPTH // 2)


def _logins(values: Sequence[object]) -> Iterator[str]:
    """Yield user and password joined, as they are sent."""
    if len(values) >= 2 and all(isinstance(value, str) for value in values[:2]):
        yield f"{values[0]}:{values[1]}"


def _value_secrets(value: str, is_named: bool) -> Iterator[str]:
    """Yield a secret value and its parts: the words of a header, the values of a connection string or a query."""
    parts = [value, *value.split()]
    for name, part in re.findall(r"(?<![^=;&?,\s])([^=;&?,\s]+)=([^;&\s]+)", value):
        if not _PLACE_NAME.search(re.sub(r"[\W_]", "", name)):
            parts.append(part)
    for part in parts:
        if part.lower() not in _PLAIN_VALUES and (len(part) >= LEAST or (is_named and part is value)):
            yield part
    if value.lower().startswith("basic "):
        with suppress(binascii.Error, UnicodeDecodeError):
            login = base64.b64decode(value[6:]).decode()
            yield from (login, login.partition(":")[2])


def _url_secrets(text: str) -> Iterator[str]:
    """Yield the secrets in a URL, and the parts into which clients may split them."""
    for part, link, clear in _read_links(text):
        if link is None:
            yield from [] if clear else [part]
            continue
        if link.user:
            name, colon, password = link.user.partition(":")
            yield from (link.user, password if colon else name)
            yield from [name] if colon and len(name) >= LEAST else []
            pieces = re.split(r"[/?#@:]", password)
            yield from pieces if len(pieces) > 1 else []
        for query in re.split(r"[?#]", link.query):
            yield from _value_secrets(query, False)


def environment_secrets() -> tuple[str, ...]:
    """Return the secrets in environment variables: credentials of clouds, and logins in URLs, such as the URL of a proxy."""
    named = [v for n, v in os.environ.items() if n.startswith(_CLOUD_VARIABLES) and SECRET_NAME.search(n)]
    addresses = [v for v in os.environ.values() if "@" in v and "://" in v]
    return tuple(secret for secret in (*named, *secrets_of(addresses)) if len(secret) >= LEAST)


def hide(text: str, secrets: Iterable[str] = ()) -> str:
    """Return a text without the given secrets, however a client encodes them, and without logins and queries in its URLs."""
    forms = {form for secret in secrets for form in _forms(secret) if len(form) >= LEAST}
    for form in sorted(forms, key=len, reverse=True):
        if text.isascii() and form.lower() not in text.lower():
            continue  # a fast check, as a long pattern takes long to compile
        text = re.sub(re.escape(form), HIDDEN, text, flags=re.IGNORECASE)
    return _URL_IN_TEXT.sub(lambda match: redact(match[0]), text)


def hide_pairs(text: str) -> str:
    """Return a text without the values of secret names (``token=...``), and without authorization headers."""
    text = re.sub(r"(?i)\b(basic|bearer)\s+[\w+/=.~-]{4,}", rf"\1 {HIDDEN}", text)
    return _PAIR.sub(rf"\1={HIDDEN}", text)


def has_short(text: str, secrets: Iterable[str]) -> bool:
    """Whether a text contains a secret that is too short to be replaced."""
    return any(form.lower() in text.lower() for s in secrets if len(s) < LEAST for form in (s, quote(s, safe="")))


def _forms(secret: str) -> set[str]:
    """Return a secret in all forms in which clients may write it, such as quoted or in base64."""
    decoded = {secret, unquote(secret), unquote_plus(secret)}
    quoted = {spell(text) for text in decoded for spell in _SPELLINGS}
    encoded = {encode(text.encode()).decode().rstrip("=") for text in decoded for encode in _ENCODERS}
    return decoded | quoted | encoded


_SPELLINGS: tuple[Callable[[str], str], ...] = (
    quote, quote_plus, lambda s: quote(s, safe=""), html.escape, lambda s: repr(s)[1:-1], lambda s: json.dumps(s)[1:-1],
)  # fmt: skip
_ENCODERS: tuple[Callable[[bytes], bytes], ...] = (base64.b64encode, base64.urlsafe_b64encode)
