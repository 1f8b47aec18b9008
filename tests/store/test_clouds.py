"""Object stores, through obstore and fsspec: the same Dataset from everywhere, and errors that say what to do."""

from __future__ import annotations

import contextlib
import functools
import http.server
import json
import os
import pathlib
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
import uuid

import dask
import numpy as np
import pytest
import services
import zarr

import avgk_dask as avgk
from avgk_dask.engine import progress as progress_module
from avgk_dask.store.read import opening

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")


@pytest.fixture(scope="module")
def case():
    """Return real scores if available, else simulated ones, with the result expected from all stores."""
    from avgk_dask.testing import Simulation

    folder = services.SERVICES.parent / "data" / "imagenet5k"
    if folder.is_dir():
        scores, labels = np.load(folder / "scores.npy"), np.load(folder / "labels.npy").astype(int)
    else:
        scores, labels, _ = Simulation(2000, 300).rows(0, 2000)
    return scores, labels, avgk.evaluate(scores, labels).drop_attrs()


def write(url, case, options, **layout):
    scores, labels, _ = case
    with avgk.ScoreWriter(url, scores.shape[1], storage_options=options, **layout) as writer:
        for i in range(0, len(scores), 700):
            writer.append(scores[i : i + 700], labels[i : i + 700])


def check(url, case, options):
    """Evaluate and verify the store at a URL."""
    result = avgk.evaluate(avgk.open_scores(url, storage_options=options))
    assert result.drop_attrs().identical(case[2])
    assert result.attrs["store"] == url
    verification = avgk.verify(url, storage_options=options)
    assert verification.ok
    assert verification.has_manifest


@pytest.mark.sample(1)
@pytest.mark.parametrize("client", ["obstore", "fsspec"])
@pytest.mark.parametrize("layout", [{}, {"chunk_rows": 400, "shard_chunks": 1}, {"codec": "zstd"}])
def test_s3__gives_the_same_result(s3, case, client, layout):
    url, options = f"s3://scores/{uuid.uuid4().hex}/run.zarr", {**s3, "client": client}
    write(url, case, options, **layout)
    check(url, case, options)
    shards = zarr.open_array(opening.locate(url, options), path="scores", mode="r").shards
    assert (shards is None) == (layout.get("shard_chunks") == 1)  # shards are the default on object stores


@pytest.mark.slow
def test_fork__child_is_told_at_once_of_clients_whose_threads_stayed_behind(s3, forked):
    url, scores = f"s3://scores/{uuid.uuid4().hex}/run.zarr", np.eye(3)[[0, 1, 2, 1]]
    for client in ("obstore", "fsspec"):
        options = {**s3, "client": client}
        with avgk.ScoreWriter(url, 3, storage_options=options, overwrite=True) as writer:
            writer.append(scores, [0, 1, 2, 1])
        opened = avgk.open_scores(url, storage_options=options)
        before = avgk.evaluate(opened, k=1)

        def open_again(options=options):
            return avgk.evaluate(avgk.open_scores(url, storage_options=options), k=1)

        for evaluate in (functools.partial(avgk.evaluate, opened, k=1), opened.scores.compute, open_again):
            answer = forked(evaluate)
            if client == "fsspec" and evaluate is open_again:  # a new file system in the child
                assert answer.drop_attrs().identical(before.drop_attrs())
            else:
                assert isinstance(answer, avgk.StoreError)
                assert 'set_start_method("spawn")' in str(answer)


