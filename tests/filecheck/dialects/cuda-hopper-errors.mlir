// Each constraint on one op of those that sm_90a adds to the cuda dialect, violated. What holds of whole kernels is in tests/backends/cuda/test_cuda_hopper.py.
// RUN: ln-opt --split-input-file --verify-diagnostics %s

// An mbarrier in memory that threads do not share.
func.func @k(%x: memref<4xi64>) attributes {cuda.block = array<i32: 128, 1, 1>} {
  %zero = arith.constant 0 : index
  // expected-error@+1 {{the mbarriers: expected a memref in shared memory}}
  cuda.mbarrier_arrive %x[%zero] : memref<4xi64>
  func.return
}

// -----

func.func @k() attributes {cuda.block = array<i32: 128, 1, 1>} {
  %zero = arith.constant 0 : index
  %n = cuda.shared : memref<4xi32, 3 : i32>
  // expected-error@+1 {{mbarriers are a memref<…xi64> of one dimension}}
  cuda.mbarrier_arrive %n[%zero] : memref<4xi32, 3 : i32>
  func.return
}

// -----

func.func @k() attributes {cuda.block = array<i32: 128, 1, 1>} {
  %zero = arith.constant 0 : index
  %all = cuda.shared : memref<64xi8, 3 : i32>
  %n = memref.view %all[%zero][] : memref<64xi8, 3 : i32> to memref<4xi64, 3 : i32>
  // expected-error@+1 {{the mbarriers: expected the result of a cuda.shared itself}}
  cuda.mbarrier_arrive %n[%zero] : memref<4xi64, 3 : i32>
  func.return
}

// -----

func.func @k() attributes {cuda.block = array<i32: 128, 1, 1>} {
  %m = cuda.shared : memref<4xi64, 3 : i32>
  %eight = arith.constant 8 : index
  // expected-error@+1 {{an mbarrier's index is 0 to 3, not 8}}
  cuda.mbarrier_arrive %m[%eight] : memref<4xi64, 3 : i32>
  func.return
}

// -----

func.func @k() attributes {cuda.block = array<i32: 128, 1, 1>} {
  %m = cuda.shared : memref<4xi64, 3 : i32>
  %zero = arith.constant 0 : index
  // expected-error@+1 {{a phase waits for 1 to 1048575 arrivals, not 0}}
  cuda.mbarrier_init %m[%zero] count 0 : memref<4xi64, 3 : i32>
  func.return
}

// -----

func.func @k() attributes {cuda.block = array<i32: 128, 1, 1>} {
  %m = cuda.shared : memref<4xi64, 3 : i32>
  %zero = arith.constant 0 : index
  // expected-error@+1 {{a phase waits for 1 to 1048575 arrivals, not 1048576}}
  cuda.mbarrier_init %m[%zero] count 1048576 : memref<4xi64, 3 : i32>
  func.return
}

// -----

func.func @k() attributes {cuda.block = array<i32: 128, 1, 1>} {
  %m = cuda.shared : memref<4xi64, 3 : i32>
  %zero = arith.constant 0 : index
  %many = arith.constant 2000000 : index
  // expected-error@+1 {{the number of bytes that a phase waits for is 0 to 1048575, not 2000000}}
  cuda.mbarrier_expect %m[%zero], %many : memref<4xi64, 3 : i32>
  func.return
}

// -----

func.func @k() attributes {cuda.block = array<i32: 128, 1, 1>} {
  %m = cuda.shared : memref<4xi64, 3 : i32>
  %zero = arith.constant 0 : index
  %eight = arith.constant 8 : index
  // expected-error@+1 {{the parity of a phase is 0 to 1, not 8}}
  cuda.mbarrier_wait %m[%zero], %eight : memref<4xi64, 3 : i32>
  func.return
}

// -----

func.func @k() {
  // expected-error@+1 {{it stands in no kernel}}
  cuda.mbarrier_fence
  func.return
}

// -----

