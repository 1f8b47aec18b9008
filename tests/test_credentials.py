"""Credentials: which parts of locations, options and texts are shown, and which are hidden."""

from __future__ import annotations

import base64
import pathlib
import pickle
import traceback

import pytest

from avgk_dask.cli.group import secrets_in
from avgk_dask.credentials import has_short, hide, hide_pairs, is_url, redact, secrets_of, shown_address
from avgk_dask.errors import AvgkError, StoreError, refuse


@pytest.mark.parametrize(
    "location",
    [
        "s3://bucket/path", "https://host/path", "https://host:8080/path", "http://[::1]:9000/a", "http://127.0.0.1:9/a@b.zarr",
        "az://container@account.blob.core.windows.net/x", "abfss://container@account.dfs.core.windows.net/x",
        "https://host/user@v2/x.zarr", "memory://a.zarr", "simplecache::s3://bucket/x", "zip://in.zarr::https://host/a.zip",
        "/home/me@work/a?b#c.zarr", "me:you@here.zarr", "file:///home/me@work/a?b#c", "a/b::c.zarr", "C:/data/me@x", "", "-",
    ],
)  # fmt: skip
def test_shown__leaves_what_is_harmless(location):
    assert redact(location) == location
    assert secrets_of(location) == ()


@pytest.mark.parametrize(
    "location, safe",
    [
        ("https://me:secret@host/x?sig=abc", "https://***@host/x"),
        ("https://token@host/x", "https://***@host/x"),
        ("https://host/x#abc", "https://host/x"),
        ("s3://KEY:SEC/RET@bucket/path", "s3://***@bucket/path"),
        ("http://me:a/b@host/x.zarr", "http://***@host/x.zarr"),
        ("http://me:123/b@host/x.zarr", "http://***@host/x.zarr"),
        ("http://me:p@ss@host/x", "http://***@host/x"),
        ("http://me:p?ss@host/x", "http://***"),
        ("http://me:pw@host/x?mail=a@b", "http://***"),
        ("https://host:80/x?mail=abc@def", "https://***"),
        ("http://127.0.0.1:9/x?token=abc@def", "http://127.0.0.1:9/x"),
        ("s3://KEY:SECRET/path", "s3://***/path"),
        ("abfs://container:sig@account/x", "abfs://***@account/x"),
        ("simplecache::s3://k:s@b/x", "simplecache::s3://***@b/x"),
        ("zip::https://u:p@h/a.zip?t=1", "zip::https://***@h/a.zip"),
        ("zip://in::https://u:p@h/a.zip?t=1", "zip://in::https://***@h/a.zip"),
        ("https://h/x?t=a::b", "https://h/x::***"),
        ("http://me:a::b@host/x", "http://***::***"),
        ("me:pw@https://host/x", "***"),
        ("https://host/x;token=abc", "https://host/x;token=***"),
        ("HTTPS://me:pw@Host/x", "HTTPS://***@Host/x"),
        (" https://me:pw@host/x", " https://***@host/x"),
        (pathlib.PurePosixPath("https://me:a/b@host/x"), "https:/***@host/x"),
        (pathlib.PurePosixPath("simplecache::https://me:a/b@host/x"), "simplecache::https:/***@host/x"),
        ("file://me:pw@host/x", "file://***@host/x"),
    ],
)  # fmt: skip
def test_shown__hides_users_queries_and_fragments(location, safe):
    assert redact(location) == safe
    assert is_url(location)


def test_shown_address__hides_users_with_and_without_a_scheme():
    given = ["me:PW@host:9", "host:9", "https://me:PW@host", "me:P/W@host"]
    assert [shown_address(one) for one in given] == ["***@host:9", "host:9", "https://***@host", "***@host"]


class Login:
    def __init__(self):
        self._user, self._password = "me", "swordfish"


