"""The kernels of `golden.py` that only sm_90a runs, as PTX: copies by tensor maps (TMA) into swizzled shared memory, and products by warpgroups
(wgmma), K-major and by k; and what is copied. Imports NumPy and the runtime's tensor maps.
"""

from __future__ import annotations

import numpy as np

from lightnet.runtime.cuda.tensor_map import Im2col, TensorMap

#: Threads of a warpgroup, and bytes of a row of a stage and of the pieces within which rows lie swizzled.
THREADS, ROW, SWIZZLED = 128, 128, 1024
ARCH = "sm_90a"
#: A map, and from where copies by it begin: coordinates, innermost first and outside of the tensor, too, with the offsets of im2col behind them.
COPIES: list[tuple[TensorMap, list[tuple[int, ...]]]] = [
    (TensorMap("f16", (40, 64), box=(16, 64)), [(0, 0), (0, 33), (0, -9), (-24, 8), (40, 3), (64, 0)]),
    (TensorMap("f16", (3, 20, 72), box=(1, 16, 64)), [(0, 0, 0), (8, -3, 1), (64, 10, 2), (0, 5, -1), (0, 5, 3)]),
    (TensorMap("bf16", (2, 5, 6, 128), box=(1, 2, 4, 64)), [(64, 0, 0, 1), (0, -1, -1, 0), (64, 4, 4, 1)]),
    # windows of 3x3 with a padding of 1: all of a picture's, every second one, and every third row where the last windows are left out
    (TensorMap("f16", (2, 9, 7, 64), im2col=Im2col(32, 64, (-1, -1), (-1, -1), (1, 1))),
     [(0, -1, -1, 0, 0, 0), (0, -1, -1, 0, 2, 1), (0, 3, 2, 0, 1, 1), (0, 4, 6, 0, 0, 2), (0, 2, 5, 1, 2, 2)]),
    (TensorMap("bf16", (2, 9, 8, 128), im2col=Im2col(24, 64, (-1, -1), (-1, -1), (2, 2))),
     [(64, -1, -1, 0, 0, 0), (0, 3, 3, 0, 1, 2), (64, 5, 5, 0, 2, 2), (0, 1, 1, 1, 0, 1)]),
    (TensorMap("f16", (2, 10, 5, 64), im2col=Im2col(16, 64, (-2, 0), (-3, -2), (3, 1))),
     [(0, 0, -2, 0, 0, 0), (0, 1, 1, 0, 2, 4), (0, 2, 4, 1, 1, 2)]),
    # boxes as long as they may be, and larger than the tensor; fewer columns than a row of a stage has
    (TensorMap("f16", (2, 260, 64), box=(1, 256, 64)), [(0, 0, 0), (0, 255, 1)]),
    (TensorMap("bf16", (3, 5, 24), box=(1, 16, 64)), [(0, 0, 0), (0, 1, 2), (16, -4, 1)]),
    (TensorMap("f16", (40, 3, 72), box=(48, 1, 64)), [(0, 0, 0), (64, 2, 8), (0, 3, 0)]),
    # windows of fewer channels than a row has, and of a part of them; as many windows as a tile has rows at most
    (TensorMap("f16", (2, 6, 5, 24), im2col=Im2col(64, 64, (-1, -1), (-1, -1), (1, 1))),
     [(0, -1, -1, 0, 0, 0), (0, 2, 1, 1, 2, 1), (8, 3, 4, 1, 1, 1)]),
    (TensorMap("bf16", (3, 9, 7, 72), im2col=Im2col(256, 64, (-1, -2), (-2, -1), (2, 2))),
     [(0, -2, -1, 0, 0, 0), (64, -2, -1, 0, 2, 2), (64, 2, 3, 2, 1, 2)]),
    # dilated windows that reach far, windows that begin inside of the picture, and behind it; the largest strides
    (TensorMap("f16", (1, 12, 11, 64), im2col=Im2col(32, 64, (-6, -4), (-6, -4), (1, 1))),
     [(0, -4, -6, 0, 8, 12), (0, 1, 2, 0, 4, 6), (0, 6, 5, 0, 0, 0), (0, -4, -6, 0, 255, 255)]),
    (TensorMap("f16", (2, 6, 5, 64), im2col=Im2col(24, 64, (2, -3), (1, 2), (1, 3))),
     [(0, -3, 2, 0, 0, 0), (0, 3, 6, 0, 1, 0), (0, 6, 4, 1, 0, 0)]),
    (TensorMap("bf16", (3, 20, 18, 64), im2col=Im2col(16, 64, (-3, -2), (0, 0), (8, 7))),
     [(0, -2, -3, 0, 0, 0), (0, 5, 13, 1, 3, 3), (0, 12, 5, 2, 0, 1)]),
]  # fmt: skip


