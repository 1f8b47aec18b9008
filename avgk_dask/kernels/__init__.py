"""Arrays in, small arrays out: order keys, first looks, ranks and exact sums.

A kernel is compiled (numba) in one module and stands as plain NumPy beside it: ``bits`` and ``plain_bits``, and
so on. ``twins`` is the table of them; the tests go through it and hold the two equal.
"""
