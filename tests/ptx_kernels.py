"""Two kernels for the tests of the PTX interpreter, as PTX: a matrix product of float32 in shared memory, and one of
f16 on tensor cores with cp.async in two stages, ldmatrix and zero fill, for any M, N and K. Both are text with lines
that a mutant drops or changes.
"""

from __future__ import annotations

PROLOGUE = """.version 8.0
.target sm_80
.address_size 64
"""

#: C[M, N] = A[M, K] B[K, N] of float32, tiles of 16 x 16 x 16, one thread an element; all sizes may be ragged.
SIMT = (
    PROLOGUE
    + """
.visible .entry simt(.param .u64 A, .param .u64 B, .param .u64 C, .param .u32 M, .param .u32 N, .param .u32 K)
.reqntid 16, 16, 1
{
    .reg .pred %p<9>;
    .reg .b32 %r<40>;
    .reg .f32 %f<9>;
    .reg .b64 %rd<20>;
    .shared .align 4 .b8 as[1024];
    .shared .align 4 .b8 bs[1024];
    ld.param.u64 %rd1, [A];
    ld.param.u64 %rd2, [B];
    ld.param.u64 %rd3, [C];
    ld.param.u32 %r1, [M];
    ld.param.u32 %r2, [N];
    ld.param.u32 %r3, [K];
    mov.u32 %r4, %tid.x;
    mov.u32 %r5, %tid.y;
    mov.u32 %r6, %ctaid.x;
    mov.u32 %r7, %ctaid.y;
    mad.lo.s32 %r8, %r6, 16, %r4;      // column
    mad.lo.s32 %r9, %r7, 16, %r5;      // row
    mad.lo.s32 %r10, %r5, 16, %r4;
    shl.b32 %r10, %r10, 2;
    mov.u32 %r11, as;
    mov.u32 %r12, bs;
    add.s32 %r13, %r11, %r10;
    add.s32 %r14, %r12, %r10;
    shl.b32 %r15, %r5, 6;
    add.s32 %r15, %r15, %r11;
    shl.b32 %r16, %r4, 2;
    add.s32 %r16, %r16, %r12;
    setp.lt.s32 %p1, %r9, %r1;
    setp.lt.s32 %p2, %r8, %r2;
    mov.f32 %f1, 0f00000000;
    mov.u32 %r17, 0;
LOOP:
    mov.f32 %f2, 0f00000000;
    mov.f32 %f3, 0f00000000;
    add.s32 %r18, %r17, %r4;
    setp.lt.and.s32 %p3, %r18, %r3, %p1;
    mad.lo.s32 %r19, %r9, %r3, %r18;
    mad.wide.s32 %rd4, %r19, 4, %rd1;
    @%p3 ld.global.f32 %f2, [%rd4];
    add.s32 %r20, %r17, %r5;
    setp.lt.and.s32 %p4, %r20, %r3, %p2;
    mad.lo.s32 %r21, %r20, %r2, %r8;
    mad.wide.s32 %rd5, %r21, 4, %rd2;
    @%p4 ld.global.f32 %f3, [%rd5];
    st.shared.f32 [%r13], %f2;
    st.shared.f32 [%r14], %f3;
    bar.sync 0;                        // FILLED
    mov.u32 %r22, 0;
    mov.u32 %r23, %r15;
    mov.u32 %r24, %r16;
INNER:
    ld.shared.f32 %f4, [%r23];
    ld.shared.f32 %f5, [%r24];
    fma.rn.f32 %f1, %f4, %f5, %f1;
    add.s32 %r23, %r23, 4;
    add.s32 %r24, %r24, 64;
    add.s32 %r22, %r22, 1;
    setp.lt.u32 %p5, %r22, 16;
    @%p5 bra INNER;
    bar.sync 0;                        // READ
    add.s32 %r17, %r17, 16;
    setp.lt.s32 %p6, %r17, %r3;
    @%p6 bra LOOP;
    and.pred %p7, %p1, %p2;
    mad.lo.s32 %r25, %r9, %r2, %r8;
    mad.wide.s32 %rd6, %r25, 4, %rd3;
    @%p7 st.global.f32 [%rd6], %f1;
    ret;
}
"""
)

