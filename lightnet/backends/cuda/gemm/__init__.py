"""Products of matrices, and convolutions as such, on tiles in shared memory."""
