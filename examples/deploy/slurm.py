"""Evaluate a store on SLURM: as many jobs as asked for, each with one worker; a job that ends is followed by another.

python examples/deploy/slurm.py /shared/scores.zarr --jobs 4
"""

import argparse
import time

import dask
from dask_jobqueue import SLURMCluster
from distributed import Client

import avgk_dask as avgk

parser = argparse.ArgumentParser()
parser.add_argument("store", help="on a file system that all nodes see, or a URL")
parser.add_argument("--jobs", type=int, default=2)
parser.add_argument("--cores", type=int, default=1, help="of each job")
parser.add_argument("--memory", default="4GB", help="of each job")
parser.add_argument("--queue", help="the partition")
parser.add_argument("--walltime", default="01:00:00", help="after which SLURM ends a job")
parser.add_argument("--lifetime", default="50m", help="after which a worker ends by itself; below the walltime")
parser.add_argument("--stagger", default="5m", help="so much sooner or later, so that not all end at once")
parser.add_argument("--out", help="a new Zarr store for the result")
asked = parser.parse_args()

# A task whose worker went away is tried elsewhere; four times are too few where jobs are cancelled or preempted.
dask.config.set({"distributed.scheduler.allowed-failures": 100})

cluster = SLURMCluster(
    queue=asked.queue,
    cores=asked.cores,
    processes=1,
    memory=asked.memory,
    walltime=asked.walltime,
    # A worker that ends in good time hands over what it holds; one that SLURM ends takes it along.
    worker_extra_args=["--lifetime", asked.lifetime, "--lifetime-stagger", asked.stagger],
)
with cluster, Client(cluster) as client:
    cluster.adapt(minimum_jobs=asked.jobs, maximum_jobs=asked.jobs)
    client.wait_for_workers(asked.jobs)
    print("dashboard:", client.dashboard_link, flush=True)
    start = time.perf_counter()
    result = avgk.evaluate(asked.store, k=range(1, 11))
    print(f"{asked.jobs} jobs, {time.perf_counter() - start:.1f} s")

print(avgk.report.print_table(result))
if asked.out:
    result.to_zarr(asked.out, mode="w-", consolidated=False)
