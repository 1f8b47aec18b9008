"""Evaluate a store in the cloud with Coiled, which starts machines with the packages that are installed here.

python examples/deploy/coiled_cluster.py s3://bucket/scores.zarr
"""

import sys

import coiled

import avgk_dask as avgk

with (
    coiled.Cluster(
        n_workers=[4, 20],
        worker_memory="16 GiB",
        region="us-east-1",  # where the bucket is: reading across regions is slow, and is paid for
        spot_policy="spot_with_fallback",  # a machine that is taken away changes no result
        idle_timeout="10 minutes",
    ) as cluster,
    cluster.get_client() as client,
):
    client.wait_for_workers(4)
    print("dashboard:", client.dashboard_link)
    print(avgk.report.print_table(avgk.evaluate(sys.argv[1], k=range(1, 11))))
