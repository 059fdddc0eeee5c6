// The ops of the cuda dialect: what is written is printed again.
// RUN: ln-opt %s | filecheck %s
// RUN: ln-opt %s | ln-opt | filecheck %s

// Where a thread stands.
// CHECK-LABEL: func.func @ids
// CHECK-SAME: attributes {cuda.block = array<i32: 32, 4, 1>}
func.func @ids(%x: memref<64xf32>) attributes {cuda.block = array<i32: 32, 4, 1>} {
  // CHECK: cuda.thread_id x
  %t = cuda.thread_id x
  // CHECK: cuda.block_id y
  %b = cuda.block_id y
  // CHECK: cuda.block_dim z
  %n = cuda.block_dim z
  // CHECK: cuda.grid_dim x
  %g = cuda.grid_dim x
  // CHECK: cuda.lane_id
  %l = cuda.lane_id
  // CHECK: cuda.warp_id
  %w = cuda.warp_id
  func.return
}

// Shared memory, a barrier that all threads reach (the loop's bounds are the same for all), and shuffles under a condition that is the same
// for the lanes of a warp.
// CHECK-LABEL: func.func @together
func.func @together(%x: memref<64xf32>) attributes {cuda.block = array<i32: 64, 1, 1>} {
  // CHECK: cuda.shared : memref<64x17xf32, 3 : i32>
  %s = cuda.shared : memref<64x17xf32, 3 : i32>
  %zero = arith.constant 0 : index
  %one = arith.constant 1 : index
  %two = arith.constant 2 : index
  %n = cuda.grid_dim x
  %w = cuda.warp_id
  %t = cuda.thread_id x
  // CHECK: scf.for
  scf.for %i = %zero to %n step %one {
    // CHECK: cuda.barrier
    cuda.barrier
  }
  %v = memref.load %x[%t] : memref<64xf32>
  %first = arith.cmpi eq, %w, %zero : index
  scf.if %first {
    // CHECK: cuda.shuffle xor %{{.*}}, %{{.*}} : f32
    %a = cuda.shuffle xor %v, %one : f32
    // CHECK: cuda.shuffle up
    %b = cuda.shuffle up %v, %two : f32
    // CHECK: cuda.shuffle down
    %c = cuda.shuffle down %v, %two : f32
    %k = arith.index_cast %t : index to i32
    // CHECK: cuda.shuffle idx %{{.*}}, %{{.*}} : i32
    %d = cuda.shuffle idx %k, %zero : i32
  }
  func.return
}

// Asynchronous copies and tensor cores.
// CHECK-LABEL: func.func @matrix
func.func @matrix(%x: memref<64x64xf16>) attributes {cuda.block = array<i32: 32, 1, 1>} {
  %s = cuda.shared : memref<64x64xf16, 3 : i32>
  %t = cuda.thread_id x
  %c8 = arith.constant 8 : index
  %c = arith.remui %t, %c8 : index
  %col = arith.muli %c, %c8 : index
  %size = arith.constant 4 : index
  // CHECK: cuda.async_copy %{{.*}}[%{{.*}}, %{{.*}}], %{{.*}}[%{{.*}}, %{{.*}}] bytes 16 : memref<64x64xf16, 3 : i32>, memref<64x64xf16>
  cuda.async_copy %s[%t, %col], %x[%t, %col] bytes 16 : memref<64x64xf16, 3 : i32>, memref<64x64xf16>
  // CHECK: cuda.async_copy {{.*}} bytes 8 size %{{.*}} : memref<64x64xf16, 3 : i32>, memref<64x64xf16>
  cuda.async_copy %s[%t, %col], %x[%t, %col] bytes 8 size %size : memref<64x64xf16, 3 : i32>, memref<64x64xf16>
  // CHECK: cuda.async_commit
  cuda.async_commit
  // CHECK: cuda.async_wait 0
  cuda.async_wait 0
  cuda.barrier
  // CHECK: cuda.ldmatrix %{{.*}}[%{{.*}}, %{{.*}}] tiles 4 : memref<64x64xf16, 3 : i32>, vector<4x2xf16>
  %a = cuda.ldmatrix %s[%t, %col] tiles 4 : memref<64x64xf16, 3 : i32>, vector<4x2xf16>
  // CHECK: cuda.ldmatrix {{.*}} tiles 2 trans : memref<64x64xf16, 3 : i32>, vector<2x2xf16>
  %b = cuda.ldmatrix %s[%t, %col] tiles 2 trans : memref<64x64xf16, 3 : i32>, vector<2x2xf16>
  %z = arith.constant dense<0.0> : vector<2x2xf32>
  // CHECK: cuda.mma %{{.*}}, %{{.*}}, %{{.*}} : vector<4x2xf16>, vector<2x2xf16>, vector<2x2xf32>
  %d = cuda.mma %a, %b, %z : vector<4x2xf16>, vector<2x2xf16>, vector<2x2xf32>
  %f = arith.constant 1.5 : f32
  // CHECK: cuda.round_tf32 %{{.*}} : f32
  %q = cuda.round_tf32 %f : f32
  func.return
}

// A kernel region, and launches.
// CHECK-LABEL: func.func @main
func.func @main() {
  %x = ln.create : tensor<2x3xf32>
  // CHECK: cuda.kernel(%{{.*}} = %{{.*}}) {
  %y = cuda.kernel(%x_ = %x) {
    %0 = ln.relu %x_ : tensor<2x3xf32>
    ln.yield %0
  } as ("y")
  // CHECK: cuda.launch @ids grid [4, 1, 1] block [32, 4, 1] [arena+256]
  cuda.launch @ids grid [4, 1, 1] block [32, 4, 1] [arena+256]
  // CHECK: cuda.launch @big grid [1, 2, 3] block [64, 1, 1] shared 65536 [arena+0, static+64] {note = "x"}
  cuda.launch @big grid [1, 2, 3] block [64, 1, 1] shared 65536 [arena+0, static+64] {note = "x"}
  func.return
}
