"""What may be shown of locations and errors: never credentials."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

#: Names of environment variables whose values must never be shown.
_SECRET_NAMES = re.compile(r"KEY|SECRET|TOKEN|PASS|SIGNATURE|CREDENTIAL|CONNECTION|AUTH|COOKIE", re.IGNORECASE)
_CLOUD_NAMES = ("AWS_", "AZURE_", "GOOGLE_", "GCP_", "S3_")

Options = Mapping[str, Any]


def shown(path: Any) -> str:
    """Give a path or URL as it may be shown: without user, password and query.

    Examples
    --------
    >>> shown("https://me:secret@example.org/scores.zarr?sig=abc")
    'https://***@example.org/scores.zarr'

    """
    text = os.fspath(path) if isinstance(path, (str, os.PathLike)) else str(path)
    if "://" not in text:
        return text
    return _without_user(text).split("?")[0]


def _without_user(text: str) -> str:
    """Hide the user of each URL; Azure's container@account is none."""
    return re.sub(r"(?<!abfs:)(?<!abfss:)(?<!wasbs:)//[^/\s?#]*@", "//***@", text)


def scrubbed(text: str, options: Options | None = None) -> str:
    """Give an error text in one line without credentials: neither given ones nor those of the environment."""
    code = re.search(r"<Code>(.*?)</Code>(?:\s*<Message>(.*?)</Message>)?", text, re.DOTALL)
    if code:  # what else S3 and Azure say may hold keys and signatures
        text = f"{code[1]}: {code[2]}" if code[2] else code[1]
    text = " ".join(text.split())
    text = _without_user(text)
    text = re.sub(r"(?i)\b(sig|[\w-]*signature|[\w-]*credential|[\w-]*token|[\w-]*key)=[^&\s\"']+", r"\1=***", text)
    for secret in sorted({*secrets_of(options), *_environment_secrets()}, key=len, reverse=True):
        text = text.replace(secret, "***")
    return text if len(text) <= 400 else f"{text[:400]}…"


def secrets_of(options: Options | None) -> tuple[str, ...]:
    """Give the values among storage options that must never be shown."""
    found: list[str] = []
    for name, value in (options or {}).items():
        if isinstance(value, Mapping):
            found += secrets_of(value)
        elif isinstance(value, str) and len(value) > 3 and _SECRET_NAMES.search(name):
            found.append(value)
    return tuple(found)


def _environment_secrets() -> list[str]:
    return [
        value
        for name, value in os.environ.items()
        if name.startswith(_CLOUD_NAMES) and _SECRET_NAMES.search(name) and len(value) > 3
    ]
