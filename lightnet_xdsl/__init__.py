"""LightNet among other MLIR tools: its dialects, passes and targets in `xdsl-opt` (`universe.py`), and its modules and
dialects as text that MLIR's own tools read (`for_mlir.py`, `irdl.py`)."""
