"""A tool of LightNet in a process with bounds.

    python -m lightnet_mcp.bounded SECONDS BYTES FILE_BYTES MODULE ARGUMENT…

Bounds are processor seconds, address space, and the size of a file. Imports the standard library, then the module.
"""

from __future__ import annotations

import resource
import runpy
import sys


def main(argv: list[str]) -> None:
    """Bound this process, and run the module as a program."""
    seconds, memory, size = (int(word) for word in argv[:3])
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 5))
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    sys.argv = argv[3:]
    runpy.run_module(argv[3], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main(sys.argv[1:])
