from __future__ import annotations

import pytest
import services


@pytest.fixture(scope="session")
def s3():
    """Return the address and options of an S3 server with the bucket ``scores``."""
    server = pytest.importorskip("moto.server", reason="moto[server] is not installed")
    pytest.importorskip("obstore", reason="obstore is not installed")
    running = server.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    running.start()
    host, port = running.get_host_and_port()
    endpoint = f"http://{host}:{port}"
    services.make_bucket(endpoint, "AKIDMOTO", "SECRETMOTO")
    yield {"endpoint_url": endpoint, "key": "AKIDMOTO", "secret": "SECRETMOTO", "region": "us-east-1"}
    running.stop()
