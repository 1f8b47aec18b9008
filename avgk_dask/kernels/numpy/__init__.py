"""The kernels as plain NumPy, for small matrices."""
