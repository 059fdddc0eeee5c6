"""For test_scoring: score with the recipe of Ray Data, on two processes of which one is killed: ``ray_killed.py NET.lnx FOLDER``."""

import os
import signal
import sys
from pathlib import Path

import numpy as np
import ray

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "examples" / "scoring")]
from ray_data import Scorer, scored  # noqa: E402

NET, FOLDER = sys.argv[1], Path(sys.argv[2])


class Mortal(Scorer):
    """A scorer whose process is killed at its third block, once in all."""

    def __init__(self, path: str):
        super().__init__(path)
        self.blocks = 0
        with open(FOLDER / "started", "a") as out:
            out.write(f"{os.getpid()}\n")

    def __call__(self, rows: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        self.blocks += 1
        if self.blocks == 3:
            try:
                os.close(os.open(FOLDER / "died", os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                pass
            else:
                os.kill(os.getpid(), signal.SIGKILL)
        return super().__call__(rows)


ray.init(
    num_cpus=3,
    include_dashboard=False,
    log_to_driver=False,
    runtime_env={"env_vars": {"PYTHONPATH": os.pathsep.join(sys.path)}},
)
scored(NET, str(FOLDER / "in"), scorer=Mortal).write_parquet(str(FOLDER / "out"))
