"""Level 4 executed without our code generators, in NumPy: `loops.py` runs a module, `loop_writer.py` writes a function
of it as Python, `loop_library.py` has the meaning of the ops. Imports the package."""