def kernel(parameters: list[str], shared: int, body: list[str], threads: int) -> str:
    """An entry ``k`` with `shared` bytes of shared memory named tile, which begin at a multiple of 1024, and an mbarrier named full. %r0 is the
    thread, %r1 the block."""
    head = [
        ".reg .pred %p<4>;", ".reg .b16 %h<8>;", ".reg .b32 %r<64>;", ".reg .f32 %f<128>;", ".reg .b64 %rd<64>;",
        f".shared .align {SWIZZLED} .b8 tile[{shared}];", ".shared .align 8 .b64 full;",
        "mov.u32 %r0, %tid.x;", "mov.u32 %r1, %ctaid.x;",
    ]  # fmt: skip
    lines = "\n".join(f"    {line}" for line in [*head, *body, "ret;"])
    listed = ", ".join(f".param {p}" for p in parameters)
    return f".version 8.0\n.target {ARCH}\n.address_size 64\n\n.visible .entry k({listed})\n.reqntid {threads}, 1, 1\n{{\n{lines}\n}}\n"


def copy(rank: int, rows: int, im2col: bool) -> str:
    """A block copies `rows` rows of 128 bytes from the tensor of map p0, from where its coordinates (i32, innermost first, then the offsets of
    im2col) in p1 say; p2 gets the rows as they lie in shared memory, [blocks, rows, 32] of u32."""
    taps = 2 if im2col else 0
    where = [f"%r{10 + i}" for i in range(rank + taps)]
    each = 4 * len(where)
    body = [
        "mov.b64 %rd0, p0;", "cvta.param.u64 %rd0, %rd0;", "ld.param.u64 %rd1, [p1];", "ld.param.u64 %rd2, [p2];",
        "mov.u32 %r2, tile;", "mov.u32 %r3, full;", "setp.ne.u32 %p1, %r0, 0;", f"mul.wide.u32 %rd3, %r1, {each};",
        "add.s64 %rd3, %rd3, %rd1;", *(f"ld.global.b32 {r}, [%rd3+{4 * i}];" for i, r in enumerate(where)),
        *(f"cvt.u16.u32 %h{i}, {r};" for i, r in enumerate(where[rank:])), "@%p1 bra $ready;",
        "mbarrier.init.shared::cta.b64 [%r3], 1;", "fence.mbarrier_init.release.cluster;", "fence.proxy.async.shared::cta;",
        "$ready:", "bar.sync 0;", "@%p1 bra $wait;", f"mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r3], {rows * ROW};",
        f"cp.async.bulk.tensor.{rank}d.shared::cluster.global.{'im2col' if im2col else 'tile'}.mbarrier::complete_tx::bytes "
        f"[%r2], [%rd0, {{{', '.join(where[:rank])}}}], [%r3]{', {%h0, %h1}' if im2col else ''};",
        "$wait:", "mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r3], 0;", "@!%p2 bra $wait;",
        f"mul.wide.u32 %rd4, %r1, {rows * ROW};", "add.s64 %rd4, %rd4, %rd2;", "mul.wide.u32 %rd5, %r0, 4;",
        "add.s64 %rd4, %rd4, %rd5;", "shl.b32 %r4, %r0, 2;", "add.s32 %r4, %r4, %r2;",
    ]  # fmt: skip
    for row in range(rows):
        body += [f"ld.shared.b32 %r5, [%r4+{ROW * row}];", f"st.global.b32 [%rd4+{ROW * row}], %r5;"]
    return kernel([".align 64 .b8 p0[128]", ".u64 p1", ".u64 p2"], rows * ROW, body, 32)


