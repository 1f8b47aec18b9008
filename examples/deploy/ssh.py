"""Evaluate a store on machines reached by ssh: the scheduler on the first host, a worker on each of the others.

python examples/deploy/ssh.py /shared/scores.zarr host1 host1 host2 host3
"""

import sys
import time

from distributed import Client, SSHCluster

import avgk_dask as avgk

store, *hosts = sys.argv[1:]

# Workers start in the home folder of their host, so the store is an absolute path that all hosts can open, or a URL.
# Users, ports and keys come from ~/.ssh/config. If a host has Python at another path, pass remote_python="...".
with SSHCluster(hosts, scheduler_options={"port": 0, "dashboard_address": ":0"}) as cluster, Client(cluster) as client:
    client.wait_for_workers(len(hosts) - 1)
    start = time.perf_counter()
    result = avgk.evaluate(store, k=range(1, 11))
    print(f"{len(client.nthreads())} workers, {time.perf_counter() - start:.1f} s")

print(avgk.report.print_table(result))