#: C[M, N] (float32) = A[M, K] B[N, K]^T of f16; K a multiple of 8, M and N any. A block of two warps makes a tile of 16
#: x 16 in steps of 16 along K: warp 0 copies A's tile and warp 1 B's, 16 bytes a lane; each multiplies A by 8 columns.
#: Rows beyond M and N, and columns beyond K, are filled with zeros. Rows have 32 bytes in shared memory; two stages.
MMA = (
    PROLOGUE
    + """
.visible .entry mma(.param .u64 A, .param .u64 B, .param .u64 C, .param .u32 M, .param .u32 N, .param .u32 K)
.reqntid 64, 1, 1
{
    .reg .pred %p<20>;
    .reg .b32 %r<80>;
    .reg .f32 %f<9>;
    .reg .b64 %rd<20>;
    .shared .align 16 .b8 as[1024];
    .shared .align 16 .b8 bs[1024];
    ld.param.u64 %rd1, [A];
    ld.param.u64 %rd2, [B];
    ld.param.u64 %rd3, [C];
    ld.param.u32 %r1, [M];
    ld.param.u32 %r2, [N];
    ld.param.u32 %r3, [K];
    mov.u32 %r4, %tid.x;
    and.b32 %r5, %r4, 31;              // lane
    shr.u32 %r6, %r4, 5;               // warp
    setp.eq.s32 %p1, %r6, 0;
    mov.u32 %r7, %ctaid.x;
    mov.u32 %r8, %ctaid.y;
    shl.b32 %r7, %r7, 4;               // first column of C
    shl.b32 %r8, %r8, 4;               // first row
    shr.u32 %r9, %r5, 1;               // row of the tile that this lane copies half of
    and.b32 %r10, %r5, 1;
    shl.b32 %r10, %r10, 3;             // first column of that half
    selp.b32 %r11, %r8, %r7, %p1;
    add.s32 %r11, %r11, %r9;           // its row in A or B
    selp.b32 %r12, %r1, %r2, %p1;
    setp.lt.s32 %p2, %r11, %r12;       // ROW EXISTS
    selp.b64 %rd4, %rd1, %rd2, %p1;
    mul.lo.s32 %r13, %r11, %r3;
    mov.u32 %r14, as;
    mov.u32 %r15, bs;
    selp.b32 %r16, %r14, %r15, %p1;
    shl.b32 %r17, %r5, 4;
    add.s32 %r16, %r16, %r17;          // where it goes
    and.b32 %r19, %r5, 15;             // ldmatrix: row and half of A
    shl.b32 %r20, %r19, 5;
    shr.u32 %r21, %r5, 4;
    shl.b32 %r21, %r21, 4;
    add.s32 %r20, %r20, %r21;
    add.s32 %r22, %r14, %r20;
    and.b32 %r23, %r5, 7;              // row and half of the warp's 8 columns of B
    shl.b32 %r24, %r6, 3;
    add.s32 %r23, %r23, %r24;
    shl.b32 %r23, %r23, 5;
    shr.u32 %r24, %r5, 3;
    and.b32 %r24, %r24, 1;
    shl.b32 %r24, %r24, 4;
    add.s32 %r23, %r23, %r24;
    add.s32 %r25, %r15, %r23;
    mov.f32 %f1, 0f00000000;
    mov.f32 %f2, 0f00000000;
    mov.f32 %f3, 0f00000000;
    mov.f32 %f4, 0f00000000;
    mov.u32 %r26, 0;                   // k of the stage to copy
    mov.u32 %r27, 0;                   // k of the stage to use
    mov.u32 %r28, 0;                   // offset of the stage to copy: 0 or 512
COPY:
    add.s32 %r29, %r26, %r10;
    setp.lt.s32 %p4, %r29, %r3;
    and.pred %p5, %p4, %p2;
    selp.b32 %r30, 16, 0, %p5;         // BYTES
    add.s32 %r32, %r13, %r29;
    selp.b32 %r32, %r32, 0, %p5;
    mad.wide.s32 %rd5, %r32, 2, %rd4;
    add.s32 %r34, %r16, %r28;
    cp.async.cg.shared.global [%r34], [%rd5], 16, %r30;
    cp.async.commit_group;
    add.s32 %r26, %r26, 16;
    xor.b32 %r28, %r28, 512;
    setp.eq.s32 %p7, %r26, 16;
    @%p7 bra COPY;                     // the first two stages at once
    cp.async.wait_group 1;             // WAIT
    bar.sync 0;                        // FILLED
    add.s32 %r37, %r22, %r28;
    add.s32 %r39, %r25, %r28;
    ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r40, %r41, %r42, %r43}, [%r37];
    ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%r44, %r45}, [%r39];
    mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32
        {%f1, %f2, %f3, %f4},
        {%r40, %r41, %r42, %r43}, {%r44, %r45},
        {%f1, %f2, %f3, %f4};
    bar.sync 0;                        // USED
    add.s32 %r27, %r27, 16;
    setp.lt.s32 %p8, %r27, %r3;
    @%p8 bra COPY;
    cp.async.wait_all;
    shr.u32 %r50, %r5, 2;
    and.b32 %r51, %r5, 3;
    shl.b32 %r51, %r51, 1;
    add.s32 %r52, %r8, %r50;           // row of the result
    add.s32 %r53, %r7, %r51;           // column
    shl.b32 %r49, %r6, 3;
    add.s32 %r53, %r53, %r49;
    add.s32 %r54, %r52, 8;
    add.s32 %r55, %r53, 1;
    setp.lt.s32 %p10, %r52, %r1;
    setp.lt.s32 %p11, %r54, %r1;
    setp.lt.s32 %p12, %r53, %r2;
    setp.lt.s32 %p13, %r55, %r2;
    mad.lo.s32 %r56, %r52, %r2, %r53;
    mad.lo.s32 %r57, %r54, %r2, %r53;
    mad.wide.s32 %rd6, %r56, 4, %rd3;
    mad.wide.s32 %rd7, %r57, 4, %rd3;
    and.pred %p14, %p10, %p12;
    and.pred %p15, %p10, %p13;
    and.pred %p16, %p11, %p12;
    and.pred %p17, %p11, %p13;
    @%p14 st.global.f32 [%rd6], %f1;
    @%p15 st.global.f32 [%rd6+4], %f2;
    @%p16 st.global.f32 [%rd7], %f3;
    @%p17 st.global.f32 [%rd7+4], %f4;
    ret;
}
"""
)

