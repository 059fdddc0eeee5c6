"""What every test shares: compiled kernels are cached in a folder of this run, never in the user's; what the
compiler makes is verified."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile

if "PYTEST_XDIST_WORKER" not in os.environ:  # workers, and the processes that tests start, inherit the folder
    os.environ["LIGHTNET_CACHE"] = tempfile.mkdtemp(prefix="lightnet-tests-")
    os.environ["LIGHTNET_VERIFY"] = "1"
    atexit.register(shutil.rmtree, os.environ["LIGHTNET_CACHE"], ignore_errors=True)
