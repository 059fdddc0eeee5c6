// How the ops of sm_90a become PTX.
// RUN: ln-opt -t cuda --emit=ptx --arch=sm_90a %s | filecheck %s

// CHECK: .version 8.0
// CHECK: .target sm_90a

// A tensor that is copied is a parameter of 128 bytes in the place of a pointer, named by its address.
// CHECK: .visible .entry product(
// CHECK: .param .align 64 .b8 product_param_0[128]
// CHECK: .param .align 64 .b8 product_param_1[128]
// CHECK: .param .u64 .ptr .global .align 64 product_param_2
// CHECK: .reqntid 128
// Rows of a stage begin at multiples of what is swizzled together, mbarriers as any memory.
// CHECK-DAG: .shared .align 1024 .b8 __product_shared0[8192]
// CHECK-DAG: .shared .align 1024 .b8 __product_shared1[8192]
// CHECK-DAG: .shared .align 128 .b8 __product_shared2[8]
// CHECK-DAG: cvta.param.u64 [[A:%rd[0-9]+]]
func.func @product(%x: memref<8x64x64xf16>, %y: memref<8x8x8x64xf16>, %z: memref<64x64xf32>) attributes {cuda.block = array<i32: 128, 1, 1>} {
  %a = cuda.shared : memref<64x64xf16, 3 : i32>
  %b = cuda.shared : memref<64x64xf16, 3 : i32>
  %m = cuda.shared : memref<1xi64, 3 : i32>
  %zero = arith.constant 0 : index
  %two = arith.constant 2 : index
  %c5 = arith.constant 5 : index
  %c6 = arith.constant 6 : index
  %c7 = arith.constant 7 : index
  %bytes = arith.constant 16384 : index
  %t = cuda.thread_id x
  %first = arith.cmpi eq, %t, %zero : index
  scf.if %first {
    // CHECK: mbarrier.init.shared::cta.b64 [%r{{[0-9]+}}], %r{{[0-9]+}};
    cuda.mbarrier_init %m[%zero] count 1 : memref<1xi64, 3 : i32>
    // CHECK: fence.mbarrier_init.release.cluster;
    // CHECK: fence.proxy.async.shared::cta;
    cuda.mbarrier_fence
    // CHECK: mov.b32 [[BYTES:%r[0-9]+]], 16384
    // CHECK: mbarrier.arrive.expect_tx.shared::cta.b64 _, [[[M:%r[0-9]+]]], [[BYTES]];
    cuda.mbarrier_expect %m[%zero], %bytes : memref<1xi64, 3 : i32>
    // The innermost coordinate comes first: 7 of [5, 6, 7].
    // CHECK-DAG: mov.b32 [[FIVE:%r[0-9]+]], 5
    // CHECK-DAG: mov.b32 [[SIX:%r[0-9]+]], 6
    // CHECK-DAG: mov.b32 [[SEVEN:%r[0-9]+]], 7
    // CHECK: cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r{{[0-9]+}}], [%rd{{[0-9]+}}, {[[SEVEN]], [[SIX]], [[FIVE]]}], [[[M]]];
    cuda.tma_load %a[%zero, %zero], %x[%c5, %c6, %c7] by #cuda.tiled<array<i64: 1, 64, 64>>, %m[%zero] : memref<64x64xf16, 3 : i32>, memref<8x64x64xf16>, memref<1xi64, 3 : i32>
    // So do the offsets in the window: that along columns, 6, before that along rows.
    // CHECK-DAG: mov.b16 [[DX:%rs[0-9]+]], 6
    // CHECK-DAG: mov.b16 [[DY:%rs[0-9]+]], 2
    // CHECK: cp.async.bulk.tensor.4d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes [%r{{[0-9]+}}], [%rd{{[0-9]+}}, {[[SIX]], [[FIVE]], [[SEVEN]], [[SIX]]}], [[[M]]], {[[DX]], [[DY]]};
    cuda.tma_load %b[%zero, %zero], %y[%c6, %c7, %c5, %c6] offsets [%two, %c6] by #cuda.im2col<64 : i64, 64 : i64, array<i64: -1, -1>, array<i64: 1, 1>, array<i64: 1, 1>>, %m[%zero] : memref<64x64xf16, 3 : i32>, memref<8x8x8x64xf16>, memref<1xi64, 3 : i32>
  }
  cuda.barrier
  // CHECK: bar.sync
  // CHECK: WAIT_[[N:[0-9]+]]:
  // CHECK-NEXT: mbarrier.try_wait.parity.shared::cta.b64 %ended, [%r{{[0-9]+}}], %r{{[0-9]+}};
  // CHECK-NEXT: @!%ended bra WAIT_[[N]];
  cuda.mbarrier_wait %m[%zero], %zero : memref<1xi64, 3 : i32>
  // Of an address a descriptor has 14 bits, in units of 16 bytes (and of rows that begin at multiples of 1024 bytes, 6 are zeros).
  // CHECK: shr.u32 [[UNITS:%r[0-9]+]], %r{{[0-9]+}}, 4
  // CHECK-NEXT: and.b32 [[START:%r[0-9]+]], [[UNITS]], 16320
  // CHECK-NEXT: cvt.u64.u32 %rd{{[0-9]+}}, [[START]]
  // A product is four of 16 k each; those that stand behind each other are begun without a pause, each a group of its own.
  // CHECK: wgmma.fence.sync.aligned;
  // CHECK-NEXT: wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {[[R:%r[0-9]+]], %r{{[0-9]+}}, %r{{[0-9]+}}, %r{{[0-9]+}}}, %rd{{[0-9]+}}, %rd{{[0-9]+}}, 1, 1, 1, 0, 0;
  // CHECK-NEXT: wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {[[R]],
  // CHECK-NEXT: wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {[[R]],
  // CHECK-NEXT: wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {[[R]],
  // CHECK-NEXT: wgmma.commit_group.sync.aligned;
  %c = arith.constant dense<0.0> : vector<1x2x2xf32>
  %d = cuda.warpgroup_mma %a[%zero], %b[%zero], %c : memref<64x64xf16, 3 : i32>, memref<64x64xf16, 3 : i32>, vector<1x2x2xf32>
  // CHECK-NEXT: wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%r{{.*}}}, %rd{{[0-9]+}}, %rd{{[0-9]+}}, 1, 1, 1, 0, 1;
  // CHECK: wgmma.commit_group.sync.aligned;
  // CHECK: wgmma.wait_group.sync.aligned 0;
  %row = arith.muli %zero, %two : index
  %e = cuda.warpgroup_mma %a[%row], %b[%row], %c by_k : memref<64x64xf16, 3 : i32>, memref<64x64xf16, 3 : i32>, vector<1x2x2xf32>
  %f, %g = cuda.warpgroup_wait %d, %e pending 0 : vector<1x2x2xf32>, vector<1x2x2xf32>
  %v = vector.extract %g[0, 1, 1] : f32 from vector<1x2x2xf32>
  // CHECK: st.global.b32
  memref.store %v, %z[%zero, %t] : memref<64x64xf32>
  func.return
}
