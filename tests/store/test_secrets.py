"""Secrets: no function shows a password or a token, for any kind of location and option."""

from __future__ import annotations

import base64
import functools
import gc
import html
import http.server
import io
import itertools
import json
import logging
import pathlib
import re
import shutil
import threading
import traceback
import warnings
from datetime import timedelta
from urllib.parse import quote

import numpy as np
import pytest
import xarray as xr
import zarr

import avgk_dask as avgk
from avgk_dask.api.written_sets import SetChoice, write_sets
from avgk_dask.cli import main
from avgk_dask.store.read.opening import open_arrays, open_node
from avgk_dask.store.where import locations as clouds
from avgk_dask.store.where.locations import locate
from avgk_dask.testing import CountingStore
from avgk_dask.testing.simulation import Simulation, simulate_store

#: Every secret here has both parts: a text without either shows no recognisable part of it.
FIRST, LAST = "Swordfish", "7Tuna"
SECRET, SLASHED = f"{FIRST}+{LAST}", f"{FIRST}/{LAST}"
#: Refuses connections at once.
DEAD = "127.0.0.1:1"
BASIC = [base64.b64encode(f"me:{secret}".encode()).decode().rstrip("=") for secret in (SECRET, SLASHED)]
MARKS = [re.compile(re.escape(mark), re.IGNORECASE) for mark in (FIRST, LAST, *BASIC)]
S3 = {"key": "AKIDDEAD", "secret": SECRET, "endpoint_url": f"http://{DEAD}"}
QUICK = {"config_kwargs": {"retries": {"max_attempts": 0}}}

#: Unreachable locations and options that contain a secret.
KINDS = {
    "s3": (f"s3://me:{SECRET}@bucket/x.zarr", S3),
    "s3-slash": (f"s3://me:{SLASHED}@bucket/x.zarr", S3),
    "s3-without-bucket": (f"s3://me:{SECRET}/x.zarr", S3),
    "s3-fsspec": (f"s3://me:{SECRET}@bucket/x.zarr", {**S3, **QUICK, "client": "fsspec"}),
    "s3-token": ("s3://bucket/x.zarr", {**S3, "token": SECRET}),
    "endpoint": ("s3://bucket/x.zarr", {**S3, "endpoint_url": f"http://me:{SECRET}@{DEAD}"}),
    "endpoint-slash": ("s3://bucket/x.zarr", {**S3, "endpoint_url": f"http://me:{SLASHED}@{DEAD}"}),
    "endpoint-bare": ("s3://bucket/x.zarr", {**S3, "endpoint_url": f"me:{SECRET}@{DEAD}"}),
    "endpoint-nested": ("s3://bucket/x.zarr", {**QUICK, "client": "fsspec", "key": "AKIDDEAD", "secret": SECRET,
                                               "client_kwargs": {"endpoint_url": f"http://me:{SLASHED}@{DEAD}"}}),
    "odd-option": ("s3://bucket/x.zarr", {**S3, "client": "fsspec", "config_kwargs": {"retries": SECRET}}),
    "http": (f"http://me:{SECRET}@{DEAD}/x.zarr", {}),
    "http-quoted": (f"http://me:{quote(SLASHED, safe='')}@{DEAD}/x.zarr", {}),
    "http-slash": (f"http://me:{SLASHED}@{DEAD}/x.zarr", {}),
    "http-fsspec": (f"http://me:{SLASHED}@{DEAD}/x.zarr", {"client": "fsspec"}),
    "http-path": (pathlib.PurePosixPath(f"http://me:{SECRET}@{DEAD}/x.zarr"), {}),
    "http-file": (f"http://me:{SECRET}@{DEAD}/x.npy", {}),
    "query": (f"http://{DEAD}/x.zarr?token={quote(SECRET)}&se=2030", {}),
    "query-fsspec": (f"http://{DEAD}/x.zarr?{SECRET}", {"client": "fsspec"}),
    "fragment": (f"http://{DEAD}/x.zarr#{SECRET}", {}),
    "headers": (f"http://{DEAD}/x.zarr", {"headers": {"Authorization": f"Bearer {SECRET}"}}),
    "cookies": (f"http://{DEAD}/x.zarr", {"client_kwargs": {"cookies": {"session": SECRET}}}),
    "ftp": (f"ftp://me:{SECRET}@{DEAD}/x.zarr", {}),
    "ftp-options": (f"ftp://{DEAD}/x.zarr", {"username": "me", "password": SECRET}),
    "azure": ("az://container/x.zarr", {"connection_string": f"AccountName=a;AccountKey={SECRET}"}),
    "azure-sas": ("az://container/x.zarr", {"account_name": "acct", "sas_token": f"sv=1&sig={quote(SECRET)}",
                                            "endpoint": f"http://{DEAD}"}),
    "memory": (f"memory://me:{SECRET}@x.zarr", {}),
    "cached": (f"simplecache::http://me:{SECRET}@{DEAD}/x.zarr", {}),
    "zipped": (f"zip::http://me:{SECRET}@{DEAD}/x.zip", {}),
    "inside-zip": (f"zip://x.zarr::s3://me:{SLASHED}@bucket/x.zip?token={SECRET}", {"s3": {**S3, **QUICK}}),
    "unknown": (f"odd://me:{SECRET}@host/x.zarr", {"password": SECRET}),
}  # fmt: skip

