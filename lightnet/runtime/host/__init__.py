"""The host part of a network: what it does with text, before its numbers go into machine code and after they come out.

Text is no element type of kernels. A front end takes the ops on text out of a network whose ends have it, and makes
steps of them, which NumPy evaluates: `program.py` has what such a part is, `steps.py` what a step is, and each family
of ops is a file. All of it is data, in memory, in `.mlir` and in `.lnx`; nothing of a model is executed, and what a
step may take of memory and time is bounded.

Imports NumPy, the standard library and the rest of the runtime.
"""
