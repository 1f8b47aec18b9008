"""Compare evaluate of a remote store with plain requests: is the latency hidden, and the bandwidth used?

    python benchmarks/far_store.py [--latency 80] [--bandwidth 60] [--megabytes 600] [--repeat 2] [--folder FOLDER]

A local server in its own process sends the first byte of each response after the latency (ms), and each response at most at the
bandwidth (MB/s). Scores are in chunks of 1 MB, chunks of 10 MB and shards of 100 MB. Measured alternately: plain GETs of all
chunks, 32 in flight; ``evaluate`` on two threads; the part of it for opening (metadata and labels, one request after the other);
and ``evaluate`` of the same files from the local disk, as the cost of computing. Results are first checked for equality.
"""

from __future__ import annotations

import argparse
import asyncio
import pathlib
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from typing import Any

import numpy as np
import zarr
from measuring import best_of, markdown, parser, workplace

import avgk_dask as avgk
from avgk_dask.api.inputs.sources import as_source
from avgk_dask.testing import Simulation

CLASSES = 1_000
#: For each layout, the rows of a chunk and of a shard.
LAYOUTS = {"chunks of 1 MB": (250, None), "chunks of 10 MB": (2_500, None), "shards of 100 MB": (2_500, 25_000)}
#: Plain requests in flight, and bytes sent at once.
_IN_FLIGHT, _PIECE = 32, 1 << 18


async def answer(reader: Any, writer: Any, folder: pathlib.Path, latency: float, bandwidth: float) -> None:
    """Answer the requests of one connection, each after the latency and no faster than the bandwidth."""
    while request := await _request(reader):
        method, path, part = request
        start = time.perf_counter() + latency
        head, body = _respond(folder / path, part)
        await _until(start)
        writer.write(head)
        for first in range(0, len(body) if method == "GET" else 0, _PIECE):
            await _until(start + first / bandwidth)
            writer.write(body[first : first + _PIECE])
            try:
                await writer.drain()
            except ConnectionError:  # the client closed the connection
                return
    writer.close()


async def _request(reader: Any) -> tuple[str, str, tuple[int, int] | None] | None:
    """Return the next request's method, path and range, or None if the connection has ended."""
    try:
        lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
    method, path, _ = lines[0].split(" ")
    wanted = re.search(r"\nrange: bytes=(\d+)-(\d+)", "\n".join(lines).lower())
    return method, path.strip("/"), None if wanted is None else (int(wanted[1]), int(wanted[2]) + 1)


def _respond(path: pathlib.Path, part: tuple[int, int] | None) -> tuple[bytes, memoryview]:
    """Return the head and the body of a response."""
    if not path.is_file():
        return b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", memoryview(b"")
    size = path.stat().st_size
    first, last = (0, size) if part is None else (part[0], min(part[1], size))
    with open(path, "rb") as file:
        file.seek(first)
        body = memoryview(file.read(last - first))
    status = "200 OK" if part is None else f"206 Partial Content\r\nContent-Range: bytes {first}-{last - 1}/{size}"
    return f"HTTP/1.1 {status}\r\nAccept-Ranges: bytes\r\nContent-Length: {len(body)}\r\n\r\n".encode(), body


async def _until(moment: float) -> None:
    left = moment - time.perf_counter()
    if left > 0:
        await asyncio.sleep(left)