#: Public names that take no location.
NO_LOCATION = {"BestThreshold", "SmallestK", "LazyScores", "Threshold", "compile_kernels", "set_utility"} | {
    n for n in avgk.__all__ if n.endswith(("Error", "Warning"))
}


def fitted():
    """Return a calibrator."""
    return avgk.calibration.TemperatureScaling().fit(np.eye(3)[[0, 0, 1, 2]], np.array([0, 1, 1, 2]))


def both(lazy):
    """Return the text of lazy scores and of their result."""
    return repr(lazy), avgk.evaluate(lazy, k=1)


READS = {
    "adaptive_gain": lambda at: avgk.adaptive_gain(at, 1),
    "average_k_sets": lambda at: avgk.average_k_sets(at, 1),
    "average_set_size_at": lambda at: avgk.average_set_size_at(at, [0.5]),
    "best_threshold": lambda at: avgk.best_threshold(at, cost=0.1),
    "balanced": lambda at: both(avgk.balanced(at, [1, 1, 1])),
    "breakdown": lambda at: avgk.breakdown(at, k=1),
    "breakdown by": lambda at: avgk.breakdown(np.eye(3), np.arange(3), 1, at),
    "calibrated": lambda at: both(avgk.calibrated(at, fitted())),
    "compare": lambda at: avgk.compare({"here": "here.zarr", "there": at}, k=1),
    "evaluate clusters": lambda at: avgk.evaluate(np.eye(3), np.arange(3), k=1, clusters=at),
    "set_pairs": lambda at: avgk.set_pairs(at, 1),
    "ensemble": lambda at: both(avgk.ensemble([at, at])),
    "error_curve": lambda at: avgk.error_curve(at),
    "smallest_k": lambda at: avgk.smallest_k(at, max_error=0.1),
    "evaluate": lambda at: avgk.evaluate(at, k=[1, 2]),
    "evaluate labels": lambda at: avgk.evaluate(np.eye(3), at, k=1),
    "plug_in_regret": lambda at: avgk.plug_in_regret(at, at, 1),
    "predict_sets": lambda at: avgk.predict_sets(at, threshold=0.5),
    "ranked_supports": lambda at: avgk.ranked_supports(at, [1]),
    "regret": lambda at: avgk.regret(np.eye(3, dtype=bool), at),
    "regret sets": lambda at: avgk.regret(at["scores"] if isinstance(at, xr.Dataset) else at, np.eye(3)),
    "risk": lambda at: avgk.risk(at),
    "sigmoid": lambda at: both(avgk.sigmoid(at)),
    "softmax": lambda at: both(avgk.softmax(at)),
    "straddle_strength": lambda at: avgk.straddle_strength(at, 1),
    "supports_overlap": lambda at: avgk.supports_overlap(at, 1),
    "threshold": lambda at: avgk.threshold(at, 1),
    "threshold_at": lambda at: avgk.threshold_at(at, [1]),
    "top_k_sets": lambda at: avgk.top_k_sets(at, 1),
    "transfer": lambda at: avgk.transfer(at, np.eye(3), k=1),
    "transfer scores": lambda at: avgk.transfer(np.eye(3), at, k=1),
    "write_sets": lambda at: write_sets(at, "sets.zarr", SetChoice(k=1), overwrite=True),
}  # fmt: skip
OPENS = {
    "info": lambda at, how: avgk.info(at, storage_options=how),
    "info labels": lambda at, how: avgk.info("here.zarr", labels=at, storage_options=how),
    "ingest": lambda at, how: avgk.ingest(at, out="new.zarr", overwrite=True, storage_options=how),
    "ingest labels": lambda at, how: avgk.ingest("s.npy", at, out="n.zarr", overwrite=True, storage_options=how),
    "open_scores": lambda at, how: avgk.open_scores(at, storage_options=how),
    "open_scores labels": lambda at, how: avgk.open_scores("here.zarr", labels=at, storage_options=how),
    "verify": lambda at, how: avgk.verify(at, storage_options=how),
    "open_arrays": lambda at, how: open_arrays(at, storage_options=how),
    "open_node": lambda at, how: open_node(at, how),
}  # fmt: skip