// What is copied is an argument, so that there is a tensor map of it.
func.func @k() attributes {cuda.block = array<i32: 128, 1, 1>} {
  %m = cuda.shared : memref<4xi64, 3 : i32>
  %a = cuda.shared : memref<128x64xf16, 3 : i32>
  %zero = arith.constant 0 : index
  %x = memref.alloca() : memref<1x64x64xf16>
  // expected-error@+1 {{the source: expected an argument of the kernel}}
  cuda.tma_load %a[%zero, %zero], %x[%zero, %zero, %zero] by #cuda.tiled<array<i64: 1, 64, 64>>, %m[%zero] : memref<128x64xf16, 3 : i32>, memref<1x64x64xf16>, memref<4xi64, 3 : i32>
  func.return
}

// -----

func.func @k(%x: memref<64xf16>) attributes {cuda.block = array<i32: 128, 1, 1>} {
  %m = cuda.shared : memref<4xi64, 3 : i32>
  %a = cuda.shared : memref<128x64xf16, 3 : i32>
  %zero = arith.constant 0 : index
  // expected-error@+1 {{a tensor of 2 to 5 dimensions is copied, not one of 1}}
  cuda.tma_load %a[%zero, %zero], %x[%zero] by #cuda.tiled<array<i64: 64>>, %m[%zero] : memref<128x64xf16, 3 : i32>, memref<64xf16>, memref<4xi64, 3 : i32>
  func.return
}

// -----

func.func @k(%x: memref<1x1x1x1x1x64xf16>) attributes {cuda.block = array<i32: 128, 1, 1>} {
  %m = cuda.shared : memref<4xi64, 3 : i32>
  %a = cuda.shared : memref<128x64xf16, 3 : i32>
  %zero = arith.constant 0 : index
  // expected-error@+1 {{6 dimensions}}
  cuda.tma_load %a[%zero, %zero], %x[%zero, %zero, %zero, %zero, %zero, %zero] by #cuda.tiled<array<i64: 1, 1, 1, 1, 1, 64>>, %m[%zero] : memref<128x64xf16, 3 : i32>, memref<1x1x1x1x1x64xf16>, memref<4xi64, 3 : i32>
  func.return
}

// -----

// A line of the tensor is no multiple of 16 bytes.
func.func @k(%x: memref<1x64x65xf16>) attributes {cuda.block = array<i32: 128, 1, 1>} {
  %m = cuda.shared : memref<4xi64, 3 : i32>
  %a = cuda.shared : memref<128x64xf16, 3 : i32>
  %zero = arith.constant 0 : index
  // expected-error@+1 {{a stride of 130 bytes: a multiple of 16}}
  cuda.tma_load %a[%zero, %zero], %x[%zero, %zero, %zero] by #cuda.tiled<array<i64: 1, 64, 64>>, %m[%zero] : memref<128x64xf16, 3 : i32>, memref<1x64x65xf16>, memref<4xi64, 3 : i32>
  func.return
}

// -----

func.func @k(%x: memref<1x64x64xf16>) attributes {cuda.block = array<i32: 128, 1, 1>} {
  %m = cuda.shared : memref<4xi64, 3 : i32>
  %a = cuda.shared : memref<128x64xf16, 3 : i32>
  %zero = arith.constant 0 : index
  // expected-error@+1 {{the extents of a box: expected 3 integers}}
  cuda.tma_load %a[%zero, %zero], %x[%zero, %zero, %zero] by #cuda.tiled<array<i64: 64, 64>>, %m[%zero] : memref<128x64xf16, 3 : i32>, memref<1x64x64xf16>, memref<4xi64, 3 : i32>
  func.return
}

// -----

func.func @k(%x: memref<1x64x64xf16>) attributes {cuda.block = array<i32: 128, 1, 1>} {
  %m = cuda.shared : memref<4xi64, 3 : i32>
  %a = cuda.shared : memref<128x64xf16, 3 : i32>
  %zero = arith.constant 0 : index
  // expected-error@+1 {{3 extents of 1 to 256}}
  cuda.tma_load %a[%zero, %zero], %x[%zero, %zero, %zero] by #cuda.tiled<array<i64: 1, 300, 64>>, %m[%zero] : memref<128x64xf16, 3 : i32>, memref<1x64x64xf16>, memref<4xi64, 3 : i32>
  func.return
}

// -----