def product(kind: str, cols: int, by_k: bool) -> str:
    """``d = a b + c`` by a warpgroup: p0 and p1 have a [64, 64] and b, rows of 128 bytes as they lie in shared memory; p2 and p3 have c and d,
    [128, cols / 2] of f32, a row a thread."""
    count, a_bytes = cols // 2, 64 * ROW
    b_bytes = (cols // 64 * 64 if by_k else cols) * ROW
    sums = [f"%f{i}" for i in range(count)]
    leading, step = (64 * ROW, 16 * ROW) if by_k else (16, 32)
    # PTX ISA, "Matrix descriptor format": start, leading and stride bytes in units of 16, and at bit 62 the swizzle of 128 bytes.
    constants = [descriptor(16), descriptor(leading)]
    body = [f"ld.param.u64 %rd{i}, [p{i}];" for i in range(4)]
    body += ["mov.u32 %r2, tile;", "shl.b32 %r3, %r0, 4;", "cvt.u64.u32 %rd4, %r3;", "add.s32 %r3, %r3, %r2;"]
    body += _filled(0, 0, a_bytes) + _filled(1, a_bytes, b_bytes)
    body += [f"mul.wide.u32 %rd5, %r0, {4 * count};", "add.s64 %rd6, %rd2, %rd5;", "add.s64 %rd7, %rd3, %rd5;"]
    body += [f"ld.global.f32 {f}, [%rd6+{4 * i}];" for i, f in enumerate(sums)]
    body += ["fence.proxy.async.shared::cta;", "bar.sync 0;"]
    for number, (at, constant) in enumerate(zip((0, a_bytes), constants)):
        body += [f"add.s32 %r4, %r2, {at};", "and.b32 %r4, %r4, 0x3ffff;", "shr.u32 %r4, %r4, 4;",
                 f"cvt.u64.u32 %rd{10 + number}, %r4;", f"or.b64 %rd{10 + number}, %rd{10 + number}, {constant:#x};"]  # fmt: skip
    body += ["wgmma.fence.sync.aligned;"]
    for k in range(4):
        body += [f"add.s64 %rd12, %rd10, {2 * k};", f"add.s64 %rd13, %rd11, {k * step // 16};"]
        body += [
            f"wgmma.mma_async.sync.aligned.m64n{cols}k16.f32.{kind}.{kind} {{{', '.join(sums)}}}, %rd12, %rd13, 1, 1, 1, 0, {int(by_k)};"
        ]
    body += ["wgmma.commit_group.sync.aligned;", "wgmma.wait_group.sync.aligned 0;"]
    body += [f"st.global.f32 [%rd7+{4 * i}], {f};" for i, f in enumerate(sums)]
    return kernel([f".u64 p{i}" for i in range(4)], a_bytes + b_bytes, body, THREADS)


def _filled(pointer: int, at: int, nbytes: int) -> list[str]:
    """Copy bytes to shared memory, 16 a thread at a time."""
    lines = [f"add.s64 %rd8, %rd{pointer}, %rd4;"]
    for first in range(0, nbytes, 16 * THREADS):
        lines += (
            []
            if nbytes - first >= 16 * THREADS
            else [f"setp.ge.u32 %p1, %r0, {(nbytes - first) // 16};", "@%p1 bra $skip" + f"{at};"]
        )
        lines += [f"ld.global.v4.b32 {{%r10, %r11, %r12, %r13}}, [%rd8+{first}];",
                  f"st.shared.v4.b32 [%r3+{at + first}], {{%r10, %r11, %r12, %r13}};"]  # fmt: skip
    return [*lines, f"$skip{at}:"]


def descriptor(leading: int) -> int:
    """A matrix descriptor but for its start: 1024 bytes from 8 rows to the next."""
    return leading >> 4 << 16 | SWIZZLED >> 4 << 32 | 1 << 62


def swizzled(rows: np.ndarray) -> np.ndarray:
    """Rows of 128 bytes, [rows, 64] of 16-bit elements, as they lie in shared memory: a row has its pieces of 16 bytes at the numbers that
    its own number, modulo 8, makes of theirs by exclusive or (PTX ISA, "128B swizzle"). It is its own inverse."""
    pieces = rows.reshape(len(rows), 8, 8)
    at = np.arange(8)[None, :] ^ (np.arange(len(rows)) % 8)[:, None]
    return np.take_along_axis(pieces, at[:, :, None], axis=1).reshape(rows.shape)


def factor(b: np.ndarray, by_k: bool) -> np.ndarray:
    """B [64, cols] as rows of a stage: columns of B, or by k rows of 64 columns, one piece of 64 k behind the other."""
    if not by_k:
        return np.ascontiguousarray(b.T)
    return b.reshape(64, -1, 64).transpose(1, 0, 2).reshape(-1, 64)


def accumulators(c: np.ndarray) -> np.ndarray:
    """C [64, cols] as the threads of a warpgroup have it, [128, cols / 2]: the thread 4g + q of warp w has rows 16w + g and 8 further, and of each
    8 columns those at 2q and 2q + 1 (PTX ISA, "Accumulator D fragment")."""
    warp, half, group = np.arange(4), np.arange(2), np.arange(8)
    rows = (16 * warp[:, None, None] + 8 * half[None, :, None] + group[None, None, :]).reshape(-1)
    split = c[rows].reshape(4, 2, 8, -1, 4, 2)  # warp, half, group, j, quad, i
    return np.ascontiguousarray(split.transpose(0, 2, 4, 3, 1, 5).reshape(128, -1))
