"""Arrays in, small arrays out: order keys, first looks, ranks and exact sums.

``bits``, ``rows``, ``pairs`` and ``places`` (numba) and ``plain`` (NumPy) hold the same functions under the same names;
the tests hold them equal.
"""