func.func @k(%x: memref<1x64x64xf16>) attributes {cuda.block = array<i32: 128, 1, 1>} {
  %m = cuda.shared : memref<4xi64, 3 : i32>
  %a = cuda.shared : memref<128x64xf16, 3 : i32>
  %zero = arith.constant 0 : index
  // expected-error@+1 {{rows of a stage have 64 elements, and the map takes 32}}
  cuda.tma_load %a[%zero, %zero], %x[%zero, %zero, %zero] by #cuda.tiled<array<i64: 1, 64, 32>>, %m[%zero] : memref<128x64xf16, 3 : i32>, memref<1x64x64xf16>, memref<4xi64, 3 : i32>
  func.return
}

// -----

func.func @k(%x: memref<1x64x64xf16>) attributes {cuda.block = array<i32: 128, 1, 1>} {
  %m = cuda.shared : memref<4xi64, 3 : i32>
  %a = cuda.shared : memref<128x64xf16, 3 : i32>
  %zero = arith.constant 0 : index
  // expected-error@+1 {{the source: expected 3 indices, got 2}}
  cuda.tma_load %a[%zero, %zero], %x[%zero, %zero] by #cuda.tiled<array<i64: 1, 64, 64>>, %m[%zero] : memref<128x64xf16, 3 : i32>, memref<1x64x64xf16>, memref<4xi64, 3 : i32>
  func.return
}

// -----

func.func @k(%x: memref<1x64x64xf16>) attributes {cuda.block = array<i32: 128, 1, 1>} {
  %m = cuda.shared : memref<4xi64, 3 : i32>
  %a = cuda.shared : memref<128x64xf16, 3 : i32>
  %zero = arith.constant 0 : index
  // expected-error@+1 {{by im2col alone: expected 0, got 2}}
  cuda.tma_load %a[%zero, %zero], %x[%zero, %zero, %zero] offsets[%zero, %zero] by #cuda.tiled<array<i64: 1, 64, 64>>, %m[%zero] : memref<128x64xf16, 3 : i32>, memref<1x64x64xf16>, memref<4xi64, 3 : i32>
  func.return
}

// -----

func.func @k(%x: memref<2x8x8x64xf16>) attributes {cuda.block = array<i32: 128, 1, 1>} {
  %m = cuda.shared : memref<4xi64, 3 : i32>
  %a = cuda.shared : memref<128x64xf16, 3 : i32>
  %zero = arith.constant 0 : index
  // expected-error@+1 {{by im2col alone: expected 2, got 0}}
  cuda.tma_load %a[%zero, %zero], %x[%zero, %zero, %zero, %zero] by #cuda.im2col<64 : i64, 64 : i64, array<i64: -1, -1>, array<i64: -1, -1>, array<i64: 1, 1>>, %m[%zero] : memref<128x64xf16, 3 : i32>, memref<2x8x8x64xf16>, memref<4xi64, 3 : i32>
  func.return
}

// -----

func.func @k(%x: memref<2x8x8x64xf16>) attributes {cuda.block = array<i32: 128, 1, 1>} {
  %m = cuda.shared : memref<4xi64, 3 : i32>
  %a = cuda.shared : memref<128x64xf16, 3 : i32>
  %zero = arith.constant 0 : index
  %many = arith.constant 2000000 : index
  // expected-error@+1 {{the offset of a tap is 0 to 255, not 2000000}}
  cuda.tma_load %a[%zero, %zero], %x[%zero, %zero, %zero, %zero] offsets[%zero, %many] by #cuda.im2col<64 : i64, 64 : i64, array<i64: -1, -1>, array<i64: -1, -1>, array<i64: 1, 1>>, %m[%zero] : memref<128x64xf16, 3 : i32>, memref<2x8x8x64xf16>, memref<4xi64, 3 : i32>
  func.return
}

// -----

func.func @k(%x: memref<8x8x64xf16>) attributes {cuda.block = array<i32: 128, 1, 1>} {
  %m = cuda.shared : memref<4xi64, 3 : i32>
  %a = cuda.shared : memref<128x64xf16, 3 : i32>
  %zero = arith.constant 0 : index
  // expected-error@+1 {{of a tensor of 3 dimensions: expected 4, [N, H, W, C]}}
  cuda.tma_load %a[%zero, %zero], %x[%zero, %zero, %zero, %zero] offsets[%zero, %zero] by #cuda.im2col<64 : i64, 64 : i64, array<i64: -1, -1>, array<i64: -1, -1>, array<i64: 1, 1>>, %m[%zero] : memref<128x64xf16, 3 : i32>, memref<8x8x64xf16>, memref<4xi64, 3 : i32>
  func.return
}

