"""Evaluate a store on SLURM: jobs with one worker each; a job that ends is replaced by another.

python examples/deploy/slurm.py /shared/scores.zarr --jobs 4
"""

import argparse
import time

import dask
from dask_jobqueue import SLURMCluster
from distributed import Client

import avgk_dask as avgk

parser = argparse.ArgumentParser()
parser.add_argument("store", help="on a file system shared by all nodes, or a URL")
parser.add_argument("--jobs", type=int, default=2)
parser.add_argument("--cores", type=int, default=1, help="of each job")
parser.add_argument("--memory", default="4GB", help="of each job")
parser.add_argument("--queue", help="the partition")
parser.add_argument("--walltime", default="01:00:00", help="after which SLURM ends a job")
parser.add_argument("--lifetime", default="50m", help="after which a worker ends by itself; below the walltime")
parser.add_argument(
    "--stagger", default="5m", help="random variation of the lifetime, so that not all workers end at once"
)
parser.add_argument("--out", help="a new Zarr store for the result")
options = parser.parse_args()

# A task is retried on another worker if its own was lost; the default of three retries is too few if jobs are preempted.
dask.config.set({"distributed.scheduler.allowed-failures": 100})

cluster = SLURMCluster(
    queue=options.queue,
    cores=options.cores,
    processes=1,
    memory=options.memory,
    walltime=options.walltime,
    # A worker that ends before its walltime transfers its data first; if SLURM ends it, they are lost.
    worker_extra_args=["--lifetime", options.lifetime, "--lifetime-stagger", options.stagger],
)
with cluster, Client(cluster) as client:
    cluster.adapt(minimum_jobs=options.jobs, maximum_jobs=options.jobs)
    client.wait_for_workers(options.jobs)
    print("dashboard:", client.dashboard_link, flush=True)
    start = time.perf_counter()
    result = avgk.evaluate(options.store, k=range(1, 11))
    print(f"{options.jobs} jobs, {time.perf_counter() - start:.1f} s")

print(avgk.report.print_table(result))
if options.out:
    result.to_zarr(options.out, mode="w-", consolidated=False)