def loop():
    """Return an evaluator with three samples."""
    evaluator = avgk.Evaluator(3, k=1)
    evaluator.update(np.eye(3), np.arange(3))
    return evaluator


def fill(writer):
    with writer:
        writer.append(np.eye(3), [0, 1, 2])
    return writer


def write_parts(at, how):
    for part in range(2):
        fill(avgk.ScoreWriter(at, 3, part=part, storage_options=how))
    avgk.join_parts(at, 2, storage_options=how)


WRITES = {
    "ScoreWriter": lambda at, how: fill(avgk.ScoreWriter(at, 3, storage_options=how, overwrite=True)),
    "ScoreWriter resume": lambda at, how: avgk.ScoreWriter(at, 3, storage_options=how, resume=True),
    "ScoreWriter new": lambda at, how: avgk.ScoreWriter(at, 3, storage_options=how),
    "ScoreWriter part": write_parts,
    "join_parts": lambda at, how: avgk.join_parts(at, storage_options=how),
    "ingest out": lambda at, how: avgk.ingest("s.npy", out=at, out_options=how),
    "ingest over": lambda at, how: avgk.ingest("here.zarr", out=at, out_options=how, overwrite=True),
    "write_sets out": lambda at, how: write_sets("here.zarr", at, SetChoice(k=1), out_options=how),
    "simulate_store": lambda at, how: simulate_store(at, Simulation(3, 3)),
    "Evaluator": lambda at, how: loop().save(at),
    "Evaluator load": lambda at, how: avgk.Evaluator.load(at),
    "write_report": lambda at, how: avgk.report.write_report(avgk.evaluate(np.eye(3), np.arange(3), k=1), at),
}  # fmt: skip

#: AT is the location, WITH its options.
COMMANDS = [
    "evaluate AT WITH -k 1", "evaluate here.zarr -k 1 --labels AT WITH", "evaluate here.zarr -k 1 --out AT",
    "evaluate AT WITH -k 1 --activation softmax", "transfer here.zarr AT WITH -k 1", "transfer AT here.zarr -k 1",
    "conformal AT WITH", "conformal here.zarr AT", "conformal here.zarr --out AT", "compare here.zarr AT -k 1", "compare AT here.zarr WITH -k 1", "breakdown AT WITH -k 1", "breakdown here.zarr -k 1 --by AT",
    "evaluate here.zarr -k 1 --clusters AT", "evaluate here.zarr -k 1 --balanced AT", "pairs AT WITH -k 1",
    "conformal here.zarr here.zarr --report AT", "conformal here.zarr here.zarr --by AT", "conformal here.zarr here.zarr --by labels --new-by AT",
    "sets here.zarr --conformal AT --out sets.zarr --overwrite", "breakdown here.zarr -k 1 --out AT",
    "calibrate AT WITH --out t.json", "calibrate here.zarr --out AT", "threshold AT WITH -k 1", "sets AT WITH -k 1 --out sets.zarr --overwrite", "sets here.zarr -k 1 --out AT OUT",
    "ingest AT WITH --out new.zarr --overwrite", "ingest s.npy AT WITH --out new.zarr --overwrite",
    "ingest s.npy --out AT OUT", "info AT WITH", "info here.zarr --labels AT WITH", "verify AT WITH", "join AT WITH",
    "simulate --samples 3 --classes 3 --out AT", "demo --out AT",
]  # fmt: skip
USAGE = [
    "AT", "info AT AT", "info here.zarr AT WITH", "info", "evaluate here.zarr -k AT", "evaluate here.zarr --ties AT", "schema AT",
    "evaluate here.zarr -k 1 --scheduler-file AT", "evaluate here.zarr --bad=AT", "info --storage-option AT here.zarr",
    "sets here.zarr --threshold AT --out sets.zarr", "ingest AT", "completion AT", "compile --dtype AT", "info here.zarr --scores AT",
]  # fmt: skip