// -----

func.func @k(%x: memref<2x8x8x64xf16>) attributes {cuda.block = array<i32: 128, 1, 1>} {
  %m = cuda.shared : memref<4xi64, 3 : i32>
  %a = cuda.shared : memref<128x64xf16, 3 : i32>
  %zero = arith.constant 0 : index
  // expected-error@+1 {{a tensor map of 2000 windows}}
  cuda.tma_load %a[%zero, %zero], %x[%zero, %zero, %zero, %zero] offsets[%zero, %zero] by #cuda.im2col<2000 : i64, 64 : i64, array<i64: -1, -1>, array<i64: -1, -1>, array<i64: 1, 1>>, %m[%zero] : memref<128x64xf16, 3 : i32>, memref<2x8x8x64xf16>, memref<4xi64, 3 : i32>
  func.return
}

// -----

func.func @k(%x: memref<2x8x8x64xf16>) attributes {cuda.block = array<i32: 128, 1, 1>} {
  %m = cuda.shared : memref<4xi64, 3 : i32>
  %a = cuda.shared : memref<128x64xf16, 3 : i32>
  %zero = arith.constant 0 : index
  // expected-error@+1 {{rows of a stage have 64 elements, and the map takes 32}}
  cuda.tma_load %a[%zero, %zero], %x[%zero, %zero, %zero, %zero] offsets[%zero, %zero] by #cuda.im2col<64 : i64, 32 : i64, array<i64: -1, -1>, array<i64: -1, -1>, array<i64: 1, 1>>, %m[%zero] : memref<128x64xf16, 3 : i32>, memref<2x8x8x64xf16>, memref<4xi64, 3 : i32>
  func.return
}

// -----

func.func @k(%x: memref<2x8x8x64xf16>) attributes {cuda.block = array<i32: 128, 1, 1>} {
  %m = cuda.shared : memref<4xi64, 3 : i32>
  %a = cuda.shared : memref<128x64xf16, 3 : i32>
  %zero = arith.constant 0 : index
  // expected-error@+1 {{each is -128 to 127}}
  cuda.tma_load %a[%zero, %zero], %x[%zero, %zero, %zero, %zero] offsets[%zero, %zero] by #cuda.im2col<64 : i64, 64 : i64, array<i64: -129, 0>, array<i64: -1, -1>, array<i64: 1, 1>>, %m[%zero] : memref<128x64xf16, 3 : i32>, memref<2x8x8x64xf16>, memref<4xi64, 3 : i32>
  func.return
}

// -----

func.func @k(%x: memref<2x8x8x64xf16>) attributes {cuda.block = array<i32: 128, 1, 1>} {
  %m = cuda.shared : memref<4xi64, 3 : i32>
  %a = cuda.shared : memref<128x64xf16, 3 : i32>
  %zero = arith.constant 0 : index
  // expected-error@+1 {{each is 1 to 8}}
  cuda.tma_load %a[%zero, %zero], %x[%zero, %zero, %zero, %zero] offsets[%zero, %zero] by #cuda.im2col<64 : i64, 64 : i64, array<i64: -1, -1>, array<i64: -1, -1>, array<i64: 1, 9>>, %m[%zero] : memref<128x64xf16, 3 : i32>, memref<2x8x8x64xf16>, memref<4xi64, 3 : i32>
  func.return
}

// -----

func.func @k(%x: memref<2x8x8x64xf16>) attributes {cuda.block = array<i32: 128, 1, 1>} {
  %m = cuda.shared : memref<4xi64, 3 : i32>
  %a = cuda.shared : memref<128x64xf16, 3 : i32>
  %zero = arith.constant 0 : index
  // expected-error@+1 {{of rows and columns: expected 2 integers}}
  cuda.tma_load %a[%zero, %zero], %x[%zero, %zero, %zero, %zero] offsets[%zero, %zero] by #cuda.im2col<64 : i64, 64 : i64, array<i64: -1, -1>, array<i64: -1, -1>, array<i64: 1, 1, 1>>, %m[%zero] : memref<128x64xf16, 3 : i32>, memref<2x8x8x64xf16>, memref<4xi64, 3 : i32>
  func.return
}

