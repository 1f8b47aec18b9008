"""Evaluate a trillion scores on one machine: a few real chunk files, hard-linked as often as necessary.

The result is known: every chunk occurs equally often, so thresholds and errors are those of the few chunks alone, and counts are
multiples of theirs. All are compared to the last bit, straddle strengths within their certified error.

Each size runs in its own process, whose peak memory is printed; with ``--workers`` it runs on a cluster of small workers.

    python benchmarks/trillion.py --scores 1e9 1e10 1e11
    python benchmarks/trillion.py --scores 1e12 --folder FOLDER
    python benchmarks/trillion.py --scores 8e9 --straddle --workers 2 --memory-limit 1GB
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

import numpy as np
import zarr
from zarr.codecs import BloscCodec

from avgk_dask.testing import Simulation

#: Different chunks: a file may have some 65,000 links, and all of them together fit the page cache.
N_DIFFERENT = 16


def make_few(path: pathlib.Path, n_rows: int, n_classes: int) -> None:
    """Write the different chunks, with their labels."""
    if (path / "done").exists():
        return
    n = N_DIFFERENT * n_rows
    group = zarr.open_group(path, mode="w")
    blosc = BloscCodec(cname="lz4", clevel=5, shuffle="bitshuffle", typesize=4)
    scores = group.create_array(
        "scores", shape=(n, n_classes), chunks=(n_rows, n_classes), dtype="f4", compressors=blosc
    )
    labels = group.create_array("labels", shape=(n,), chunks=(n,), dtype="i8")
    spec = Simulation(n, n_classes)
    label_values = np.empty(n, np.int64)
    step = max(1, 5_000_000 // n_classes)
    for chunk in range(0, n, n_rows):
        block = np.empty((n_rows, n_classes), "f4")
        for first in range(chunk, chunk + n_rows, step):
            last = min(first + step, chunk + n_rows)
            block[first - chunk : last - chunk], label_values[first:last], _ = spec.rows(first, last)
        scores[chunk : chunk + n_rows] = block
    labels[:] = label_values
    (path / "done").touch()


def link_many(few: pathlib.Path, path: pathlib.Path, times: int) -> None:
    """Make a store that repeats the chunks, with links."""
    if (path / "done").exists():
        return
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir(parents=True)
    shutil.copy(few / "zarr.json", path)
    for name, n_chunks in (("scores", N_DIFFERENT), ("labels", 1)):
        metadata = json.loads((few / name / "zarr.json").read_text())
        metadata["shape"][0] *= times
        (path / name / "c").mkdir(parents=True)
        (path / name / "zarr.json").write_text(json.dumps(metadata))
        for number in range(n_chunks * times):
            source = few / name / "c" / str(number % n_chunks)
            target = path / name / "c" / str(number)
            if name == "labels":
                os.link(source, target)
            else:
                target.mkdir()
                os.link(source / "0", target / "0")
    (path / "done").touch()


MEASURED = """
import json, re, sys, time
import cloudpickle
import dask
from dask.sizeof import sizeof

import avgk_dask as avgk
from avgk_dask.engine import run as run_module
from avgk_dask.engine.run import Run


def peak():
    return 1024 * int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1])


def main():
    path, k, straddle, workers, limit = json.loads(sys.argv[1])
    facts = {"waves": 0, "root": 0, "graph": 0, "per_task": 0}
    read, task_of = Run.read, run_module.pass_task

    def watched_read(self, task):
        state = read(self, task)
        facts["waves"] += task.name == "scan"
        facts["root"] = max(facts["root"], sizeof(state))
        return state

    def watched_task(source, what, kept=None):
        task, reads = task_of(source, what, kept)
        sizes = [len(cloudpickle.dumps(node)) for key, node in task.dask.items() if str(key).startswith("avgk-scan")]
        shared = sum(len(cloudpickle.dumps(node)) for key, node in task.dask.items() if "plan" in str(key) or "avgk-store" in str(key) or "avgk-labels" in str(key))
        if sizes:
            facts["graph"] = max(facts["graph"], sum(sizes) + shared)
            facts["per_task"] = max(facts["per_task"], max(sizes))
        return task, reads

    Run.read, run_module.pass_task = watched_read, watched_task
    if workers:
        from distributed import Client, LocalCluster

        cluster = LocalCluster(n_workers=workers, threads_per_worker=1, memory_limit=limit, dashboard_address=None)
        client = Client(cluster)
        before = {address: worker["pid"] if "pid" in worker else worker["id"] for address, worker in client.scheduler_info(n_workers=-1)["workers"].items()}
    else:
        dask.config.set(scheduler="threads", num_workers=2)
    started = time.perf_counter()
    result = avgk.evaluate(path, k=k, straddle=straddle)
    facts["seconds"] = time.perf_counter() - started
    if workers:
        peaks = client.run(peak)
        facts["worker_peaks"] = list(peaks.values())
        facts["restarts"] = len(set(before) - set(peaks))
        client.close()
        cluster.close()
    facts |= {"peak": peak(), "reads": result.attrs["reads"]}
    facts["result"] = {name: result[name].values.tolist() for name in result.data_vars}
    print(json.dumps(facts))


