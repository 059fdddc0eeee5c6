"""The lines in which a benchmark says where it ran: processor, cores, load, and the versions of what it measures."""

from __future__ import annotations

import os
import platform
from importlib.metadata import version

import lightnet


def machine(*packages: str) -> str:
    """One line: processor, cores, load, Python, and the version of each package."""
    name = platform.processor() or platform.machine()
    try:
        with open("/proc/cpuinfo") as f:
            name = next(line.split(":")[1].strip() for line in f if line.startswith("model name"))
    except (OSError, StopIteration):
        pass
    versions = ", ".join(f"{p} {lightnet.__version__ if p == 'lightnet' else version(p)}" for p in packages)
    return (
        f"{name}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}; Python {platform.python_version()}; {versions}"
    )
