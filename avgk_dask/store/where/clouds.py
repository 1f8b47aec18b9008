"""Object stores through obstore: the usual names of storage options, timeouts and retries."""

from __future__ import annotations

import base64
import os
from datetime import timedelta
from importlib.util import find_spec
from typing import Any
from urllib.parse import unquote, urlsplit, urlunsplit

from zarr.abc.store import Store
from zarr.storage import ObjectStore

from ...errors import StoreError, refuse
from .addresses import Options, secrets_of, shown
from .failures import advice, cause

#: The extra that serves each protocol.
CLOUDS = {"s3": "s3", "s3a": "s3", "gs": "gcs", "gcs": "gcs", "az": "azure", "abfs": "azure", "abfss": "azure",
          "https": "http", "http": "http"}  # fmt: skip

# fsspec's names and the cloud's own, as obstore calls them.
S3_NAMES = {
    "key": "access_key_id", "access_key_id": "access_key_id", "aws_access_key_id": "access_key_id",
    "secret": "secret_access_key", "secret_access_key": "secret_access_key",
    "aws_secret_access_key": "secret_access_key",
    "token": "session_token", "session_token": "session_token", "aws_session_token": "session_token",
    "endpoint_url": "endpoint", "endpoint": "endpoint", "aws_endpoint": "endpoint", "aws_endpoint_url": "endpoint",
    "region": "region", "region_name": "region", "aws_region": "region",
    "anon": "skip_signature", "skip_signature": "skip_signature",
    "requester_pays": "request_payer",
    "virtual_hosted_style_request": "virtual_hosted_style_request",
}  # fmt: skip
_GCS = {"service_account_path": "service_account", "service_account": "service_account",
        "anon": "skip_signature", "skip_signature": "skip_signature"}  # fmt: skip
_AZURE = {
    "account_name": "account_name", "account_key": "account_key", "sas_token": "sas_token",
    "client_id": "client_id", "client_secret": "client_secret", "tenant_id": "tenant_id",
    "endpoint": "endpoint", "endpoint_url": "endpoint", "account_host": "endpoint",
    "anon": "skip_signature", "skip_signature": "skip_signature",
}  # fmt: skip
_CONNECTION = {"AccountName": "account_name", "AccountKey": "account_key", "BlobEndpoint": "endpoint",
               "SharedAccessSignature": "sas_token"}  # fmt: skip

_FLAGS = ("skip_signature", "request_payer", "virtual_hosted_style_request")

#: A dead endpoint is given up after this long; a server that says "slow down" is asked again meanwhile.
_RETRIES = {
    "max_retries": 12,
    "retry_timeout": timedelta(seconds=60),
    "backoff": {"init_backoff": timedelta(milliseconds=100), "max_backoff": timedelta(seconds=4), "base": 2},
}
_CONNECT_SECONDS = 4


def open_cloud(url: str, options: Options, *, write: bool, required: bool) -> Store | None:
    """Return the store behind an object-store URL through obstore; None where fsspec must serve it."""
    config = _translate(url.split("://")[0], options)
    if find_spec("obstore") is None or config is None:
        if required:
            why = "is not installed" if config is not None else f"does not know all of the options {sorted(options)}"
            raise StoreError(f"the client obstore cannot open this store: it {why}. Drop the option client.")
        return None
    import obstore.store

    plain_http = str(config.get("endpoint", _environment_endpoint(url))).startswith("http://") or url.startswith(
        "http://"
    )
    client: dict[str, object] = {
        "connect_timeout": timedelta(seconds=_CONNECT_SECONDS),
        "timeout": timedelta(seconds=30),
    }
    if plain_http:
        client["allow_http"] = True
    settings: dict[str, Any] = {"client_options": client, "retry_config": _RETRIES}
    if config:
        settings["config"] = config
    try:
        address, login = _split_login(url.replace("s3a://", "s3://", 1).replace("gcs://", "gs://", 1))
        if login:
            client["default_headers"] = {"authorization": login}
        # A web server stays one, though its name may look like a cloud's.
        of_url = obstore.store.HTTPStore.from_url if url.startswith("http") else obstore.store.from_url
        store = of_url(address, **settings)
    except Exception as error:  # obstore's own exception classes, and those of URLs that are none
        why = cause(error, secrets_of(url, options))
        refuse(StoreError(f"could not open {shown(url)}: {why}. {advice(why, 'Check the options.')}"))
    return ObjectStore(store, read_only=not write)


def _split_login(url: str) -> tuple[str, str]:
    """Return the URL of a web server without user and password, and the header that tells them, as obstore does not."""
    parts = urlsplit(url)
    login, at, host = parts.netloc.rpartition("@")
    if not at or not url.startswith("http"):
        return url, ""
    user, _, password = map(unquote, login.partition(":"))
    told = base64.b64encode(f"{user}:{password}".encode()).decode()
    return urlunsplit(parts._replace(netloc=host)), f"Basic {told}"


def _translate(scheme: str, options: Options) -> Options | None:
    """Return the options in obstore's names; None where one has no counterpart, or credentials are in files."""
    options = {**options}
    if scheme in ("s3", "s3a"):
        names = S3_NAMES
        options |= options.pop("client_kwargs", {})
        if not is_true(options.get("anon", options.get("skip_signature"))) and not _has_s3_credentials(options):
            return None
    elif scheme in ("gs", "gcs"):
        names = _GCS
    elif scheme in ("http", "https"):
        names = {}
    else:
        names = _AZURE
        text = options.pop("connection_string", os.environ.get("AZURE_STORAGE_CONNECTION_STRING", ""))
        pairs = dict(part.split("=", 1) for part in text.split(";") if "=" in part)
        options = {_CONNECTION[name]: value for name, value in pairs.items() if name in _CONNECTION} | options
    if not set(options) <= set(names):
        return None
    found = {names[name]: value for name, value in options.items() if value not in (None, "")}
    return {name: is_true(value) if name in _FLAGS else value for name, value in found.items()}


def is_true(value: object) -> bool:
    """Whether an option is on, as a truth value or in a word."""
    return value if isinstance(value, bool) else str(value).lower() in ("1", "true", "yes", "on")


def _has_s3_credentials(options: Options) -> bool:
    """Whether obstore finds credentials: it looks at options, the environment and the host, not at ~/.aws files."""
    given = "key", "access_key_id", "aws_access_key_id"
    in_files = os.path.exists(os.path.expanduser(os.environ.get("AWS_SHARED_CREDENTIALS_FILE", "~/.aws/credentials")))
    return any(name in options for name in given) or "AWS_ACCESS_KEY_ID" in os.environ or not in_files


def _environment_endpoint(url: str) -> str:
    if not url.startswith("s3"):
        return ""
    return os.environ.get("AWS_ENDPOINT_URL") or os.environ.get("AWS_ENDPOINT") or ""