if __name__ == "__main__":
    main()
"""


def measure(path: pathlib.Path, k: list[int], straddle: bool, workers: int, limit: str) -> dict:
    """Evaluate a store in its own process."""
    with tempfile.NamedTemporaryFile("w", suffix=".py") as script:
        script.write(MEASURED)
        script.flush()
        arguments = json.dumps([str(path), k, straddle, workers, limit])
        run = subprocess.run([sys.executable, script.name, arguments], stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(run.stdout.splitlines()[-1])


def check(few: dict, many: dict, times: int) -> None:
    """Check a result against the known one."""
    for name, values in few["result"].items():
        expected, actual = np.array(values, float), np.array(many["result"][name], float)
        if name in (
            "n_above",
            "n_ties",
            "n_kept",
            "n_samples",
            "n_labelled",
            "budget",
            "set_size_count",
            "set_hit_count",
            "ranked_count",
        ):
            expected = expected * times
        if name.endswith("_stderr"):  # the window of ranks around the threshold, whose labels count, differs a little
            near = np.abs(actual * np.sqrt(times) - expected) <= 0.1 * np.abs(expected)
            assert (near | np.isnan(expected)).all(), f"{name} is not 1 / sqrt({times}) of the known one"
            continue
        if name in ("straddle_magnitude", "ranked_count", "bin_low") or (
            name.endswith("_error") and "straddle" in name
        ):
            continue  # a quotient of checked values; bins, which depend on the histograms; the errors themselves
        if name.startswith("straddle"):
            error = np.array(many["result"][f"{name}_error"], float)
            far = np.abs(actual - expected) > error + 1e-12 * np.abs(expected)
            assert not far.any(), f"{name} is not within its error"
            continue
        assert np.array_equal(expected, actual, equal_nan=True), (
            f"{name} differs from the known result times {times}, or unchanged"
        )


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--scores", type=float, nargs="+", default=[1e9, 1e10])
    options.add_argument("--classes", type=int, default=1_000)
    options.add_argument("--chunk-rows", type=int, default=10_000)
    options.add_argument("--straddle", action="store_true")
    options.add_argument("--workers", type=int, default=0)
    options.add_argument("--memory-limit", default="1GB")
    options.add_argument("--folder", type=pathlib.Path, help="keep the stores here and use them again")
    chosen = options.parse_args()
    k = list(range(1, 11))
    with tempfile.TemporaryDirectory() as temporary:
        folder = chosen.folder or pathlib.Path(temporary)
        few = folder / f"few-{chosen.chunk_rows}x{chosen.classes}.zarr"
        make_few(few, chosen.chunk_rows, chosen.classes)
        n_few = N_DIFFERENT * chosen.chunk_rows * chosen.classes
        known = measure(few, k, chosen.straddle, 0, "")
        names = "scores", "samples", "reads", "waves", "seconds", "10^9 scores/s"
        names += "root MB", "graph kB", "B per task", "peak MB", "workers' peaks MB, restarts"
        print(f"| {' | '.join(names)} |\n|{'---|' * len(names)}")
        for n_scores in chosen.scores:
            times = max(1, round(n_scores / n_few))
            many = folder / f"many-{chosen.chunk_rows}x{chosen.classes}-{times}.zarr"
            started = time.perf_counter()
            link_many(few, many, times)
            linked = time.perf_counter() - started
            measured = measure(many, k, chosen.straddle, chosen.workers, chosen.memory_limit)
            check(known, measured, times)
            n = times * n_few
            workers = (
                f"{[round(p / 1e6) for p in measured['worker_peaks']]}, {measured['restarts']}"
                if chosen.workers
                else ""
            )
            print(
                f"| {n:.3g} | {n // chosen.classes:,} | {measured['reads']} | {measured['waves']} | {measured['seconds']:.1f} | "
                f"{n / measured['seconds'] / 1e9:.2f} | {measured['root'] / 1e6:.1f} | {measured['graph'] / 1e3:.0f} | {measured['per_task']} | "
                f"{measured['peak'] / 1e6:.0f} | {workers} |  (linked in {linked:.0f} s)",
                flush=True,
            )
            if not chosen.folder:
                shutil.rmtree(many)


if __name__ == "__main__":
    main()