// -----

func.func @k(%x: memref<1x64x64xf16>) attributes {cuda.block = array<i32: 128, 1, 1>} {
  %m = cuda.shared : memref<4xi64, 3 : i32>
  %zero = arith.constant 0 : index
  %n = cuda.shared : memref<64x32xf16, 3 : i32>
  // expected-error@+1 {{the destination: expected rows of 128 bytes}}
  cuda.tma_load %n[%zero, %zero], %x[%zero, %zero, %zero] by #cuda.tiled<array<i64: 1, 64, 64>>, %m[%zero] : memref<64x32xf16, 3 : i32>, memref<1x64x64xf16>, memref<4xi64, 3 : i32>
  func.return
}

// -----

func.func @k(%x: memref<1x64x64xf16>) attributes {cuda.block = array<i32: 128, 1, 1>} {
  %m = cuda.shared : memref<4xi64, 3 : i32>
  %zero = arith.constant 0 : index
  %n = cuda.shared : memref<32x64xf16, 3 : i32>
  // expected-error@+1 {{the destination: 64 rows are taken, and memref<32x64xf16, 3 : i32> has 32}}
  cuda.tma_load %n[%zero, %zero], %x[%zero, %zero, %zero] by #cuda.tiled<array<i64: 1, 64, 64>>, %m[%zero] : memref<32x64xf16, 3 : i32>, memref<1x64x64xf16>, memref<4xi64, 3 : i32>
  func.return
}

// -----

func.func @k(%x: memref<1x64x64xf16>) attributes {cuda.block = array<i32: 128, 1, 1>} {
  %m = cuda.shared : memref<4xi64, 3 : i32>
  %a = cuda.shared : memref<128x64xf16, 3 : i32>
  %zero = arith.constant 0 : index
  %off = arith.constant 72 : index
  // expected-error@+1 {{the destination: the first of 64 rows is 0 to 64, not 72}}
  cuda.tma_load %a[%off, %zero], %x[%zero, %zero, %zero] by #cuda.tiled<array<i64: 1, 64, 64>>, %m[%zero] : memref<128x64xf16, 3 : i32>, memref<1x64x64xf16>, memref<4xi64, 3 : i32>
  func.return
}

// -----

// Eight rows are swizzled together.
func.func @k(%x: memref<1x64x64xf16>) attributes {cuda.block = array<i32: 128, 1, 1>} {
  %m = cuda.shared : memref<4xi64, 3 : i32>
  %a = cuda.shared : memref<128x64xf16, 3 : i32>
  %zero = arith.constant 0 : index
  %one = arith.constant 1 : index
  // expected-error@+1 {{the first row has to be a multiple of 8}}
  cuda.tma_load %a[%one, %zero], %x[%zero, %zero, %zero] by #cuda.tiled<array<i64: 1, 64, 64>>, %m[%zero] : memref<128x64xf16, 3 : i32>, memref<1x64x64xf16>, memref<4xi64, 3 : i32>
  func.return
}

// -----

func.func @k(%x: memref<1x64x64xf16>) attributes {cuda.block = array<i32: 128, 1, 1>} {
  %m = cuda.shared : memref<4xi64, 3 : i32>
  %a = cuda.shared : memref<128x64xf16, 3 : i32>
  %zero = arith.constant 0 : index
  %one = arith.constant 1 : index
  // expected-error@+1 {{the destination: expected two indices, a row and 0}}
  cuda.tma_load %a[%zero, %one], %x[%zero, %zero, %zero] by #cuda.tiled<array<i64: 1, 64, 64>>, %m[%zero] : memref<128x64xf16, 3 : i32>, memref<1x64x64xf16>, memref<4xi64, 3 : i32>
  func.return
}

// -----

func.func @k(%x: memref<1x64x64xf16>) attributes {cuda.block = array<i32: 128, 1, 1>} {
  %m = cuda.shared : memref<4xi64, 3 : i32>
  %b = cuda.shared : memref<128x64xbf16, 3 : i32>
  %zero = arith.constant 0 : index
  // expected-error@+1 {{element types differ}}
  cuda.tma_load %b[%zero, %zero], %x[%zero, %zero, %zero] by #cuda.tiled<array<i64: 1, 64, 64>>, %m[%zero] : memref<128x64xbf16, 3 : i32>, memref<1x64x64xf16>, memref<4xi64, 3 : i32>
  func.return
}

