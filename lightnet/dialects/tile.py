"""The `tile` dialect: what level 4 needs beside `scf`, `arith`, `math`, `memref`, `vector` of xDSL.

Multi-dimensional vectors are register tiles. `tile.load`/`tile.store` move strided n-d slices between memory and tiles,
`tile.fma` is the micro-kernel (an outer-product accumulation), `tile.transpose` renames registers, and `tile.reduce`
folds dimensions. The ops stand in `tile_memory.py` (what touches memory), `tile_arith.py` (what works on registers) and
`launch.py` (`tile.launch`, `tile.copy` and `tile.host`, the lines of `@main`). Imports xDSL.

```mlir
%a = tile.load %x[%c, %y, %i] dims [0, 2] : memref<64x30x30xf32>, vector<8x14xf32>
%r = tile.fma %w, %a, %acc : vector<4x8xf32>, vector<8x14xf32>, vector<4x14xf32>
tile.store %r, %o[%k, %y, %i] dims [0, 2] valid [4, 13] : vector<4x14xf32>, memref<32x30x30xf32>
```
"""

from __future__ import annotations

from xdsl.ir import Dialect

from lightnet.dialects.launch import CopyOp, HostOp, LaunchOp
from lightnet.dialects.tile_arith import CastOp, CmpOp, DotOp, FmaOp, ReduceOp, SelectOp, TransposeOp
from lightnet.dialects.tile_memory import LoadOp, PrefetchOp, StoreOp

Tile = Dialect(
    "tile",
    [
        LoadOp,
        StoreOp,
        PrefetchOp,
        FmaOp,
        DotOp,
        SelectOp,
        CastOp,
        CmpOp,
        TransposeOp,
        ReduceOp,
        LaunchOp,
        HostOp,
        CopyOp,
    ],
    [],
)