@pytest.mark.slow
def test_s3__takes_everything_from_the_environment(s3, case, monkeypatch, tmp_path):
    url = f"s3://scores/{uuid.uuid4().hex}.zarr"
    for name, value in {
        "AWS_ACCESS_KEY_ID": s3["key"],
        "AWS_SECRET_ACCESS_KEY": s3["secret"],
        "AWS_ENDPOINT_URL": s3["endpoint_url"],
        "AWS_REGION": s3["region"],
    }.items():
        monkeypatch.setenv(name, value)
    write(url, case, None)
    assert avgk.evaluate(url).drop_attrs().identical(case[2])
    sets = avgk.top_k_sets(url, 2)
    assert s3["secret"].encode() not in dumps(sets.dask)
    run = subprocess.run(
        [sys.executable, "-m", "avgk_dask", "evaluate", url, "-k", "5", "--json", "--workers", "1"],
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr
    assert json.loads(run.stdout)["attrs"]["store"] == url


def dumps(graph):
    import cloudpickle

    return cloudpickle.dumps(dict(graph))


@pytest.mark.slow
def test_s3__reads_each_shard_in_one_request(s3, case):
    from avgk_dask.testing import CountingStore

    url = f"s3://scores/{uuid.uuid4().hex}.zarr"
    write(url, case, s3, chunk_rows=150)
    store = CountingStore(opening.locate(url, s3))
    result = avgk.threshold(zarr.open_group(store, mode="r"), [5])
    assert result.n_kept.sizes["k"] == 1
    reads = store.chunk_reads()
    assert set(reads) == {f"scores/c/{i}/0" for i in range(-(-len(case[0]) // 600))}
    assert max(reads.values()) <= 2  # the pilot's chunks are read twice


@pytest.mark.slow
def test_s3__requests_no_head_before_each_get(s3, case):
    """Count the requests of one evaluation through s3fs and a proxy."""
    url, seen = f"s3://scores/{uuid.uuid4().hex}.zarr", []
    write(url, case, s3, chunk_rows=400, shard_chunks=1)
    with listening(s3["endpoint_url"], seen) as endpoint:
        options = {**s3, "endpoint_url": endpoint, "client": "fsspec"}
        assert avgk.evaluate(avgk.open_scores(url, storage_options=options)).drop_attrs().identical(case[2])
    chunks = [method for method, path in seen if "/scores/c/" in path]
    assert set(chunks) == {"GET"}
    assert len(chunks) <= 2 * -(-len(case[0]) // 400)


class listening:  # noqa: N801
    """Forwards requests to a server, and records their methods and paths."""

    def __init__(self, upstream, seen):
        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def pass_on(self):
                seen.append((self.command, self.path))
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                request = urllib.request.Request(upstream + self.path, body or None, method=self.command)
                for name, value in self.headers.items():
                    request.add_header(name, value)
                try:
                    answer = urllib.request.urlopen(request)
                except urllib.error.HTTPError as error:
                    answer = error
                data = answer.read()
                self.send_response(answer.status)
                for name, value in answer.headers.items():
                    if name.lower() not in ("transfer-encoding", "connection", "content-length", "date", "server"):
                        self.send_header(name, value)
                length = answer.headers.get("Content-Length") if self.command == "HEAD" else len(data)
                self.send_header("Content-Length", str(length or 0))
                self.end_headers()
                self.wfile.write(b"" if self.command == "HEAD" else data)

            do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = pass_on  # noqa: N815

            def log_message(self, *_):
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)

    def __enter__(self):
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return f"http://127.0.0.1:{self._server.server_port}"

    def __exit__(self, *_):
        self._server.shutdown()
        self._server.server_close()


@pytest.mark.sample(1)
@pytest.mark.parametrize("client", ["obstore", "fsspec"])
@pytest.mark.parametrize(
    "change, url, match",
    [
        ({}, "s3://no-such-bucket/a.zarr", "bucket"),
        ({}, "s3://scores/no-such-store.zarr", "no zarr.json"),
        ({"endpoint_url": "http://127.0.0.1:9"}, "s3://scores/a.zarr", "endpoint and the network"),
    ],
)
def test_s3__says_what_is_wrong_within_30_seconds(s3, client, change, url, match):
    options, started = {**s3, "client": client, **change}, time.monotonic()
    with pytest.raises(avgk.StoreError, match=match) as refused:
        avgk.open_scores(url, storage_options=options)
    assert "\n" not in str(refused.value)
    assert "SECRETMOTO" not in str(refused.value)
    assert refused.value.__cause__ is None
    if "no-such-store" not in url:
        with pytest.raises(avgk.StoreError, match=match):
            avgk.ScoreWriter(url, 3, storage_options=options)
    assert time.monotonic() - started < 60  # two attempts


@pytest.mark.sample(1)
@pytest.mark.parametrize("client", ["obstore", "fsspec"])
def test_s3__gives_up_on_a_server_that_does_not_answer(monkeypatch, client):
    monkeypatch.setattr(opening, "_OPEN_SECONDS", 1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        options = {"endpoint_url": f"http://127.0.0.1:{silent.getsockname()[1]}", "key": "AKID", "secret": "SECRET"}
        with pytest.raises(avgk.StoreError, match="no answer within 1 s"):
            avgk.open_scores("s3://scores/a.zarr", storage_options={**options, "client": client})


@pytest.mark.slow
def test_s3__exits_with_2_and_one_line_after_errors(s3):
    options = [f"--storage-option={name}={value}" for name, value in s3.items()]
    for url in ("s3://scores/no-such-store.zarr", "s3://no-such-bucket/a.zarr"):
        run = subprocess.run(
            [sys.executable, "-m", "avgk_dask", "evaluate", url, *options], capture_output=True, text=True
        )
        assert run.returncode == 2
        assert run.stderr.count("\n") == 1
        assert "SECRETMOTO" not in run.stderr


@pytest.mark.slow
def test_credentials__are_in_no_log_of_a_cluster(s3, case):
    """A failed worker logs its task; neither the log nor the error may contain the secret."""
    url = f"s3://scores/{uuid.uuid4().hex}.zarr"
    write(url, case, s3, chunk_rows=400, shard_chunks=1)
    options = [f"--storage-option={name}={value}" for name, value in s3.items()]
    store = opening.locate(url, s3, write=True)
    key = "scores/c/1/0"
    from zarr.core.buffer import default_buffer_prototype
    from zarr.core.sync import sync

    data = sync(store.get(key, default_buffer_prototype())).to_bytes()
    sync(store.set(key, default_buffer_prototype().buffer.from_bytes(data[:-9] + b"damaged!!")))
    run = subprocess.run(
        [sys.executable, "-m", "avgk_dask", "evaluate", url, *options, "--workers", "1"], capture_output=True, text=True
    )
    assert run.returncode == 1
    assert f"chunk {key} of {url} is damaged" in run.stderr
    assert "SECRETMOTO" not in run.stderr + run.stdout


@pytest.mark.slow
@pytest.mark.parametrize("client", ["obstore", "fsspec"])
def test_parts__are_joined_on_s3(s3, client):
    options, url = {**s3, "client": client}, f"s3://scores/{uuid.uuid4().hex}.zarr"
    scores = np.random.default_rng(0).random((450, 5), dtype=np.float32)
    for part in range(3):
        with avgk.ScoreWriter(url, 5, part=part, chunk_rows=20, storage_options=options) as writer:
            writer.append(scores[part * 150 : part * 150 + 150])
    avgk.join_parts(url, 3, storage_options=options)
    opened = avgk.open_scores(url, storage_options=options)
    n_whole = 80
    order = np.concatenate(
        [np.arange(p * 150, p * 150 + n_whole) for p in range(3)]
        + [np.arange(p * 150 + n_whole, p * 150 + 150) for p in range(3)]
    )
    assert np.array_equal(opened.scores.values, scores[order])
    assert avgk.verify(url, storage_options=options).ok


def test_writer__resumes_on_s3(s3):
    url, scores = f"s3://scores/{uuid.uuid4().hex}.zarr", np.random.default_rng(0).random((300, 5), dtype=np.float32)
    avgk.ScoreWriter(url, 5, chunk_rows=20, storage_options=s3).append(scores[:170])
    with avgk.ScoreWriter(url, 5, chunk_rows=20, storage_options=s3, resume=True) as writer:
        assert writer.n_samples == 160
        writer.append(scores[160:])
    assert np.array_equal(avgk.open_scores(url, storage_options=s3).scores.values, scores)


@pytest.mark.slow
@pytest.mark.parametrize("client", ["obstore", "fsspec"])
def test_https__gives_the_same_result(tmp_path, case, client):
    """A web server cannot list: missing chunks are detected when they are read."""
    write(tmp_path / "run.zarr", case, None, chunk_rows=400)
    handler = functools.partial(QuietFiles, directory=str(tmp_path))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/run.zarr"
        check(url, case, {"client": client})
        (tmp_path / "run.zarr" / "scores" / "c" / "2" / "0").unlink()
        with pytest.raises(avgk.ReadError, match="scores/c/2/0"):
            avgk.evaluate(avgk.open_scores(url, storage_options={"client": client}))
        server.shutdown()


class QuietFiles(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@pytest.fixture
def faulty(s3):
    """Return the options of the S3 server through a proxy that injects faults, and a function that sets them."""
    script = services.SERVICES / "faultproxy.py"
    pytest.importorskip("aiohttp", reason="aiohttp is not installed")
    if not script.exists():
        pytest.skip("the proxy that injects faults (../shared/services/faultproxy.py) is not here")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    process = subprocess.Popen([sys.executable, str(script), str(port), s3["endpoint_url"].rpartition(":")[2]])
    endpoint = f"http://127.0.0.1:{port}"

    def set_mode(**mode):
        query = "&".join(f"{name}={value}" for name, value in mode.items())
        with urllib.request.urlopen(f"{endpoint}/__mode?{query}") as answer:
            return json.load(answer)

    for _ in range(100):
        try:
            set_mode()
            break
        except OSError:
            threading.Event().wait(0.1)
    yield {**s3, "endpoint_url": endpoint}, set_mode
    process.terminate()
    process.wait()


@pytest.mark.slow
@pytest.mark.parametrize("client", ["obstore", "fsspec"])
def test_faults__are_absorbed_with_the_exact_result(faulty, case, client):
    options, set_mode = faulty
    options = {**options, "client": client}
    url = f"s3://scores/{uuid.uuid4().hex}.zarr"
    write(url, case, options, chunk_rows=100, shard_chunks=1)
    set_mode(p503=0.15, preset=0.1, ptrunc=0.1)
    for _ in range(2):
        assert avgk.evaluate(avgk.open_scores(url, storage_options=options)).drop_attrs().identical(case[2])
    counts = set_mode(p503=0, preset=0, ptrunc=0)
    assert min(counts["e503"], counts["reset"], counts["trunc"]) > 0
    opened = avgk.open_scores(url, storage_options=options)
    set_mode(pflip=1)
    with pytest.raises(avgk.ReadError, match="/c/"):
        avgk.evaluate(opened)
    set_mode(pflip=0.03)  # data changed in transfer are read again
    with dask.config.set({"avgk.retry-seconds": 30}):
        assert avgk.evaluate(opened).drop_attrs().identical(case[2])
    set_mode(pflip=0)


@pytest.mark.slow
def test_faults__and_killed_workers_change_no_bit(faulty, case, monkeypatch):
    distributed = pytest.importorskip("distributed")
    options, set_mode = faulty
    url = f"s3://scores/{uuid.uuid4().hex}.zarr"
    write(url, case, options, chunk_rows=20, shard_chunks=1)
    n_kills, advance = [0], progress_module.Progress.advance

    def kill(self, n):
        advance(self, n)
        if n_kills[0] < 10 and random.random() < 0.3:
            pids = [worker.pid for worker in cluster.workers.values() if worker.pid]
            if pids:
                n_kills[0] += 1
                os.kill(random.choice(pids), signal.SIGKILL)

    monkeypatch.setattr(progress_module.Progress, "advance", kill)
    size = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": None, "silence_logs": 60}
    with (
        dask.config.set(
            {"distributed.scheduler.allowed-failures": 100, "avgk.task-bytes": 1, "avgk.ahead-bytes": 1 << 16}
        ),
        distributed.LocalCluster(**size) as cluster,
        distributed.Client(cluster),
    ):
        cluster.adapt(minimum=2, maximum=2)
        set_mode(p503=0.1, preset=0.1, ptrunc=0.1)
        counts = {}
        for _ in range(20):
            assert avgk.evaluate(avgk.open_scores(url, storage_options=options)).drop_attrs().identical(case[2])
            counts = set_mode()
            if n_kills[0] == 10 and sum(counts[name] for name in ("e503", "reset", "trunc")) >= 50:
                break
    assert n_kills[0] == 10
    assert sum(counts[name] for name in ("e503", "reset", "trunc")) >= 50


@pytest.mark.skipif(not services.CEPH, reason="no Ceph gateway: set AVGK_TEST_CEPH to its address")
@pytest.mark.parametrize("client", ["obstore", "fsspec"])
def test_ceph__gives_the_same_result_and_refuses_wrong_secrets(case, client):
    options = {"endpoint_url": services.CEPH, "key": "AKID", "secret": "SECRETKEY", "region": "us-east-1"}
    services.make_bucket(services.CEPH, "AKID", "SECRETKEY")
    url, options = f"s3://scores/{uuid.uuid4().hex}.zarr", {**options, "client": client}
    for layout in ({"overwrite": True}, {"chunk_rows": 400, "shard_chunks": 1, "overwrite": True}):
        write(url, case, options, **layout)
        check(url, case, options)
    started = time.monotonic()
    wrong = {**options, "secret": "WRONGSECRET"}
    with pytest.raises(avgk.StoreError, match="credentials") as refused:
        avgk.open_scores(url, storage_options=wrong)
    assert "WRONGSECRET" not in str(refused.value)
    assert "AKID" not in str(refused.value)
    with pytest.raises(avgk.StoreError, match="credentials"):
        avgk.ScoreWriter(f"s3://scores/{uuid.uuid4().hex}.zarr", 3, storage_options=wrong)
    with pytest.raises(avgk.StoreError, match="bucket"):
        avgk.open_scores("s3://no-such-bucket/a.zarr", storage_options=options)
    assert time.monotonic() - started < 30


@pytest.mark.skipif(not services.AZURITE, reason="no azurite: set AVGK_TEST_AZURITE to its address")
@pytest.mark.parametrize("scheme", ["az", "abfs"])
def test_azure__gives_the_same_result_and_refuses_wrong_keys(case, scheme):
    services.make_container(services.AZURITE)
    connection = (
        f"DefaultEndpointsProtocol=http;AccountName={services.ACCOUNT};AccountKey={services.ACCOUNT_KEY};"
        f"BlobEndpoint={services.AZURITE}/{services.ACCOUNT};"
    )
    named = {
        "account_name": services.ACCOUNT,
        "account_key": services.ACCOUNT_KEY,
        "endpoint": f"{services.AZURITE}/{services.ACCOUNT}",
    }
    for options in (named, {"connection_string": connection}):
        url = f"{scheme}://scores/{uuid.uuid4().hex}.zarr"
        write(url, case, options)
        check(url, case, options)
    started = time.monotonic()
    wrong = {**named, "account_key": "A" * 86 + "=="}
    with pytest.raises(avgk.StoreError, match="credentials") as refused:
        avgk.open_scores(url, storage_options=wrong)
    assert wrong["account_key"] not in str(refused.value)
    with pytest.raises(avgk.StoreError, match=r"bucket|no zarr"):
        avgk.open_scores(f"{scheme}://nosuchcontainer/a.zarr", storage_options=named)
    assert time.monotonic() - started < 30


@pytest.mark.slow
def test_places__all_give_the_same_result(tmp_path, case):
    """Stores in memory and zip files, v2 and v3, with shards and split classes, consolidated or not, by three libraries."""
    import dask.array as da
    import xarray as xr
    from zarr.storage import MemoryStore, ZipStore

    scores, labels, expected = case
    frame = xr.Dataset({"scores": (("sample", "class"), scores), "labels": ("sample", labels)})
    chunks = {"sample": 900, "class": 70}
    frame.chunk(chunks).to_zarr(tmp_path / "xarray2.zarr", zarr_format=2, consolidated=True)
    frame.chunk(chunks).to_zarr(tmp_path / "xarray3.zarr", zarr_format=3, consolidated=False)
    frame.to_zarr("memory://places/x.zarr", zarr_format=3, consolidated=False)
    group = zarr.open_group(tmp_path / "deep.zarr", mode="w", zarr_format=2)
    inner = group.create_group("runs/one")
    inner.create_array("logits", data=scores, chunks=(1250, 32))
    inner.create_array("labels", data=labels, chunks=(300,))
    da.from_array(scores, chunks=(700, 1000)).to_zarr(str(tmp_path / "dask.zarr"), component="scores")
    np.save(tmp_path / "labels.npy", labels)
    shutil.make_archive(str(tmp_path / "nested"), "zip", tmp_path, "xarray3.zarr")
    with ZipStore(tmp_path / "flat.zip", mode="w") as archive:
        flat = zarr.open_group(archive, mode="w")
        flat.create_array("scores", data=scores, chunks=(500, 1000), shards=(1000, 1000))
        flat.create_array("labels", data=labels)
    opened = MemoryStore()
    zarr.open_group(opened, mode="w").create_array("scores", data=scores, chunks="auto")
    here = str(tmp_path)
    places = [
        (f"{here}/xarray2.zarr", {}),
        (f"{here}/xarray3.zarr", {}),
        (f"file://{here}/xarray3.zarr", {}),
        ("memory://places/x.zarr", {}),
        (f"{here}/deep.zarr", {"scores": "runs/one/logits"}),
        (f"{here}/deep.zarr/runs/one", {"scores": "logits"}),
        (f"{here}/dask.zarr", {"labels": f"{here}/labels.npy"}),
        (f"{here}/dask.zarr", {"labels": f"{here}/deep.zarr/runs/one"}),
        (f"{here}/nested.zip", {}),
        (f"{here}/flat.zip", {}),
        (opened, {"labels": f"{here}/labels.npy"}),
        (zarr.open_group(f"{here}/xarray3.zarr", mode="r"), {}),
    ]
    for place, names in places:
        assert avgk.evaluate(avgk.open_scores(place, **names)).drop_attrs().identical(expected), place


def test_s3__the_command_of_the_site(s3, case, capsys):
    from avgk_dask.cli import main

    page = (pathlib.Path(__file__).resolve().parents[2] / "docs" / "howto" / "object_stores.md").read_text()
    (command,) = re.findall(r"^\$ avgk (evaluate s3://.*)$", page, re.M)
    url = f"s3://scores/{uuid.uuid4().hex}.zarr"
    write(url, case, s3)
    typed = command.replace("s3://bucket/run1.zarr", url).replace("http://127.0.0.1:9000", s3["endpoint_url"])
    assert typed.count(url) == typed.count(s3["endpoint_url"]) == 1
    own = url.removeprefix("s3://scores/")
    with services.public(s3["endpoint_url"], s3["key"], s3["secret"], own), contextlib.suppress(SystemExit):
        main.main(args=typed.split(), prog_name="avgk")
    shown = capsys.readouterr()
    assert (
        avgk.report.print_table(
            case[2].assign_attrs(
                n_samples=case[0].shape[0], n_classes=case[0].shape[1], n_labelled=case[0].shape[0], reads=1
            )
        )
        in shown.out
    )
    assert shown.err == ""