@pytest.fixture(autouse=True)
def nowhere(monkeypatch, tmp_path):
    """Work in a folder with a store and a file, without requests to other machines and without retries."""
    for name, value in {"AWS_ACCESS_KEY_ID": "AKIDENV", "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_REGION": "us-east-1",
                        "AWS_ENDPOINT_URL": f"http://{DEAD}", "AWS_EC2_METADATA_DISABLED": "true",
                        "AZURE_STORAGE_ACCOUNT_NAME": "acct"}.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    once = {"max_retries": 0, "retry_timeout": timedelta(seconds=1)}
    monkeypatch.setattr(clouds, "_RETRIES", {**clouds._RETRIES, **once})
    s3fs = pytest.importorskip("s3fs")
    monkeypatch.setattr(s3fs.S3FileSystem, "retries", 1)
    monkeypatch.chdir(tmp_path)
    fill(avgk.ScoreWriter("here.zarr", 3))
    np.save("s.npy", np.eye(3))


@pytest.fixture
def scan(capsys, caplog):
    """Return a function that calls another and searches its results, errors, output and logs for secrets."""
    caplog.set_level(logging.DEBUG, "avgk_dask")

    def look(call, *arguments):
        error = value = None
        with warnings.catch_warnings(record=True) as warned:
            try:
                value = call(*arguments)
            except (Exception, SystemExit) as raised:
                error = raised
        texts = [] if value is None or type(value).__module__.startswith("zarr.storage") else list(texts_of(value))
        texts += [] if error is None else [*chain_texts(error), *traceback.format_exception(error)]
        texts += [*capsys.readouterr(), *(str(w.message) for w in warned)]
        texts += [record.getMessage() for record in caplog.records if record.name.startswith("avgk_dask")]
        for text in texts:
            assert not [m.pattern for m in MARKS if m.search(html.unescape(text))], text
        assert error is None or isinstance(error, (avgk.AvgkError, SystemExit)), repr(error)
        return value, error, texts

    return look


def chain_texts(error):
    """Return the texts of an error and of those chained to it."""
    left, seen = [error], set()
    while left:
        one = left.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        yield from (str(one), repr(one), repr(one.args), *getattr(one, "__notes__", ()))
        yield from (str(getattr(one, name, "")) for name in ("filename", "filename2", "strerror"))
        left += [one.__cause__, one.__context__]


def texts_of(value):
    """Return all texts of a result."""
    yield from (str(value), repr(value))
    if hasattr(value, "_repr_html_"):
        yield value._repr_html_()
    if isinstance(value, dict):
        yield json.dumps(value, default=repr)
    if isinstance(value, (xr.Dataset, xr.DataArray)):
        parts = [value, *value.variables.values()] if isinstance(value, xr.Dataset) else [value, *value.coords.values()]
        yield from (repr(dict(part.attrs)) + repr(part.encoding) for part in parts)
    if hasattr(value, "__dask_graph__") and value.__dask_graph__() is not None:
        graph = value.__dask_graph__()
        yield from (repr(graph), repr(dict(graph)), repr(list(graph)), repr(value.__dask_keys__()))
    if isinstance(value, tuple):
        for part in value:
            yield from texts_of(part)
    if isinstance(value, avgk.ScoreWriter):
        draft = value._draft
        yield from (repr(draft.group), repr(draft.group.store), str(draft.group.store))
    if isinstance(value, zarr.Array):
        yield from (repr(value.store_path), repr(value.store), str(value.store), str(value.info))


