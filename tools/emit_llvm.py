"""Print what a level-4 ``.mlir`` file becomes: LLVM IR, or with ``--asm`` the host's machine code as assembly, with ``--ptx`` PTX.

Run: ``python tools/emit_llvm.py [--asm] [--width LANES] [--ptx [ARCH]] FILE``; FILE may be ``-``.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from xdsl.utils.exceptions import VerifyException

from lightnet.backends.llvm.emitter import Vectors, emit_module
from lightnet.diagnostics import LightNetError
from lightnet.ir.context import make_context
from lightnet.ir.parser import parse_mlir


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file")
    parser.add_argument("--asm", action="store_true", help="assembly for this machine")
    parser.add_argument("--width", type=int, default=16, choices=(4, 8, 16), help="lanes of f32 in a vector (16)")
    parser.add_argument("--ptx", nargs="?", const="sm_80", metavar="ARCH", help="PTX of the cuda kernels (sm_80)")
    options = parser.parse_args()
    text = sys.stdin.read() if options.file == "-" else Path(options.file).read_text(encoding="utf-8")
    try:
        module = parse_mlir(make_context(), text, options.file)
        module.verify()
        if options.ptx:
            from lightnet.backends.cuda.nvptx import emit_ptx

            print(emit_ptx(module, options.ptx))
        elif options.asm:
            from lightnet.backends.llvm.jit import compile_module

            print(compile_module(module, vectors=Vectors(options.width)).assembly)
        else:
            print(emit_module(module, Vectors(options.width)).text)
    except LightNetError as error:
        print(error.render(), file=sys.stderr)
        return 1
    except VerifyException as error:
        print(f"{options.file}: error: {str(error).splitlines()[0]}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
