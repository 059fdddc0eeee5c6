"""Rows reduced by teams of threads: sums and extremes along axes, softmax, norms, global pools."""
