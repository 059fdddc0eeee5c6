"""Kernels for the tests of the PTX interpreter on sm_90a, as PTX: copies by tensor maps, one product of a warpgroup, and a product of two warpgroups
over a ring of stages. Lines that mutants drop or change have a name at their end.
"""

from __future__ import annotations

PROLOGUE = """.version 8.0
.target sm_90a
.address_size 64
"""


def wait(barrier: str, parity: str, label: str) -> str:
    """Wait for a phase, as LLVM's inline assembly has it."""
    return (
        f"{{ .reg .pred done; AGAIN_{label}: mbarrier.try_wait.parity.shared::cta.b64 done, [{barrier}], {parity};"
        f" @!done bra AGAIN_{label}; }}"
    )


def copy(rank: int, nbytes: int, im2col: bool = False) -> str:
    """One copy of `nbytes` bytes by thread 0, of 128; then all threads take it, as it lies in shared memory, to O. Coordinates X0… are innermost
    first, and so are the offsets D0…."""
    extra = rank + (rank - 2 if im2col else 0)
    names = [f"X{i}" for i in range(rank)] + [f"D{i}" for i in range(extra - rank)]
    params = "".join(f", .param .u32 {name}" for name in names)
    loads = "\n    ".join(f"ld.param.u32 %c{i}, [{name}];" for i, name in enumerate(names))
    coordinates = ", ".join(f"%c{i}" for i in range(rank))
    short = "".join(f" cvt.u16.u32 %h{i}, %c{rank + i};" for i in range(extra - rank))
    offsets = f", {{{', '.join(f'%h{i}' for i in range(extra - rank))}}}" if im2col else ""
    mode = "im2col" if im2col else "tile"
    return f"""{PROLOGUE}
.visible .entry copy(.param .align 64 .b8 T[128], .param .u64 O{params})
.reqntid 128, 1, 1
{{
    .reg .pred %p<4>; .reg .b16 %h<4>; .reg .b32 %r<9>; .reg .b32 %c<9>; .reg .b64 %rd<9>;
    .shared .align 1024 .b8 s[{max(nbytes, 1024)}];
    .shared .align 8 .b64 m;
    mov.b64 %rd1, T;
    cvta.param.u64 %rd2, %rd1;
    ld.param.u64 %rd3, [O];
    {loads}
    mov.u32 %r1, %tid.x;
    setp.ne.u32 %p1, %r1, 0;
    @%p1 bra READY;
    mbarrier.init.shared::cta.b64 [m], 1;
    fence.mbarrier_init.release.cluster;   // FENCE
READY:
    bar.sync 0;                            // BARRIER
    @%p1 bra ISSUED;
    mbarrier.arrive.expect_tx.shared::cta.b64 _, [m], {nbytes};
    {short}
    cp.async.bulk.tensor.{rank}d.shared::cluster.global.{mode}.mbarrier::complete_tx::bytes [s], [%rd2, {{{coordinates}}}], [m]{offsets};
ISSUED:
    {wait("m", "0", "0")}                  // WAIT
    shl.b32 %r2, %r1, 4;
OUT:
    setp.ge.u32 %p2, %r2, {nbytes};
    @%p2 ret;
    mov.u32 %r3, s;
    add.u32 %r3, %r3, %r2;
    ld.shared.v4.b32 {{%r4, %r5, %r6, %r7}}, [%r3];
    cvt.u64.u32 %rd4, %r2;
    add.u64 %rd4, %rd4, %rd3;
    st.global.v4.b32 [%rd4], {{%r4, %r5, %r6, %r7}};
    add.u32 %r2, %r2, 2048;
    bra OUT;
}}
"""


