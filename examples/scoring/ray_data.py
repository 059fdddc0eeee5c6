"""Scoring a folder of Parquet files with Ray Data: ``python examples/scoring/ray_data.py NET.lnx IN OUT``.

Each of two processes loads the executable once, and takes blocks of rows. A process that dies is started again by Ray,
and the blocks that it had are computed again; OUT is written only where all rows are there. Column x has the rows of
the network's input x; the others are kept.
"""

import sys
from pathlib import Path

import numpy as np
import ray
import ray.data

import lightnet


class Scorer:
    """The work of a process on a block of rows: columns to columns."""

    def __init__(self, path: str):
        self.run = lightnet.load_executable(path)

    def __call__(self, rows: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        return {**rows, **lightnet.score(self.run, {"x": np.stack(rows["x"]).astype(np.float32)})}


def scored(net: str, folder: str, processes: int = 2, scorer: type = Scorer) -> ray.data.Dataset:
    """The rows of a folder with the network's outputs, computed when they are read."""
    rows = ray.data.read_parquet(folder)
    workers = ray.data.ActorPoolStrategy(size=processes)
    return rows.map_batches(
        scorer, fn_constructor_args=[str(Path(net).resolve())], batch_size=4096, compute=workers, num_cpus=1
    )


if __name__ == "__main__":
    scored(*sys.argv[1:3]).write_parquet(sys.argv[3])