def run(command, *flags):
    main.main(args=[*command, *flags], prog_name="avgk")


def words(command, at, how):
    """Return the words of a command with the location and its options inserted."""
    options = [f"{name}={value}" for name, value in how.items() if isinstance(value, str)]
    for word in command.split():
        if word in ("WITH", "OUT"):
            name = "--storage-option" if word == "WITH" else "--out-option"
            yield from itertools.chain.from_iterable((name, option) for option in options)
        else:
            yield word.replace("AT", str(at))


def test_names__are_all_covered():
    covered = {name.split()[0] for name in (*READS, *OPENS, *WRITES)}
    assert set(avgk.__all__) <= covered | NO_LOCATION
    assert set(main.commands) <= {command.split()[0] for command in (*COMMANDS, *USAGE)}


#: Every function is tested with each kind; the default tier has a third of the pairs.
SOME = [pytest.param(kind, marks=[pytest.mark.slow] * (i % 3 > 0)) for i, kind in enumerate(KINDS)]


@pytest.mark.slow
@pytest.mark.parametrize("kind", SOME)
def test_functions__show_no_secret_of_what_cannot_be_reached(scan, kind):
    at, how = KINDS[kind]
    for call in READS.values():
        scan(call, at)
    for call in (*OPENS.values(), *WRITES.values()):
        if call is not WRITES["write_report"] or isinstance(at, str):
            scan(call, at, how or None)
    store, _, _ = scan(functools.partial(locate, write=True), at, how)
    if store is not None:  # also if opened by the user
        for call in (READS["evaluate"], READS["evaluate labels"], avgk.verify, avgk.info):
            scan(call, store)
        scan(lambda: avgk.ScoreWriter(store, 3))
        scan(lambda: avgk.evaluate(CountingStore(store), k=1))


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind", [kind for kind, (_, how) in KINDS.items() if all(isinstance(value, str) for value in how.values())]
)
def test_commands__show_no_secret_of_what_cannot_be_reached(scan, kind):
    for command, flag in itertools.product(COMMANDS, ["--json", "--debug"]):
        _, error, _ = scan(run, [*words(command, *KINDS[kind]), flag])
        assert error is None or error.code in (1, 2)


@pytest.mark.sample(5)
@pytest.mark.parametrize("password", ["ab", "a/b", "q", "x?y"])
@pytest.mark.parametrize(
    "url", ["s3://me:{}@bucket/x.zarr", "http://me:{}@127.0.0.1:1/x.zarr", "ftp://me:{}@127.0.0.1:1/x"]
)
def test_short_secrets__are_in_no_url_and_in_no_option(scan, url, password):
    at, how = url.format(password), {**S3, "secret": "xyz", "key": "pqr"}
    calls = [functools.partial(OPENS["open_scores"], at, how), functools.partial(WRITES["ScoreWriter"], at, how)]
    calls += [functools.partial(run, [*words("info AT WITH --debug", at, how if url.startswith("s3") else {})])]
    for call in calls:
        _, _, texts = scan(call)
        text = " ".join(texts)
        assert not [part for part in (f":{password}", f"{password}@", "xyz", "pqr") if part in text], text


@pytest.mark.sample(1)
@pytest.mark.parametrize("kind", KINDS)
def test_usage_errors__show_no_secret(scan, kind):
    for command in USAGE:
        scan(run, [*words(command, *KINDS[kind])])
        scan(run, ["--debug", *words(command, *KINDS[kind])])


@pytest.mark.parametrize("option", [SECRET, f"secret {SECRET}", f"secret = {SECRET}", f"secret={SECRET} {SECRET}"])
def test_storage_options__that_are_misspelt_are_not_repeated(scan, option):
    for flag in ("--storage-option", "--out-option"):
        for command in ("sets here.zarr -k 1 --out sets.zarr", "info here.zarr", "sets"):
            scan(run, [*command.split(), flag, *option.split(" ")])