def product(
    cols: int, kind: str, a: tuple[int, int, int], b: tuple[int, int, int], size: int, scales: str = "1, 1"
) -> str:
    """D [64, cols] = A B of one k16 by a warpgroup: `size` bytes of I are copied to shared memory as they are. `a` and `b`: upper and lower half of
    the descriptor, whose address is relative to that memory, and whether the factor lies by k."""
    sums = ", ".join(f"%f{i}" for i in range(cols // 2))
    stores = "\n    ".join(f"st.global.f32 [%rd5+{4 * i}], %f{i};" for i in range(cols // 2))
    return f"""{PROLOGUE}
.visible .entry product(.param .u64 I, .param .u64 O)
.reqntid 128, 1, 1
{{
    .reg .pred %p<4>; .reg .b32 %r<20>; .reg .f32 %f<128>; .reg .b64 %rd<20>;
    .shared .align 1024 .b8 s[{size}];
    ld.param.u64 %rd3, [I];
    ld.param.u64 %rd4, [O];
    mov.u32 %r1, %tid.x;
    mov.u32 %r3, s;
    shl.b32 %r2, %r1, 4;
IN:
    cvt.u64.u32 %rd5, %r2;
    add.u64 %rd5, %rd5, %rd3;
    ld.global.v4.b32 {{%r4, %r5, %r6, %r7}}, [%rd5];
    add.u32 %r8, %r3, %r2;
    st.shared.v4.b32 [%r8], {{%r4, %r5, %r6, %r7}};
    add.u32 %r2, %r2, 2048;
    setp.lt.u32 %p1, %r2, {size};
    @%p1 bra IN;
    fence.proxy.async.shared::cta;         // PROXY
    bar.sync 0;                            // FILLED
    shr.u32 %r9, %r3, 4;
    add.u32 %r10, %r9, {a[1]};
    add.u32 %r11, %r9, {b[1]};
    mov.b64 %rd6, {{%r10, {a[0]}}};
    mov.b64 %rd7, {{%r11, {b[0]}}};
    setp.ne.u32 %p2, %r1, %r1;
    wgmma.fence.sync.aligned;              // FENCE
    wgmma.mma_async.sync.aligned.m64n{cols}k16.f32.{kind}.{kind} {{{sums}}}, %rd6, %rd7, %p2, {scales}, {a[2]}, {b[2]};
    wgmma.commit_group.sync.aligned;       // COMMIT
    wgmma.wait_group.sync.aligned 0;       // WAIT
    mul.wide.u32 %rd5, %r1, {2 * cols};
    add.u64 %rd5, %rd5, %rd4;
    {stores}
    ret;
}}
"""


def ring(cols: int = 64, stages: int = 3, kind: str = "f16", by_k: bool = False) -> str:
    """C [M, N] (f32) = A [M, K] B, blocks of 128 x `cols` by two warpgroups, `S` steps of 64 k. B is [N, K], or [K, N] (`by_k`). Dynamic shared
    memory: the stages of A, [128, 64] each, then those of B."""
    a_bytes, b_bytes = 128 * 128, cols * 128
    sums = ", ".join(f"%f{i}" for i in range(cols // 2))
    zeros = "".join(f"mov.b32 %f{i}, 0f00000000; " for i in range(cols // 2))
    a_step, b_step = 2, 128 if by_k else 2
    leading = 8192 >> 4 if by_k else 1
    adds = " ".join(f"add.s64 da{k}, %rd6, {a_step * k}; add.s64 db{k}, %rd7, {b_step * k};" for k in range(4))
    products = " ".join(
        f"wgmma.mma_async.sync.aligned.m64n{cols}k16.f32.{kind}.{kind} {{{sums}}}, da{k}, db{k}, 1, 1, 1, 0, {int(by_k)};"
        for k in range(4)
    )
    b_copies = "\n    ".join(
        f"add.u32 %r26, %r22, {8192 * i}; add.u32 %r27, %r7, {64 * i};"
        " cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r26], [%rd2, {%r27, %r23}], [%r24];"
        for i in range(cols // 64)
    )
    if not by_k:
        b_copies = "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r22], [%rd2, {%r23, %r7}], [%r24];"
    return f"""{PROLOGUE}
.extern .shared .align 1024 .b8 dyn[];
.visible .entry ring(.param .align 64 .b8 A[128], .param .align 64 .b8 B[128], .param .u64 C, .param .u32 N, .param .u32 S)
.reqntid 256, 1, 1
{{
    .reg .pred %p<12>; .reg .b32 %r<60>; .reg .b32 %f<{cols // 2}>; .reg .b64 %rd<20>;
    .shared .align 8 .b64 full[{stages}];
    .shared .align 8 .b64 empty[{stages}];
    mov.b64 %rd1, A; cvta.param.u64 %rd1, %rd1;
    mov.b64 %rd2, B; cvta.param.u64 %rd2, %rd2;
    ld.param.u64 %rd3, [C];
    ld.param.u32 %r1, [N];
    ld.param.u32 %r2, [S];
    mov.u32 %r3, %tid.x;
    mov.u32 %r4, %ctaid.x; mov.u32 %r5, %ctaid.y;
    shl.b32 %r6, %r5, 7;                   // first row
    mul.lo.u32 %r7, %r4, {cols};           // first column
    and.b32 %r8, %r3, 31;
    setp.eq.u32 %p1, %r8, 0;               // LANE
    setp.eq.u32 %p2, %r3, 0;               // the producer
    mov.u32 %r10, full; mov.u32 %r11, empty; mov.u32 %r12, dyn;
    add.u32 %r13, %r12, {stages * a_bytes};
    @!%p2 bra MADE;
    mov.u32 %r14, 0;
MAKE:
    shl.b32 %r15, %r14, 3;
    add.u32 %r16, %r10, %r15; add.u32 %r17, %r11, %r15;
    mbarrier.init.shared::cta.b64 [%r16], 1;
    mbarrier.init.shared::cta.b64 [%r17], 8;          // COUNT
    add.u32 %r14, %r14, 1;
    setp.lt.u32 %p3, %r14, {stages};
    @%p3 bra MAKE;
    fence.mbarrier_init.release.cluster;   // INIT FENCE
MADE:
    bar.sync 0;                            // INIT BARRIER
    mov.u32 %r18, 0;                       // the step to copy
    @!%p2 bra BEGUN;
    min.u32 %r19, %r2, {stages};
BEGIN:
    mul.lo.u32 %r21, %r18, {a_bytes}; add.u32 %r21, %r21, %r12;
    mul.lo.u32 %r22, %r18, {b_bytes}; add.u32 %r22, %r22, %r13;
    shl.b32 %r23, %r18, 6;
    shl.b32 %r24, %r18, 3; add.u32 %r24, %r24, %r10;
    mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r24], {a_bytes + b_bytes};      // FIRST EXPECT
    cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r21], [%rd1, {{%r23, %r6}}], [%r24];
    {b_copies}
    add.u32 %r18, %r18, 1;
    setp.lt.u32 %p3, %r18, %r19;
    @%p3 bra BEGIN;
BEGUN:
    {zeros}
    shr.u32 %r30, %r3, 7; shl.b32 %r30, %r30, 13;     // this warpgroup's rows of A
    mov.u32 %r31, 0;                       // the step
    mov.u32 %r32, 0;                       // its stage
    mov.u32 %r33, 0;                       // the parity of its phase
    mov.u32 %r34, {stages - 1};            // the stage before it, and its parity
    mov.u32 %r35, 1;
STEP:
    shl.b32 %r40, %r32, 3; add.u32 %r40, %r40, %r10;
    {wait("%r40", "%r33", "FULL")}         // WAIT FULL
    mul.lo.u32 %r41, %r32, {a_bytes}; add.u32 %r41, %r41, %r12; add.u32 %r41, %r41, %r30;
    mul.lo.u32 %r42, %r32, {b_bytes}; add.u32 %r42, %r42, %r13;
    shr.u32 %r41, %r41, 4; shr.u32 %r42, %r42, 4;
    or.b32 %r41, %r41, 0x10000;
    or.b32 %r42, %r42, {leading << 16};    // LEADING
    mov.b64 %rd6, {{%r41, 0x40000040}};    // A'S STRIDE
    mov.b64 %rd7, {{%r42, 0x40000040}};    // B'S STRIDE
    {{ .reg .b64 da<4>, db<4>;
    wgmma.fence.sync.aligned;              // FENCE
    {adds}
    {products}
    wgmma.commit_group.sync.aligned;       // COMMIT
    }}
    wgmma.wait_group.sync.aligned 1;       // WAIT ONE
    setp.eq.u32 %p4, %r31, 0;
    @%p4 bra NEXT;
    shl.b32 %r43, %r34, 3; add.u32 %r44, %r43, %r11;
    @!%p1 bra ARRIVED;
    mbarrier.arrive.shared::cta.b64 _, [%r44];        // ARRIVE
ARRIVED:
    setp.ge.u32 %p5, %r18, %r2;
    @%p5 bra NEXT;
    @!%p2 bra NEXT;
    {wait("%r44", "%r35", "EMPTY")}        // WAIT EMPTY
    mul.lo.u32 %r21, %r34, {a_bytes}; add.u32 %r21, %r21, %r12;
    mul.lo.u32 %r22, %r34, {b_bytes}; add.u32 %r22, %r22, %r13;
    shl.b32 %r23, %r18, 6;
    add.u32 %r24, %r43, %r10;
    mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r24], {a_bytes + b_bytes};      // EXPECT
    cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r21], [%rd1, {{%r23, %r6}}], [%r24];      // REFILL
    {b_copies}
    add.u32 %r18, %r18, 1;
NEXT:
    mov.u32 %r34, %r32;
    mov.u32 %r35, %r33;
    add.u32 %r31, %r31, 1;
    add.u32 %r32, %r32, 1;
    setp.lt.u32 %p6, %r32, {stages};
    @%p6 bra SAME;
    mov.u32 %r32, 0;
    xor.b32 %r33, %r33, 1;                 // FLIP
SAME:
    setp.lt.u32 %p7, %r31, %r2;
    @%p7 bra STEP;
    wgmma.wait_group.sync.aligned 0;       // WAIT ALL
    shr.u32 %r50, %r8, 2; shr.u32 %r51, %r3, 5; shl.b32 %r51, %r51, 4;
    add.u32 %r50, %r50, %r51; add.u32 %r50, %r50, %r6;             // row
    and.b32 %r52, %r8, 3; shl.b32 %r52, %r52, 1; add.u32 %r52, %r52, %r7;      // column
    mad.lo.u32 %r53, %r50, %r1, %r52; mul.wide.u32 %rd8, %r53, 4; add.u64 %rd8, %rd8, %rd3;
    mul.wide.u32 %rd9, %r1, 32; add.u64 %rd9, %rd9, %rd8;
    {_stores(cols)}
    ret;
}}
"""


def _stores(cols: int) -> str:
    """A thread's sums of two rows, 8 apart, to %rd8 and %rd9."""
    return "\n    ".join(
        f"st.global.v2.b32 [%rd{8 + h}+{32 * j}], {{%f{4 * j + 2 * h}, %f{4 * j + 2 * h + 1}}};"
        for j in range(cols // 8)
        for h in range(2)
    )


def stream(each: bool = True) -> str:
    """Warp 0 copies pieces of 8 x 64 of a tensor, `S` of them, to a ring of two stages; warps 1 and 2 take them from there to O by ordinary loads.
    All of their threads say when they have read (`each`), or one of each warp, behind the others."""
    arrive = "mbarrier.arrive.shared::cta.b64 _, [%r11];                // ARRIVE"
    if not each:
        arrive = f"bar.warp.sync -1; and.b32 %r20, %r1, 31; setp.eq.u32 %p5, %r20, 0; @%p5 {arrive}"
    return f"""{PROLOGUE}
.visible .entry stream(.param .align 64 .b8 T[128], .param .u64 O, .param .u32 S)
.reqntid 96, 1, 1
{{
    .reg .pred %p<9>; .reg .b32 %r<30>; .reg .b64 %rd<9>;
    .shared .align 1024 .b8 s[2048];
    .shared .align 8 .b64 full[2];
    .shared .align 8 .b64 empty[2];
    mov.b64 %rd1, T; cvta.param.u64 %rd1, %rd1;
    ld.param.u64 %rd2, [O];
    ld.param.u32 %r2, [S];
    mov.u32 %r1, %tid.x;
    setp.ne.u32 %p1, %r1, 0;
    @%p1 bra MADE;
    mbarrier.init.shared.b64 [full], 1; mbarrier.init.shared.b64 [full+8], 1;
    mbarrier.init.shared.b64 [empty], {64 if each else 2}; mbarrier.init.shared.b64 [empty+8], {64 if each else 2};
    fence.mbarrier_init.release.cluster;
MADE:
    bar.sync 0;
    mov.u32 %r3, 0;                        // the step
    setp.lt.u32 %p2, %r1, 32;
    shl.b32 %r4, %r1, 4; sub.u32 %r4, %r4, 512;
    cvt.u64.u32 %rd3, %r4; add.u64 %rd3, %rd3, %rd2;
STEP:
    and.b32 %r5, %r3, 1; shr.u32 %r6, %r3, 1; and.b32 %r6, %r6, 1;     // stage, parity
    shl.b32 %r7, %r5, 10; mov.u32 %r8, s; add.u32 %r8, %r8, %r7;
    shl.b32 %r7, %r5, 3; mov.u32 %r10, full; add.u32 %r10, %r10, %r7; mov.u32 %r11, empty; add.u32 %r11, %r11, %r7;
    @!%p2 bra TAKE;
    @%p1 bra NEXT;
    xor.b32 %r12, %r6, 1;
    {wait("%r11", "%r12", "EMPTY")}        // WAIT EMPTY
    mbarrier.expect_tx.shared::cta.b64 [%r10], 1024;
    shl.b32 %r13, %r3, 3; mov.u32 %r14, 0;
    cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%r8], [%rd1, {{%r14, %r13}}], [%r10];
    mbarrier.arrive.shared::cta.b64 _, [%r10];
    bra NEXT;
TAKE:
    {wait("%r10", "%r6", "FULL")}          // WAIT FULL
    add.u32 %r15, %r8, %r4;
    ld.shared.v4.b32 {{%r16, %r17, %r18, %r19}}, [%r15];       // READ
    {arrive}
    st.global.v4.b32 [%rd3], {{%r16, %r17, %r18, %r19}};
    add.u64 %rd3, %rd3, 1024;
NEXT:
    add.u32 %r3, %r3, 1;
    setp.lt.u32 %p3, %r3, %r2;
    @%p3 bra STEP;
    ret;
}}
"""
