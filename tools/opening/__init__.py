"""The parts of ``tools/open_shapes.py``: networks with open dims, their export, workers that take any shape, and tables."""
