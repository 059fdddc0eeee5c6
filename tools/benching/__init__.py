"""The parts of ``tools/bench.py``: networks made ready, engines in processes of their own, rotations of them, and tables."""
