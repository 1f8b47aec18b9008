"""Locations: names of options, clients, and hidden credentials."""

from __future__ import annotations

import pathlib

import numpy as np
import pytest
from zarr.storage import FsspecStore, LocalStore, ObjectStore

import avgk_dask as avgk
from avgk_dask.store.where.addresses import advice, cause, redact, scrub, secrets_of
from avgk_dask.store.where.locations import _for_s3fs, _translate, locate
from avgk_dask.testing import Simulation, simulate_store

KEY = {"key": "AKIDKEY", "secret": "SECRETKEY"}


@pytest.mark.parametrize(
    "scheme, given, expected",
    [
        ("s3", KEY, {"access_key_id": "AKIDKEY", "secret_access_key": "SECRETKEY"}),
        ("s3", {"anon": True, "client_kwargs": {"region_name": "eu-1"}}, {"skip_signature": True, "region": "eu-1"}),
        ("s3", {**KEY, "endpoint_url": "http://h"}, {**dict(zip(("access_key_id", "secret_access_key"), KEY.values(), strict=True)), "endpoint": "http://h"}),
        ("s3", {**KEY, "profile": "work"}, None),
        ("s3", {**KEY, "token": ""}, {"access_key_id": "AKIDKEY", "secret_access_key": "SECRETKEY"}),
        ("gs", {"anon": True}, {"skip_signature": True}),
        ("gs", {"token": "google_default"}, None),
        ("az", {"connection_string": "AccountName=a;AccountKey=k==;EndpointSuffix=x"}, {"account_name": "a", "account_key": "k=="}),
        ("abfs", {"account_name": "a", "sas_token": "s"}, {"account_name": "a", "sas_token": "s"}),
        ("https", {}, {}),
        ("https", {"headers": {}}, None),
    ],
)  # fmt: skip
def test_options__have_the_same_names_for_all_clients(monkeypatch, scheme, given, expected):
    monkeypatch.delenv("AZURE_STORAGE_CONNECTION_STRING", raising=False)
    assert _translate(scheme, given) == expected


def test_options__of_s3fs_avoid_the_head_before_each_get():
    made = _for_s3fs({**KEY, "region": "eu-1", "endpoint": "http://h", "anon": "false"})
    assert made["max_concurrency"] == 1
    assert made["client_kwargs"] == {"region_name": "eu-1"}
    assert (made["endpoint_url"], made["anon"], made["key"]) == ("http://h", False, "AKIDKEY")


def test_locate__chooses_the_client(tmp_path, monkeypatch):
    pytest.importorskip("obstore")
    pytest.importorskip("s3fs")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.delenv("AWS_ACCESS_KEY_ID", raising=False)
    assert isinstance(locate("s3://b/a.zarr"), ObjectStore)
    assert isinstance(locate("s3://b/a.zarr", {**KEY, "client": "fsspec"}), FsspecStore)
    assert isinstance(locate("s3://b/a.zarr", {**KEY, "cache_regions": True}), FsspecStore)
    (tmp_path / "credentials").write_text("[default]\naws_access_key_id = AKID\n")
    assert isinstance(locate("s3://b/a.zarr"), FsspecStore)  # obstore does not read that file
    assert isinstance(locate("s3://b/a.zarr", KEY), ObjectStore)
    assert isinstance(locate(f"file://{tmp_path}"), LocalStore)
    assert isinstance(locate("memory://a.zarr"), FsspecStore)
    with pytest.raises(avgk.StoreError, match="obstore cannot open"):
        locate("s3://b/a.zarr", {**KEY, "profile": "work", "client": "obstore"})
    with pytest.raises(avgk.StoreError, match="folder or a URL"):
        locate("a.zip", write=True)


@pytest.mark.parametrize(
    "text, safe",
    [
        ("GET https://u:p4ss@h/x", "GET https://***@h/x"),
        ("https://h/x?sig=abc%3D&se=2026", "https://h/x"),
        ("X-Amz-Signature=deadbeef", "X-Amz-Signature=***"),
        ("<Error><Code>InvalidAccessKeyId</Code><Message>No such key.</Message><AWSAccessKeyId>AKID</AWSAccessKeyId>",
         "InvalidAccessKeyId: No such key."),
        ("bad SECRETKEY here", "bad *** here"),
        ("line\n  two", "line two"),
    ],
)  # fmt: skip
def test_scrubbed__hides_credentials(text, safe):
    assert scrub(text, secrets_of(KEY)) == safe


def test_scrubbed__hides_those_of_the_environment(monkeypatch):
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "FROMENVIRONMENT")
    assert scrub("it was FROMENVIRONMENT") == "it was ***"
    assert secrets_of({"client_kwargs": {"aws_secret_access_key": "DEEPLY"}, "anon": True}) == ("DEEPLY",)


@pytest.mark.parametrize("write", [False, True])
@pytest.mark.parametrize("url", ["https://me:pw@host/a.zarr", "s3://me:pw@bucket/a.zarr", "zip::s3://me:pw@b/a.zip"])
def test_locate__takes_no_url_for_a_path(tmp_path, monkeypatch, url, write):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(avgk.StoreError, match=r"two slashes; got '[\w:]+:/\*\*\*@.*Pass a URL as text"):
        locate(pathlib.Path(url), write=write)  # one slash is left
    assert not any(tmp_path.iterdir())


def test_shown__leaves_paths_alone():
    assert redact("/a/b?c.zarr") == "/a/b?c.zarr"
    assert redact("s3://user:pass@bucket/a.zarr?versionId=1") == "s3://***@bucket/a.zarr"
    assert (
        redact("abfs://container@account.dfs.core.windows.net/a") == "abfs://container@account.dfs.core.windows.net/a"
    )


def test_errors__say_what_to_do():
    text = cause(RuntimeError("error sending request\n\nDebug source: lots"))
    assert text == "RuntimeError: error sending request"
    assert advice(text, "nothing") == "Check the endpoint and the network."
    assert advice("odd", "nothing") == "nothing"


def test_errors__do_not_take_the_digits_of_a_time_for_a_status():
    text = "GET http://127.0.0.1:9/a in 3.403406857s - HTTP error: error sending request"
    assert advice(text, "nothing") == "Check the endpoint and the network."
    assert advice("took 0.401 s", "nothing") == "nothing"
    assert "credentials" in advice("Client error with status 403 Forbidden", "nothing")
    assert "credentials" in advice("(401) no", "nothing")


@pytest.mark.parametrize(
    "location", ["a\0b.zarr", "https://[::1", "zip::file:///nowhere.zip", "ftp://127.0.0.1:1/x.zarr"]
)
@pytest.mark.parametrize("use", [
    avgk.info, avgk.verify, avgk.open_scores, lambda path: avgk.evaluate(path, k=1),
    lambda path: avgk.evaluate(np.eye(3), path, k=1), lambda path: avgk.ScoreWriter(path, 3), avgk.join_parts,
    lambda path: avgk.ingest(path, out="o.zarr"),
])  # fmt: skip
def test_locations__that_cannot_be_end_in_one_error_of_ours(tmp_path, monkeypatch, use, location):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(avgk.StoreError) as refused:
        use(location)
    assert "\n" not in str(refused.value)
    assert not list(tmp_path.iterdir())


def test_relative_paths__are_those_of_the_folder_they_were_opened_in(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    simulate_store("s.zarr", Simulation(100, 5), chunks=(10, 5))
    opened = avgk.open_scores("s.zarr")
    expected = avgk.evaluate(opened)
    monkeypatch.chdir("/")
    assert avgk.evaluate(opened).identical(expected)
