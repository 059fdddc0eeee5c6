"""Attention in one kernel: the bodies that it takes, a block's work, and which kernels become one."""