async def serve(folder: pathlib.Path, latency: float, bandwidth: float) -> None:
    """Serve a folder until killed; the first line of output is the port."""
    server = await asyncio.start_server(lambda r, w: answer(r, w, folder, latency, bandwidth), "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


@contextmanager
def served(folder: pathlib.Path, latency: float, bandwidth: float) -> Iterator[int]:
    """Serve a folder from another process; yield the port."""
    options = ["--serve", str(folder), "--latency", str(latency), "--bandwidth", str(bandwidth)]
    with subprocess.Popen([sys.executable, __file__, *options], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield int(process.stdout.readline())
        finally:
            process.terminate()


def write(path: pathlib.Path, samples: int, rows: int, shard: int | None) -> None:
    """Write simulated scores with zarr, unless they exist: the same few rows repeatedly, shifted."""
    if (path / "done").exists():
        return
    group = zarr.open_group(path, mode="w")
    options: dict[str, Any] = {"shape": (samples, CLASSES), "dtype": "float32", "compressors": None}
    shards = None if shard is None else (min(shard, samples), CLASSES)
    scores = group.create_array("scores", chunks=(min(rows, samples), CLASSES), shards=shards, **options)
    step = shard or 25_000
    some, labels, _ = Simulation(step, CLASSES).rows(0, step)
    for first in range(0, samples, step):
        scores[first : first + step] = np.roll(some, first // step, axis=0)[: samples - first]
    group.create_array("labels", data=np.resize(labels, samples), chunks=(samples,))
    (path / "done").touch()


def plain_gets(port: int, paths: list[str]) -> int:
    """Request all paths, a fixed number at a time; return their bytes."""
    waiting, sizes, buffers = iter(paths), [], threading.Lock()

    def work() -> None:
        connection, space = HTTPConnection("127.0.0.1", port), bytearray(1 << 20)
        while True:
            with buffers:
                path = next(waiting, None)
            if path is None:
                return connection.close()
            connection.request("GET", f"/{path}")
            response, n = connection.getresponse(), 0
            while more := response.readinto(space):
                n += more
            sizes.append(n)

    threads = [threading.Thread(target=work) for _ in range(min(_IN_FLIGHT, len(paths)))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(sizes)


def measure(folder: pathlib.Path, port: int, name: str, repeat: int) -> list[Any]:
    """Return a row of the table, for one layout."""
    path = folder / name
    chunks = [str(p.relative_to(folder)) for p in sorted((path / "scores" / "c").rglob("*")) if p.is_file()]
    n_bytes = sum((folder / chunk).stat().st_size for chunk in chunks)
    url = f"http://127.0.0.1:{port}/{name}"
    near, far = (avgk.evaluate(place, k=range(1, 11), straddle=False) for place in (path, url))
    assert far.drop_attrs().identical(near.drop_attrs())
    assert plain_gets(port, chunks) == n_bytes
    best = best_of(
        {
            "gets": lambda: plain_gets(port, chunks),
            "far": lambda: avgk.evaluate(url, k=range(1, 11), straddle=False),
            "near": lambda: avgk.evaluate(path, k=range(1, 11), straddle=False),
            "open": lambda: as_source(url),
        },
        repeat,
    )
    floor = best["gets"] + best["near"]
    ratios = best["far"] / best["gets"], best["far"] / floor, (best["far"] - best["open"]) / floor
    times = [f"{best[name]:.2f}" for name in ("gets", "far", "open", "near")]
    return [name, len(chunks), f"{n_bytes / 1e6:.0f}", *times, *(f"{ratio:.2f}" for ratio in ratios)]


def main() -> None:
    options = parser(__doc__)
    options.set_defaults(repeat=2)
    options.add_argument("--latency", type=float, default=80, help="ms to the first byte")
    options.add_argument("--bandwidth", type=float, default=60, help="MB/s of each answer")
    options.add_argument("--megabytes", type=int, default=600, help="MB of each store")
    options.add_argument("--serve", type=pathlib.Path, help=argparse.SUPPRESS)
    arguments = options.parse_args()
    if arguments.serve:
        asyncio.run(serve(arguments.serve, arguments.latency / 1e3, arguments.bandwidth * 1e6))
    with workplace(arguments.folder) as folder:
        rows = []
        with served(folder, arguments.latency, arguments.bandwidth) as port:
            for name, (chunk, shard) in LAYOUTS.items():
                write(folder / name.replace(" ", "-"), arguments.megabytes * 250, chunk, shard)
                rows.append(measure(folder, port, name.replace(" ", "-"), arguments.repeat))
        header = [
            "store",
            "requests",
            "MB",
            "GETs, 32 in flight (s)",
            "evaluate (s)",
            "of it opening (s)",
            "of local files (s)",
        ]
        print(
            markdown(
                [*header, "evaluate / GETs", "evaluate / (GETs + local)", "(evaluate - opening) / (GETs + local)"], rows
            )
        )


if __name__ == "__main__":
    main()
