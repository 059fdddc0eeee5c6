"""Scoring a Parquet file without any engine: ``python examples/scoring/parquet.py NET.lnx IN.parquet OUT.parquet``.

Needs pyarrow. The file's row groups are shared out to processes of `concurrent.futures`. Each result is a file of its
own, which appears whole or not at all (a rename), so that it does not matter how often a part is computed: a process
that dies ends the pool, and a new one does what is not there yet.
"""

import os
import sys
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import lightnet


@cache
def loaded(net: str) -> Any:
    """The executable, once in each process."""
    return lightnet.load_executable(net)


def score_part(net: str, source: str, part: int, target: str) -> None:
    """Write a row group with the network's outputs beside its columns. Column x has the rows of input x."""
    rows = pq.ParquetFile(source).read_row_group(part)
    x = np.stack(rows["x"].to_numpy()).astype(np.float32)
    for name, array in lightnet.score(loaded(net), {"x": x}).items():
        rows = rows.append_column(name, pa.array(list(array)))
    partial = f"{target}.{os.getpid()}"
    pq.write_table(rows, partial)
    os.replace(partial, target)


def score_file(
    net: str, source: str, target: str, processes: int = 2, part: Any = score_part, attempts: int = 10
) -> int:
    """Write `target`, the rows of `source` in order with the outputs beside them; returns how many pools that took."""
    count = pq.ParquetFile(source).num_row_groups
    folder = Path(f"{target}.parts")
    folder.mkdir(exist_ok=True)
    names = [str(folder / f"{k}.parquet") for k in range(count)]
    for attempt in range(1, attempts + 1):
        with ProcessPoolExecutor(processes, get_context("spawn")) as pool:
            tasks = [
                pool.submit(part, net, source, k, name) for k, name in enumerate(names) if not os.path.exists(name)
            ]
            try:
                for task in tasks:
                    task.result()
                break
            except BrokenProcessPool:
                print(f"a process died; attempt {attempt} of {attempts} goes on with the next", file=sys.stderr)
    else:
        raise SystemExit(f"processes died {attempts} times: {folder} has what is done")
    with pq.ParquetWriter(f"{target}.partial", pq.read_schema(names[0])) as out:
        for name in names:
            out.write_table(pq.read_table(name))
    os.replace(f"{target}.partial", target)
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()
    return attempt


if __name__ == "__main__":
    score_file(*sys.argv[1:4])
