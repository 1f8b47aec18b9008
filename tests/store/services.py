"""Object stores on loopback for tests: always moto; a Ceph gateway and azurite if their addresses are set."""

from __future__ import annotations

import contextlib
import os
import pathlib

SERVICES = pathlib.Path(__file__).resolve().parents[3] / "shared" / "services"
#: http://host:port of a Ceph gateway with key AKID and secret SECRETKEY (shared/services/ceph_up.sh).
CEPH = os.environ.get("AVGK_TEST_CEPH")
#: http://host:port of azurite's blob service, with its well-known account.
AZURITE = os.environ.get("AVGK_TEST_AZURITE")
#: azurite's published development account.
ACCOUNT = "devstoreaccount1"
ACCOUNT_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="


def _client(endpoint: str, key: str, secret: str):
    import boto3

    return boto3.client(
        "s3", endpoint_url=endpoint, aws_access_key_id=key, aws_secret_access_key=secret, region_name="us-east-1"
    )


def make_bucket(endpoint: str, key: str, secret: str) -> None:
    """Create the bucket ``scores``."""
    _client(endpoint, key, secret).create_bucket(Bucket="scores")


@contextlib.contextmanager
def public(endpoint: str, key: str, secret: str, prefix: str):
    """Let anyone list the bucket ``scores`` and read its objects below a prefix, for a while."""
    client = _client(endpoint, key, secret)
    for page in client.get_paginator("list_objects_v2").paginate(Bucket="scores", Prefix=prefix):
        for entry in page["Contents"]:
            client.put_object_acl(Bucket="scores", Key=entry["Key"], ACL="public-read")
    client.put_bucket_acl(Bucket="scores", ACL="public-read")
    yield
    client.put_bucket_acl(Bucket="scores", ACL="private")


def make_container(endpoint: str) -> None:
    """Create the container ``scores`` in azurite, by a signed request (obstore cannot)."""
    import base64
    import datetime
    import hashlib
    import hmac
    import urllib.error
    import urllib.request

    now = datetime.datetime.now(datetime.UTC).strftime("%a, %d %b %Y %H:%M:%S GMT")
    headers = f"x-ms-date:{now}\nx-ms-version:2021-08-06\n"
    text = f"PUT\n\n\n\n\n\n\n\n\n\n\n\n{headers}/{ACCOUNT}/{ACCOUNT}/scores\nrestype:container"
    signature = base64.b64encode(hmac.new(base64.b64decode(ACCOUNT_KEY), text.encode(), hashlib.sha256).digest())
    request = urllib.request.Request(
        f"{endpoint}/{ACCOUNT}/scores?restype=container",
        method="PUT",
        headers={
            "x-ms-date": now,
            "x-ms-version": "2021-08-06",
            "Authorization": f"SharedKey {ACCOUNT}:{signature.decode()}",
        },
    )
    try:
        urllib.request.urlopen(request).close()
    except urllib.error.HTTPError as error:
        if error.code != 409:  # it exists already
            raise
