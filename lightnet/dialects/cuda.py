"""The `cuda` dialect: the kernel region of the target (level 2 of the stack), and what level 4 needs beside `scf`,
`arith`, `math`, `memref`, `vector` and `tile` for a GPU.

A function with the attribute ``cuda.block`` is a kernel: it says what one thread does. The ops stand in `cuda_simt.py`
(threads, barriers, shuffles, shared memory), `cuda_memory.py` (asynchronous copies), `cuda_matrix.py` (tensor cores),
`cuda_mbarrier.py` and `cuda_hopper.py` (what sm_90a adds) and `cuda_launch.py` (the lines of `@main`); `cuda_checks.py`
is what their verifiers share, `cuda_stages.py` and `cuda_flight.py` what those of sm_90a's ops ask besides. Imports
xDSL.

```mlir
func.func @scale(%x: memref<4096xf32>, %y: memref<4096xf32>) attributes {cuda.block = array<i32: 128, 1, 1>} {
  %b = cuda.block_id x
  %t = cuda.thread_id x
  …
}
func.func @main() {
  cuda.launch @scale grid [32, 1, 1] block [128, 1, 1] [arena+0, arena+16384]
  func.return
}
```
"""

from __future__ import annotations

from xdsl.ir import Dialect

from lightnet.dialects.cuda_hopper import (
    Im2colAttr,
    TiledAttr,
    TmaLoadOp,
    WarpgroupMmaOp,
    WarpgroupWaitOp,
)
from lightnet.dialects.cuda_launch import CudaLaunchOp
from lightnet.dialects.cuda_matrix import LdmatrixOp, MmaOp, RoundTf32Op
from lightnet.dialects.cuda_mbarrier import (
    MbarrierArriveOp,
    MbarrierExpectOp,
    MbarrierFenceOp,
    MbarrierInitOp,
    MbarrierWaitOp,
)
from lightnet.dialects.cuda_memory import AsyncCommitOp, AsyncCopyOp, AsyncWaitOp
from lightnet.dialects.cuda_simt import (
    BarrierOp,
    BlockDimOp,
    BlockIdOp,
    DimAttr,
    GridDimOp,
    LaneIdOp,
    SharedOp,
    ShuffleAttr,
    ShuffleOp,
    ThreadIdOp,
    WarpIdOp,
)
from lightnet.ir.kernel import KernelOp


class CudaKernelOp(KernelOp):
    """A region of `ln` ops that one generator of the cuda target turns into one or several functions.

    ```mlir
    %y = cuda.kernel(%x_ = %x) {
      %0 = ln.relu %x_ : tensor<2x3xf32>
      ln.yield %0
    } as ("y")
    ```
    """

    name = "cuda.kernel"


Cuda = Dialect(
    "cuda",
    [
        CudaKernelOp, CudaLaunchOp, ThreadIdOp, BlockIdOp, BlockDimOp, GridDimOp, LaneIdOp, WarpIdOp, BarrierOp,
        ShuffleOp,
        SharedOp, AsyncCopyOp, AsyncCommitOp, AsyncWaitOp, LdmatrixOp, MmaOp, RoundTf32Op, MbarrierInitOp,
        MbarrierFenceOp,
        MbarrierExpectOp, MbarrierArriveOp, MbarrierWaitOp, TmaLoadOp, WarpgroupMmaOp, WarpgroupWaitOp,
    ],
    [DimAttr, ShuffleAttr, TiledAttr, Im2colAttr],
)  # fmt: skip
