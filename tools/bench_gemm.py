"""Matrix products of the CPU target beside NumPy's, as shares of the machine's FMA peak, all measured in one rotation.

Run: ``python tools/bench_gemm.py [--rounds N] [MxKxN | BxMxKxN ...]``. Times are CPU times of this thread, the shortest of all
rounds; NumPy's BLAS gets one thread if the environment says so (``OPENBLAS_NUM_THREADS=1``).
"""

from __future__ import annotations

import argparse
import ctypes
import time
from collections.abc import Callable

import numpy as np
from bench_kernels import aligned, peak, prepare
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block

from lightnet.backends.cpu import gemm
from lightnet.backends.llvm.jit import CodeMachine, compile_module
from lightnet.dialects.cpu import CpuKernelOp
from lightnet.dialects.ln.matmul import Matmul
from lightnet.ir.types import TensorSpec, tensor_type
from lightnet.runtime.dtypes import BY_NAME

SHAPES = (
    "128x768x768",
    "128x768x3072",
    "128x3072x768",
    "1x1280x1000",
    "12x64x64x64",
    "12x128x64x128",
    "512x512x512",
    "16x512x512",
)

Run = tuple[str, Callable[[], object], int]


def product(shape: str, width: int) -> list[Run]:
    """Our product and NumPy's, with what one execution costs in multiply-adds."""
    *batch, m, k, n = map(int, shape.split("x"))
    rng = np.random.default_rng(0)
    a, b = (aligned(rng.standard_normal((*batch, *d)).astype(np.float32)) for d in ((m, k), (k, n)))
    block = Block(arg_types=[tensor_type(TensorSpec(x.shape, BY_NAME["f32"])) for x in (a, b)])
    op = Matmul.make(list(block.args))
    block.add_op(op)
    kernel = CpuKernelOp.wrap([op])
    function, grid = gemm.build(kernel, "product", width, {})
    native = compile_module(ModuleOp([function]))
    out, workspace = (
        aligned(np.zeros((*batch, m, n), np.float32)),
        aligned(np.zeros(gemm.workspace_bytes(kernel, width) + 1, np.uint8)),
    )
    arrays = [a, b, out] + ([workspace] if len(workspace) > 1 else [])
    call = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, *[ctypes.c_void_p] * len(arrays))(
        native.kernel_address("product")
    )
    pointers = [x.ctypes.data for x in arrays]

    def ours() -> None:
        call(0, grid, *pointers)

    ours.keep = (native, arrays)  # the code and the memory live as long as the call
    ours()
    want = np.matmul(a, b)
    if not np.abs(out - want).max() <= 1e-4 * np.abs(want).max():
        raise SystemExit(f"{shape} is wrong by {np.abs(out - want).max()}")
    return [(shape, ours, op.flops() // 2), ("  NumPy", lambda: np.matmul(a, b, out=want), op.flops() // 2)]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("shapes", nargs="*", default=SHAPES)
    args = parser.parse_args()
    machine = CodeMachine.host()
    top = peak(machine.vectors.width)
    runs: list[Run] = [("peak", prepare(top)[0], top.fmas)]
    for shape in args.shapes:
        runs += product(shape, machine.vectors.width)
    best = [float("inf")] * len(runs)
    for _ in range(args.rounds):
        for k, (_, call, _) in enumerate(runs):
            start = time.thread_time()
            call()
            best[k] = min(best[k], time.thread_time() - start)
    rates = [fmas / seconds for (_, _, fmas), seconds in zip(runs, best)]
    print(f"{machine.cpu}, best of {args.rounds}")
    for (name, _, _), rate, seconds in zip(runs, rates, best):
        print(f"{name:16} {100 * rate / rates[0]:6.1f} % of the peak {rate / 1e9:7.1f} GFMA/s {1e6 * seconds:9.1f} us")


if __name__ == "__main__":
    main()