@pytest.mark.parametrize(
    "options",
    [
        {"secret": "swordfish"}, {"password": b"swordfish"}, {"headers": {"X-Odd": "swordfish"}}, {"headers": ["a: swordfish"]},
        {"client_kwargs": {"auth": ("me", "swordfish")}}, {"cookies": {"a": "swordfish"}}, {"odd": "swordfish"},
        {"headers": {"Authorization": "Bearer swordfish"}}, {"login": Login()}, {"target_options": [{"token": "swordfish"}]},
        {"headers": {"Authorization": "Basic " + base64.b64encode(b"me:swordfish").decode()}},
        {"connection_string": "AccountName=acct;AccountKey=swordfish;EndpointSuffix=core.windows.net"},
        {"sas_token": "?sv=2022&sig=swordfish"}, {"endpoint_url": "https://me:swordfish@host"}, {"endpoint": "me:swordfish@host"},
        {"proxies": {"https": "http://me:swordfish@proxy"}}, {"fo": "s3://me:swordfish@bucket/x"},
    ],
)  # fmt: skip
def test_options__are_secret_unless_they_say_where_something_is(options):
    secrets = secrets_of(options)
    assert "swordfish" in secrets
    for text in ("it was swordfish", "it was SwordFish", "it was " + base64.b64encode(b"swordfish").decode()):
        assert hide(text, secrets) == "it was ***"


def test_options__that_say_where_something_is_stay_readable():
    assert secrets_of({"endpoint_url": "http://host:9", "region": "eu-west-1", "account_name": "acct", "anon": True,
                       "client": "fsspec", "use_ssl": "false", "port": 9000, "profile": "work"}) == ()  # fmt: skip
    assert secrets_of({"password": 123456}) == ("123456",)


@pytest.mark.parametrize(
    "text",
    [
        "sw/ord+f", "sw%2Ford%2Bf", "sw%2ford%2bf", "SW/ORD+F", base64.b64encode(b"me:sw/ord+f").decode(), "me:sw/ord+f",
        repr("sw/ord+f"), repr(b"sw/ord+f"), "http://me:sw/ord+f@host/x", "http://me:sw%2Ford%2Bf@host/x?y",
    ],
)  # fmt: skip
def test_hide__knows_the_spellings_of_clients(text):
    hidden = hide(f"no: {text}.", secrets_of("http://me:sw%2Ford%2Bf@host/x")).lower()
    assert "sw" not in hidden
    assert "ord" not in hidden


def test_hide__cleans_urls_and_headers_that_nobody_knew_of():
    assert (
        hide("GET (https://u:p4ss@h/x?sig=1), then 'http://h:80/y'.") == "GET (https://***@h/x), then 'http://h:80/y'."
    )
    assert hide_pairs("X-Amz-Signature=dead&a=b Authorization: Bearer abc.def") == (
        "X-Amz-Signature=***&a=b Authorization: Bearer ***"
    )


def test_hide__takes_odd_secrets_for_what_they_are():
    odd = r"a.b(c\d'e\"f&g"
    for text in (odd, repr(odd), base64.urlsafe_b64encode(odd.encode()).decode()):
        assert "b(c" not in hide(f"no: {text}", (odd,))


def test_short_secrets__are_told_from_texts_that_hold_them():
    secrets = secrets_of("http://me:ab@host/x", {"secret": "xyz"})
    assert {"ab", "xyz"} <= set(secrets)
    assert hide("could not open http://me:ab@host/x", secrets) == "could not open http://***@host/x"
    assert has_short("wrong password 'AB'", secrets)
    assert not has_short("refused", secrets)


def test_refuse__leaves_no_trace_of_what_was_handled():
    def fail():
        try:
            raise ValueError("swordfish")
        except ValueError:
            refuse(StoreError("no"))

    with pytest.raises(StoreError) as refused:
        fail()
    error = refused.value
    assert error.__cause__ is None
    assert error.__context__ is None
    assert "ValueError: swordfish" not in "".join(traceback.format_exception(error))
    assert isinstance(pickle.loads(pickle.dumps(error)), AvgkError)


@pytest.mark.parametrize(
    "words",
    ["--storage-option secret=swordfish", "--storage-option=secret=swordfish", "--out-option odd=swordfish", "--storage-option swordfish",
     "--storage-option secret swordfish", "--storage-option secret = swordfish", "--storage-option secret =swordfish",
     "info --labels=https://me:swordfish@host", "--scheduler tls://me:swordfish@host:1", "password=swordfish"],
)  # fmt: skip
def test_command_lines__are_searched_for_secrets(words):
    assert "swordfish" in secrets_in(words.split())


def test_command_lines__have_harmless_words():
    words = "evaluate s3://bucket/a.zarr -k 1:5 --storage-option region=eu-1 --out results --labels=y"
    assert secrets_in(words.split()) == ()