#: S[0] = the sum of A, 32 elements a block: each block writes its part to P, and the last one that counts itself in T
#: adds them up.
LAST_BLOCK = (
    PROLOGUE
    + """
.visible .entry last(.param .u64 A, .param .u64 P, .param .u64 T, .param .u64 S)
.reqntid 32, 1, 1
{
    .reg .pred %p<5>;
    .reg .b32 %r<9>;
    .reg .f32 %f<9>;
    .reg .b64 %rd<12>;
    .shared .align 4 .u32 turn[1];
    ld.param.u64 %rd1, [A];
    ld.param.u64 %rd2, [P];
    ld.param.u64 %rd3, [T];
    ld.param.u64 %rd4, [S];
    mov.u32 %r1, %tid.x;
    mov.u32 %r2, %ctaid.x;
    mov.u32 %r3, %nctaid.x;
    mad.lo.u32 %r4, %r2, 32, %r1;
    mad.wide.u32 %rd5, %r4, 4, %rd1;
    ld.global.f32 %f1, [%rd5];
    shfl.sync.bfly.b32 %f2, %f1, 16, 31, -1;
    add.f32 %f1, %f1, %f2;
    shfl.sync.bfly.b32 %f2, %f1, 8, 31, -1;
    add.f32 %f1, %f1, %f2;
    shfl.sync.bfly.b32 %f2, %f1, 4, 31, -1;
    add.f32 %f1, %f1, %f2;
    shfl.sync.bfly.b32 %f2, %f1, 2, 31, -1;
    add.f32 %f1, %f1, %f2;
    shfl.sync.bfly.b32 %f2, %f1, 1, 31, -1;
    add.f32 %f1, %f1, %f2;
    setp.ne.u32 %p1, %r1, 0;
    @%p1 bra COUNTED;
    mad.wide.u32 %rd6, %r2, 4, %rd2;
    st.global.f32 [%rd6], %f1;
    membar.gl;                         // RELEASE
    atom.global.add.u32 %r5, [%rd3], 1;
    membar.gl;                         // ACQUIRE
    st.shared.u32 [turn], %r5;
COUNTED:
    bar.sync 0;                        // TURN
    ld.shared.u32 %r6, [turn];
    add.u32 %r6, %r6, 1;
    setp.ne.u32 %p2, %r6, %r3;
    @%p2 ret;
    setp.ge.u32 %p3, %r1, %r3;
    mov.f32 %f3, 0f00000000;
    mad.wide.u32 %rd7, %r1, 4, %rd2;
    @!%p3 ld.global.f32 %f3, [%rd7];
    atom.global.add.f32 %f4, [%rd4], %f3;
    ret;
}
"""
)