@pytest.mark.sample(1)
@pytest.mark.filterwarnings("ignore")  # distributed leaves a socket open if an address is wrong
@pytest.mark.parametrize("address", [f"tls://me:{SLASHED}@{DEAD}", f"me:{SECRET}@{DEAD}", f"odd://me:{SECRET}@{DEAD}"])
def test_schedulers__are_named_without_their_secret(scan, monkeypatch, address):
    pytest.importorskip("distributed")
    dask = pytest.importorskip("dask")
    with dask.config.set({"distributed.comm.timeouts.connect": "100ms", "scheduler": "threads"}):
        scan(run, ["evaluate", "here.zarr", "-k", "1", "--scheduler", address, "--debug"])
        monkeypatch.setenv("DASK_SCHEDULER_ADDRESS", address)
        scan(run, ["evaluate", "here.zarr", "-k", "1"])
        gc.collect()


class Guarded(http.server.SimpleHTTPRequestHandler):
    """Serves files on requests with the secret as a password, a token in the query, or a header."""

    def do_GET(self):
        token = (f"?token={quote(SECRET)}", f"token={SECRET}")
        ways = (f"Basic {base64.b64encode(f'me:{SECRET}'.encode()).decode()}", f"Bearer {SECRET}")
        allowed = self.path.endswith(token) or self.headers.get("Authorization") in ways
        if not allowed:
            self.send_error(401, f"no, {self.path} {self.headers.get('Authorization')}")
            return
        self.path = self.path.split("?")[0]
        super().do_GET()

    def log_message(self, *_):
        pass


@pytest.fixture
def served(tmp_path):
    """Return the address of a server with the stores ``here.zarr`` and ``damaged.zarr``."""
    shutil.copytree("here.zarr", "damaged.zarr")
    chunk = tmp_path / "damaged.zarr" / "scores" / "c" / "0" / "0"
    chunk.write_bytes(chunk.read_bytes()[:-1])
    shutil.make_archive("zipped", "zip", "here.zarr")
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Guarded, directory=tmp_path)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()


WEB = {
    "password": ("http://me:{secret}@{host}/{name}", {}),
    "password-fsspec": ("http://me:{secret}@{host}/{name}", {"client": "fsspec"}),
    "token": ("http://{host}/{name}?token={secret}", {}),
    "header": ("http://{host}/{name}", {"headers": {"Authorization": "Bearer {secret}"}}),
    "basic-header": ("http://{host}/{name}", {"headers": {"Authorization": "Basic {basic}"}}),
}


def guarded(way, host, name, secret=SECRET):
    """Return the location and options of a store on the server."""
    url, how = WEB[way]
    basic = base64.b64encode(f"me:{secret}".encode()).decode()
    put = functools.partial(str.format, host=host, name=name, secret=quote(secret, safe=""), basic=basic)
    headers = {n: v.format(secret=secret, basic=basic) for n, v in how.get("headers", {}).items()}
    return put(url), {**how, **({"headers": headers} if headers else {})}


@pytest.mark.slow
@pytest.mark.parametrize("way", [pytest.param(way, marks=[pytest.mark.slow] * (i % 2)) for i, way in enumerate(WEB)])
def test_web_servers__are_read_with_the_secret_and_shown_without(scan, served, way):
    at, how = guarded(way, served, "here.zarr")
    opened, error, _ = scan(OPENS["open_scores"], at, how)
    assert error is None, error
    assert opened.scores.values.tolist() == np.eye(3).tolist()
    for call in OPENS.values():
        scan(call, at, how)
    for call in READS.values():
        for scores in (opened, locate(at, how), *([] if how else [at])):
            value, error, _ = scan(call, scores)
            if hasattr(value, "compute"):
                scan(value.compute)
    result = avgk.evaluate(opened, k=1)
    assert result.attrs["store"] == re.sub(r"//me:[^@]*@", "//***@", at).split("?")[0]
    scan(lambda: avgk.report.render_report(result))
    scan(lambda: avgk.report.render_report(result.assign_attrs(store=at)))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["damaged.zarr", "nothing.zarr"])
@pytest.mark.parametrize("way", WEB)
def test_web_servers__that_fail_are_told_without_the_secret(scan, served, way, name):
    at, how = guarded(way, served, name)
    for call in OPENS.values():
        scan(call, at, how)
    opened, _, _ = scan(OPENS["open_scores"], at, how)
    for call in READS.values():
        value, error, _ = scan(call, at if opened is None else opened)
        if hasattr(value, "compute"):
            scan(value.compute)
    wrong, how = guarded(way, served, "here.zarr", SECRET + "!")
    _, error, _ = scan(OPENS["open_scores"], wrong, how)
    assert "Check the credentials" in str(error)


