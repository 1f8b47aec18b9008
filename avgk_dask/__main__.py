"""``python -m avgk_dask`` is the command ``avgk``."""

from avgk_dask.cli import main

if __name__ == "__main__":
    main(prog_name="avgk")
