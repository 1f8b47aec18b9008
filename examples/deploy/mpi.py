"""Evaluate a store under MPI: rank 0 is the scheduler, rank 1 runs this script, every further rank is a worker.

mpiexec -n 4 python examples/deploy/mpi.py /shared/scores.zarr
"""

import sys
import time

from dask_mpi import initialize
from distributed import Client

import avgk_dask as avgk

initialize(nthreads=1, dashboard_address=":0")  # returns on rank 1 only; the other ranks end with it

with Client() as client:
    client.wait_for_workers(1)
    start = time.perf_counter()
    result = avgk.evaluate(sys.argv[1], k=range(1, 11))
    print(f"{len(client.nthreads())} workers, {time.perf_counter() - start:.1f} s")
    print(avgk.report.print_table(result))
