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
        region="us-east-1",  # the region of the bucket: reading across regions is slow and costs money
        spot_policy="spot_with_fallback",  # losing a machine does not change the result
        idle_timeout="10 minutes",
    ) as cluster,
    cluster.get_client() as client,
):
    client.wait_for_workers(4)
    print("dashboard:", client.dashboard_link)
    print(avgk.report.print_table(avgk.evaluate(sys.argv[1], k=range(1, 11))))