@pytest.mark.slow
@pytest.mark.parametrize("name, flag", [("here.zarr", "--json"), ("damaged.zarr", "--debug")])
@pytest.mark.parametrize("way", ["password", "password-fsspec", "token"])
def test_commands__write_no_secret_of_a_web_server(scan, served, tmp_path, way, name, flag):
    at, how = guarded(way, served, name)
    for command in COMMANDS:
        scan(run, [*words(command, at, how), flag])
    scan(run, ["evaluate", at, "-k", "1", "--out", "results", flag, *words("WITH", at, how)])
    assert pathlib.Path("results").exists() == (name == "here.zarr")
    scan_files("results", "sets.zarr", "new.zarr")


def scan_files(*names):
    """Search all written files for secrets."""
    for path in (p for name in names for p in pathlib.Path(name).rglob("*") if p.is_file()):
        text = html.unescape(path.read_bytes().decode("latin-1"))
        assert not [m.pattern for m in MARKS if m.search(text)], path
        assert not [m.pattern for m in MARKS if m.search(str(path))]


@pytest.mark.slow
@pytest.mark.parametrize("client", ["obstore", "fsspec"])
def test_object_stores__are_used_with_the_secret_and_shown_without(scan, s3, client):
    how = {**s3, "key": f"AKID{LAST}", "secret": SECRET, "client": client}
    for i, (name, call) in enumerate(WRITES.items()):
        at = f"s3://scores/secrets-{client}-{i}.zarr"
        _, error, _ = scan(call, at, how)
        assert (error is None) == (
            name not in ("join_parts", "simulate_store", "write_report", "Evaluator", "Evaluator load")
        ), (name, error)
        scan(call, at, how)  # where one is
    at = f"s3://scores/secrets-{client}-0.zarr"
    for call in OPENS.values():
        scan(call, at, how)
    opened = avgk.open_scores(at, storage_options=how)
    for call in READS.values():
        for scores in (opened, locate(at, how)):
            value, _, _ = scan(call, scores)
            if hasattr(value, "compute"):
                scan(value.compute)
    with_options = list(words("WITH", at, how))
    scan(run, ["evaluate", at, "-k", "1", "--out", "results", "--json", *with_options])
    scan(run, ["info", at, "--json", *with_options])
    scan_files("results")


@pytest.mark.slow
def test_memory__is_written_and_shown_without_its_secret(scan):
    at = f"memory://me:{SECRET}@secrets/a.zarr"
    for call in WRITES.values():
        scan(call, at, None)
    for command in COMMANDS:
        scan(run, [*words(command, at, {}), "--json"])
    opened, _, _ = scan(avgk.open_scores, at)
    assert opened.encoding["source"] == "memory://***@secrets/a.zarr"
    stored = xr.open_zarr(at, consolidated=True)
    for call in READS.values():
        scan(call, opened)
    result, _, _ = scan(lambda: avgk.evaluate(stored.compute().assign(labels=("sample", [0, 1, 2])), k=1))
    assert SECRET not in str(result.attrs)


def test_streams__are_named_without_their_secret(scan):
    stream = io.BytesIO(b"no scores")
    stream.name = f"http://me:{SLASHED}@{DEAD}/x.npy"
    _, error, _ = scan(lambda: avgk.ingest(stream, out="new.zarr"))
    assert f"http://***@{DEAD}/x.npy" in str(error)


def test_parts__of_a_store_that_is_damaged_are_refused_without_the_secret():
    from fsspec.implementations.memory import MemoryFileSystem

    url = "memory://me:hunter22@host/parts.zarr"
    MemoryFileSystem().pipe_file("/me:hunter22@host/parts.zarr/zarr.json", b"{")
    try:
        with pytest.raises(avgk.StoreError, match="is damaged") as refused:
            avgk.ScoreWriter(url, 3, part=1)
    finally:
        MemoryFileSystem().rm("/me:hunter22@host/parts.zarr", recursive=True)
    assert "hunter22" not in "".join(traceback.format_exception(refused.value))
