// The ops that sm_90a adds to the cuda dialect: what is written is printed again.
// RUN: ln-opt %s --columns=0 | filecheck %s
// RUN: ln-opt %s | ln-opt --columns=0 | filecheck %s

// One thread makes the mbarriers, and asks for copies; all wait.
// CHECK-LABEL: func.func @copies
func.func @copies(%x: memref<2x32x32x64xf16>, %w: memref<256x9x64xf16>) attributes {cuda.block = array<i32: 128, 1, 1>} {
  %a = cuda.shared : memref<256x64xf16, 3 : i32>
  %b = cuda.shared : memref<128x64xf16, 3 : i32>
  %m = cuda.shared : memref<4xi64, 3 : i32>
  %zero = arith.constant 0 : index
  %one = arith.constant 1 : index
  %row = arith.constant 128 : index
  %outside = arith.constant -1 : index
  %bytes = arith.constant 24576 : index
  %t = cuda.thread_id x
  %first = arith.cmpi eq, %t, %zero : index
  scf.if %first {
    // CHECK: cuda.mbarrier_init %[[M:\w+]][%{{\w+}}] count 1 : memref<4xi64, 3 : i32>
    cuda.mbarrier_init %m[%zero] count 1 : memref<4xi64, 3 : i32>
    // CHECK: cuda.mbarrier_fence
    cuda.mbarrier_fence
    // CHECK: cuda.mbarrier_expect %[[M]][%{{\w+}}], %{{\w+}} : memref<4xi64, 3 : i32>
    cuda.mbarrier_expect %m[%zero], %bytes : memref<4xi64, 3 : i32>
    // A window of the second row of pixels, its tap in the middle.
    // CHECK: cuda.tma_load %{{\w+}}[%{{\w+}}, %{{\w+}}], %{{\w+}}[%{{\w+}}, %{{\w+}}, %{{\w+}}, %{{\w+}}] offsets[%{{\w+}}, %{{\w+}}]
    // CHECK-SAME: by #cuda.im2col<128 : i64, 64 : i64, array<i64: -1, -1>, array<i64: -1, -1>, array<i64: 1, 1>>, %[[M]][%{{\w+}}] : memref<256x64xf16, 3 : i32>, memref<2x32x32x64xf16>, memref<4xi64, 3 : i32>
    cuda.tma_load %a[%row, %zero], %x[%zero, %zero, %outside, %zero] offsets [%one, %one] by #cuda.im2col<128 : i64, 64 : i64, array<i64: -1, -1>, array<i64: -1, -1>, array<i64: 1, 1>>, %m[%zero] : memref<256x64xf16, 3 : i32>, memref<2x32x32x64xf16>, memref<4xi64, 3 : i32>
    // CHECK: cuda.tma_load %{{\w+}}[%{{\w+}}, %{{\w+}}], %{{\w+}}[%{{\w+}}, %{{\w+}}, %{{\w+}}] by #cuda.tiled<array<i64: 64, 1, 64>>, %[[M]][%{{\w+}}] : memref<128x64xf16, 3 : i32>, memref<256x9x64xf16>, memref<4xi64, 3 : i32>
    cuda.tma_load %b[%zero, %zero], %w[%zero, %one, %zero] by #cuda.tiled<array<i64: 64, 1, 64>>, %m[%zero] : memref<128x64xf16, 3 : i32>, memref<256x9x64xf16>, memref<4xi64, 3 : i32>
  }
  // CHECK: cuda.mbarrier_wait %[[M]][%{{\w+}}], %{{\w+}} : memref<4xi64, 3 : i32>
  cuda.mbarrier_wait %m[%zero], %zero : memref<4xi64, 3 : i32>
  // CHECK: cuda.mbarrier_arrive %[[M]][%{{\w+}}] : memref<4xi64, 3 : i32>
  cuda.mbarrier_arrive %m[%one] : memref<4xi64, 3 : i32>
  func.return
}

// Sums that are under way go round a loop; a warp's own warpgroup says which rows it has.
// CHECK-LABEL: func.func @products
func.func @products(%y: memref<64x256xf32>) attributes {cuda.block = array<i32: 256, 1, 1>} {
  %a = cuda.shared : memref<512x64xbf16, 3 : i32>
  %b = cuda.shared : memref<256x64xbf16, 3 : i32>
  %c = arith.constant dense<0.0> : vector<16x2x2xf32>
  %zero = arith.constant 0 : index
  %one = arith.constant 1 : index
  %four = arith.constant 4 : index
  %rows = arith.constant 128 : index
  %warp = cuda.warp_id
  %group = arith.divsi %warp, %four : index
  %row = arith.muli %group, %rows : index
  // CHECK: scf.for
  %r = scf.for %i = %zero to %four step %one iter_args(%s = %c) -> (vector<16x2x2xf32>) {
    // CHECK: cuda.warpgroup_mma %{{\w+}}[%{{\w+}}], %{{\w+}}[%{{\w+}}], %{{\w+}} : memref<512x64xbf16, 3 : i32>, memref<256x64xbf16, 3 : i32>, vector<16x2x2xf32>
    %d = cuda.warpgroup_mma %a[%row], %b[%zero], %s : memref<512x64xbf16, 3 : i32>, memref<256x64xbf16, 3 : i32>, vector<16x2x2xf32>
    // CHECK: cuda.warpgroup_wait %{{\w+}} pending 1 : vector<16x2x2xf32>
    %e = cuda.warpgroup_wait %d pending 1 : vector<16x2x2xf32>
    scf.yield %e : vector<16x2x2xf32>
  }
  // CHECK: cuda.warpgroup_mma %{{\w+}}[%{{\w+}}], %{{\w+}}[%{{\w+}}], %{{\w+}} by_k :
  %t = cuda.warpgroup_mma %a[%row], %b[%rows], %c by_k : memref<512x64xbf16, 3 : i32>, memref<256x64xbf16, 3 : i32>, vector<16x2x2xf32>
  // CHECK: %{{\w+}}, %{{\w+}} = cuda.warpgroup_wait %{{\w+}}, %{{\w+}} pending 0 : vector<16x2x2xf32>, vector<16x2x2xf32>
  %u, %v = cuda.warpgroup_wait %r, %t pending 0 : vector<16x2x2xf32>, vector<16x2x2xf32>
  func.return
}