// -----

// A warpgroup is four warps.
func.func @k() attributes {cuda.block = array<i32: 96, 1, 1>} {
  %a = cuda.shared : memref<128x64xf16, 3 : i32>
  %zero = arith.constant 0 : index
  %c = arith.constant dense<0.0> : vector<8x2x2xf32>
  // expected-error@+1 {{a block of 96 threads is no multiple of 128}}
  %d = cuda.warpgroup_mma %a[%zero], %a[%zero], %c : memref<128x64xf16, 3 : i32>, memref<128x64xf16, 3 : i32>, vector<8x2x2xf32>
  func.return
}

// -----

func.func @k() attributes {cuda.block = array<i32: 128, 1, 1>} {
  %a = cuda.shared : memref<128x64xf16, 3 : i32>
  %zero = arith.constant 0 : index
  %c = arith.constant dense<0.0> : vector<8x2x2xf32>
  %lane = cuda.lane_id
  %cond = arith.cmpi eq, %lane, %zero : index
  scf.if %cond {
    // expected-error@+1 {{it stands under scf.if, which depends on cuda.lane_id}}
    %d = cuda.warpgroup_mma %a[%zero], %a[%zero], %c : memref<128x64xf16, 3 : i32>, memref<128x64xf16, 3 : i32>, vector<8x2x2xf32>
  }
  func.return
}

// -----

func.func @k() attributes {cuda.block = array<i32: 128, 1, 1>} {
  %a = cuda.shared : memref<128x64xf16, 3 : i32>
  %zero = arith.constant 0 : index
  %n = arith.constant dense<0.0> : vector<8x2x1xf32>
  // expected-error@+1 {{sums of C are a vector<n x 2 x 2 x f32>}}
  %d = cuda.warpgroup_mma %a[%zero], %a[%zero], %n : memref<128x64xf16, 3 : i32>, memref<128x64xf16, 3 : i32>, vector<8x2x1xf32>
  func.return
}

// -----

func.func @k() attributes {cuda.block = array<i32: 128, 1, 1>} {
  %a = cuda.shared : memref<128x64xf16, 3 : i32>
  %zero = arith.constant 0 : index
  %n = arith.constant dense<0.0> : vector<33x2x2xf32>
  // expected-error@+1 {{n a part of 8 columns and at most 32}}
  %d = cuda.warpgroup_mma %a[%zero], %a[%zero], %n : memref<128x64xf16, 3 : i32>, memref<128x64xf16, 3 : i32>, vector<33x2x2xf32>
  func.return
}

// -----

func.func @k() attributes {cuda.block = array<i32: 128, 1, 1>} {
  %a = cuda.shared : memref<128x64xf16, 3 : i32>
  %b = cuda.shared : memref<128x64xbf16, 3 : i32>
  %zero = arith.constant 0 : index
  %c = arith.constant dense<0.0> : vector<8x2x2xf32>
  // expected-error@+1 {{the types of A and B differ: f16 and bf16}}
  %d = cuda.warpgroup_mma %a[%zero], %b[%zero], %c : memref<128x64xf16, 3 : i32>, memref<128x64xbf16, 3 : i32>, vector<8x2x2xf32>
  func.return
}

// -----

func.func @k() attributes {cuda.block = array<i32: 128, 1, 1>} {
  %a = cuda.shared : memref<128x64xf16, 3 : i32>
  %zero = arith.constant 0 : index
  %c = arith.constant dense<0.0> : vector<8x2x2xf32>
  %n = cuda.shared : memref<64x64xf32, 3 : i32>
  // expected-error@+1 {{A: expected rows of 128 bytes of f16 or bf16}}
  %d = cuda.warpgroup_mma %n[%zero], %a[%zero], %c : memref<64x64xf32, 3 : i32>, memref<128x64xf16, 3 : i32>, vector<8x2x2xf32>
  func.return
}

// -----

