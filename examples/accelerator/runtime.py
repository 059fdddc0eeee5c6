"""The way that its networks run: kernels in C, which the system's compiler takes as that of a real machine would, a
launch list, and the DMA engine.
"""

import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from xdsl.dialects.builtin import ModuleOp

from lightnet.backends.listed import ListedRuntime
from lightnet.diagnostics import LightNetError
from lightnet.ir.runtime import Option
from lightnet.runtime.listed import SharedLibrary

from .dma import Dma
from .emit_c import kernels_c


class NpuFormat(SharedLibrary):
    """A shared library, which the driver launches kernel by kernel."""

    name = "npu"
    machine = Dma()


class NpuRuntime(ListedRuntime):
    form = NpuFormat()
    files = {"c": ".c"}
    options = (
        Option("cc", "the C compiler that makes its code (default: cc)", default="cc", metavar="COMMAND"),
        Option("effort", "how hard that tries, from 0 to 3 (default: 2)", int, 2, metavar="N"),
    )

    def body(self, loops: ModuleOp, options: Mapping[str, Any]) -> tuple[bytes, str]:
        source = kernels_c(loops)
        with tempfile.TemporaryDirectory() as folder:
            made = Path(folder, "kernels.so")
            words = f"-std=c99 -O{options['effort']} -shared -fPIC -x c - -lm -o".split()
            try:
                done = subprocess.run(
                    [options["cc"], *words, made], input=source, text=True, capture_output=True, timeout=300
                )
            except (OSError, subprocess.TimeoutExpired) as error:
                raise LightNetError(f"the C compiler does not run: {error}") from None
            if done.returncode:
                raise LightNetError(f"{options['cc']} refuses the code: {done.stderr.strip()[-300:]}")
            return made.read_bytes(), source


RUNTIME = NpuRuntime()