// By k, the first row of B is that of 64 k.
func.func @k() attributes {cuda.block = array<i32: 128, 1, 1>} {
  %a = cuda.shared : memref<128x64xf16, 3 : i32>
  %zero = arith.constant 0 : index
  %eight = arith.constant 8 : index
  %c = arith.constant dense<0.0> : vector<8x2x2xf32>
  // expected-error@+1 {{B: the first row has to be a multiple of 64}}
  %d = cuda.warpgroup_mma %a[%zero], %a[%eight], %c by_k : memref<128x64xf16, 3 : i32>, memref<128x64xf16, 3 : i32>, vector<8x2x2xf32>
  func.return
}

// -----

func.func @k() attributes {cuda.block = array<i32: 128, 1, 1>} {
  %a = cuda.shared : memref<128x64xf16, 3 : i32>
  %zero = arith.constant 0 : index
  %off = arith.constant 72 : index
  %c = arith.constant dense<0.0> : vector<8x2x2xf32>
  // expected-error@+1 {{B: the first of 64 rows is 0 to 64, not 72}}
  %d = cuda.warpgroup_mma %a[%zero], %a[%off], %c : memref<128x64xf16, 3 : i32>, memref<128x64xf16, 3 : i32>, vector<8x2x2xf32>
  func.return
}

// -----

// The rows of a warpgroup are those of all its threads.
func.func @k() attributes {cuda.block = array<i32: 128, 1, 1>} {
  %a = cuda.shared : memref<128x64xf16, 3 : i32>
  %zero = arith.constant 0 : index
  %c = arith.constant dense<0.0> : vector<8x2x2xf32>
  %lane = cuda.lane_id
  %rows = arith.constant 8 : index
  %row = arith.muli %lane, %rows : index
  // expected-error@+1 {{A: the first row is the same in a warpgroup, and this one depends on cuda.lane_id}}
  %d = cuda.warpgroup_mma %a[%row], %a[%zero], %c : memref<128x64xf16, 3 : i32>, memref<128x64xf16, 3 : i32>, vector<8x2x2xf32>
  func.return
}

// -----

func.func @k() attributes {cuda.block = array<i32: 128, 1, 1>} {
  %c = arith.constant dense<0.0> : vector<8x2x2xf32>
  // expected-error@+1 {{the products still under way are 0 to 7, not 8}}
  %d = cuda.warpgroup_wait %c pending 8 : vector<8x2x2xf32>
  func.return
}

// -----

func.func @k() attributes {cuda.block = array<i32: 128, 1, 1>} {
  %n = arith.constant dense<0.0> : vector<4xf32>
  // expected-error@+1 {{sums of C are}}
  %d = cuda.warpgroup_wait %n pending 0 : vector<4xf32>
  func.return
}

// -----

// Parameters of an attribute that are missing, or too many.
func.func @k(%x: memref<1x64x64xf16>) attributes {cuda.block = array<i32: 128, 1, 1>} {
  %m = cuda.shared : memref<4xi64, 3 : i32>
  %a = cuda.shared : memref<128x64xf16, 3 : i32>
  %zero = arith.constant 0 : index
  // expected-error@+1 {{#cuda.tiled takes 1 parameters (box), got 3}}
  cuda.tma_load %a[%zero, %zero], %x[%zero, %zero, %zero] by #cuda.tiled<1, 64, 64>, %m[%zero] : memref<128x64xf16, 3 : i32>, memref<1x64x64xf16>, memref<4xi64, 3 : i32>
  func.return
}

// -----

func.func @k(%x: memref<2x8x8x64xf16>) attributes {cuda.block = array<i32: 128, 1, 1>} {
  %m = cuda.shared : memref<4xi64, 3 : i32>
  %a = cuda.shared : memref<128x64xf16, 3 : i32>
  %zero = arith.constant 0 : index
  // expected-error@+1 {{#cuda.im2col takes 5 parameters (pixels, channels, lower, upper, strides), got 2}}
  cuda.tma_load %a[%zero, %zero], %x[%zero, %zero, %zero, %zero] offsets[%zero, %zero] by #cuda.im2col<64 : i64, 64 : i64>, %m[%zero] : memref<128x64xf16, 3 : i32>, memref<2x8x8x64xf16>, memref<4xi64, 3 : i32>
  func.return
}
