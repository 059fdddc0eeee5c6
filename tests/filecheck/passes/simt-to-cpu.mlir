// RUN: ln-opt --pass=simt-to-cpu{threads=2} --split-input-file --verify-diagnostics %s --columns=0 | filecheck %s

// What stands between two barriers becomes a loop over threads, shared memory and a value that lives across one scratch memory; what is
// the same in all threads stands outside, what follows from a thread's number is computed again.
// CHECK: builtin.module attributes {ln.memory = {static = 0 : i64, arena = 4608 : i64}}
// CHECK: func.func @reverse(%[[LO:.*]]: index, %[[HI:.*]]: index, %[[X:.*]]: memref<256xf32>, %[[Y:.*]]: memref<256xf32>, %[[SCRATCH:.*]]: memref<512xi8>) attributes {tile.opt = "O2"}
// CHECK: %[[S:.*]] = memref.view %[[SCRATCH]][%{{.*}}][] : memref<512xi8> to memref<64xf32>
// CHECK: %[[V:.*]] = memref.view %[[SCRATCH]][%{{.*}}][] : memref<512xi8> to memref<64xf32>
// CHECK: scf.for %[[B:.*]] = %[[LO]] to %[[HI]] step
// CHECK: %[[FIRST:.*]] = arith.muli %[[B]], %{{.*}} : index
// CHECK: scf.for %[[T:.*]] = %{{.*}} to %{{.*}} step
// CHECK-NEXT: %[[I:.*]] = arith.addi %[[FIRST]], %[[T]] : index
// CHECK-NEXT: %[[LOADED:.*]] = memref.load %[[X]][%[[I]]] : memref<256xf32>
// CHECK-NEXT: memref.store %[[LOADED]], %[[V]][%[[T]]] : memref<64xf32>
// CHECK-NEXT: memref.store %[[LOADED]], %[[S]][%[[T]]] : memref<64xf32>
// CHECK-NEXT: }
// CHECK-NEXT: scf.for %[[U:.*]] = %{{.*}} to %{{.*}} step
// CHECK-DAG: %[[O:.*]] = arith.subi %{{.*}}, %[[U]] : index
// CHECK-DAG: %[[OTHER:.*]] = memref.load %[[S]][%[[O]]] : memref<64xf32>
// CHECK-DAG: %[[KEPT:.*]] = memref.load %[[V]][%[[U]]] : memref<64xf32>
// CHECK: arith.subf %[[OTHER]], %[[KEPT]] : f32
// CHECK: func.func @main() {
// CHECK-NEXT: tile.launch @reverse grid 4 threads 2 scratch 512 [arena+0, arena+2048, arena+4096]
builtin.module attributes {ln.memory = {static = 0, arena = 4096}, cuda.arch = "sm_80"} {
  func.func @reverse(%x: memref<256xf32>, %y: memref<256xf32>) attributes {cuda.block = array<i32: 64, 1, 1>} {
    %s = cuda.shared : memref<64xf32, 3 : i32>
    %n = arith.constant 64 : index
    %last = arith.constant 63 : index
    %b = cuda.block_id x
    %t = cuda.thread_id x
    %first = arith.muli %b, %n : index
    %i = arith.addi %first, %t : index
    %v = memref.load %x[%i] : memref<256xf32>
    memref.store %v, %s[%t] : memref<64xf32, 3 : i32>
    cuda.barrier
    %o = arith.subi %last, %t : index
    %r = memref.load %s[%o] : memref<64xf32, 3 : i32>
    %d = arith.subf %r, %v : f32
    memref.store %d, %y[%i] : memref<256xf32>
    func.return
  }
  func.func @main() {
    cuda.launch @reverse grid [4, 1, 1] block [64, 1, 1] [arena+0, arena+2048]
    func.return
  }
}

// -----
// A loop with a barrier inside stands around the loops over threads; functions that are called stay what they are.
// CHECK: func.func private @next(%{{.*}}: f32) -> f32
// CHECK: func.func @rounds(
// CHECK: scf.for
// CHECK: scf.for %{{.*}} = %{{.*}} to %{{.*}} step %{{.*}} {
// CHECK: scf.for %{{.*}} {
// CHECK: func.call @next
// CHECK: }
// CHECK: scf.for %{{.*}} {
builtin.module attributes {ln.memory = {static = 0, arena = 256}, cuda.arch = "sm_80"} {
  func.func private @next(%a: f32) -> f32 {
    %b = arith.addf %a, %a : f32
    func.return %b : f32
  }
  func.func @rounds(%y: memref<32xf32>) attributes {cuda.block = array<i32: 32, 1, 1>} {
    %s = cuda.shared : memref<32xf32, 3 : i32>
    %zero = arith.constant 0 : index
    %one = arith.constant 1 : index
    %three = arith.constant 3 : index
    %last = arith.constant 31 : index
    %t = cuda.thread_id x
    %start = arith.constant 1.0 : f32
    %o = arith.subi %last, %t : index
    %all = scf.for %i = %zero to %three step %one iter_args(%a = %start) -> (f32) {
      %c = func.call @next(%a) : (f32) -> f32
      memref.store %c, %s[%t] : memref<32xf32, 3 : i32>
      cuda.barrier
      %d = memref.load %s[%o] : memref<32xf32, 3 : i32>
      cuda.barrier
      scf.yield %d : f32
    }
    memref.store %all, %y[%t] : memref<32xf32>
    func.return
  }
  func.func @main() {
    cuda.launch @rounds grid [1, 1, 1] block [32, 1, 1] [arena+0]
    func.return
  }
}

// -----
// A product of fragments is a call for each warp, on arrays with the fragments of all lanes; a matrix row goes to the lanes that get it.
// CHECK: func.func private @mma_f16_64(%{{.*}}: index, %{{.*}}: memref<64x2x2x2xf16>, %{{.*}}: memref<64x2x2xf16>, %{{.*}}: memref<64x2x2xf32>, %{{.*}}: memref<64x2x2xf32>)
// CHECK: func.func @product(
// CHECK: %[[ROW:.*]] = tile.load %{{.*}} dims [1, 1] steps [2, 1] : memref<16x16xf16>, vector<4x2xf16>
// CHECK: tile.store %[[ROW]], %{{.*}} dims [0, 2] : vector<4x2xf16>, memref<64x4x2xf16>
// CHECK: func.call @mma_f16_64(%{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}})
builtin.module attributes {ln.memory = {static = 0, arena = 2048}, cuda.arch = "sm_80"} {
  func.func @product(%x: memref<16x16xf16>, %y: memref<64x2x2xf32>) attributes {cuda.block = array<i32: 64, 1, 1>} {
    %s = cuda.shared : memref<16x16xf16, 3 : i32>
    %zero = arith.constant 0 : index
    %eight = arith.constant 8 : index
    %c16 = arith.constant 16 : index
    %t = cuda.thread_id x
    %l = cuda.lane_id
    %row = arith.remui %t, %c16 : index
    %half = arith.divui %l, %c16 : index
    %col = arith.muli %half, %eight : index
    cuda.async_copy %s[%row, %col], %x[%row, %col] bytes 16 : memref<16x16xf16, 3 : i32>, memref<16x16xf16>
    cuda.async_commit
    cuda.async_wait 0
    cuda.barrier
    %a = cuda.ldmatrix %s[%row, %col] tiles 4 : memref<16x16xf16, 3 : i32>, vector<4x2xf16>
    %b = cuda.ldmatrix %s[%row, %zero] tiles 2 trans : memref<16x16xf16, 3 : i32>, vector<2x2xf16>
    %c = arith.constant dense<0.0> : vector<2x2xf32>
    %d = cuda.mma %a, %b, %c : vector<4x2xf16>, vector<2x2xf16>, vector<2x2xf32>
    tile.store %d, %y[%t, %zero, %zero] dims [1, 2] : vector<2x2xf32>, memref<64x2x2xf32>
    func.return
  }
  func.func @main() {
    cuda.launch @product grid [1, 1, 1] block [64, 1, 1] [arena+0, arena+1024]
    func.return
  }
}

// -----
// expected-error @below {{the module has no kernels for cuda: run lower-cuda}}
builtin.module {
  func.func @main() {
    func.return
  }
}

// -----

// Launches are checked against kernels, each at its line.
builtin.module attributes {ln.memory = {static = 0, arena = 4096}, cuda.arch = "sm_80"} {
  func.func @k(%x: memref<32xf32>) attributes {cuda.block = array<i32: 32, 1, 1>} {
    func.return
  }
  func.func @main() {
    cuda.launch @k grid [4, 1, 1] block [32, 1, 1] [arena+0]
    // expected-error@+1 {{@k is for blocks of (32, 1, 1) threads, launched with (64, 1, 1)}}
    cuda.launch @k grid [4, 1, 1] block [64, 1, 1] [arena+0]
    func.return
  }
}

// -----

// Launches of another target do not stand beside them.
builtin.module attributes {ln.memory = {static = 0, arena = 4096}, cuda.arch = "sm_80"} {
  func.func @k(%x: memref<32xf32>) attributes {cuda.block = array<i32: 32, 1, 1>} {
    func.return
  }
  // expected-error@+1 {{@k is no kernel: its first arguments are the block range}}
  func.func @main() {
    tile.launch @k grid 4 [arena+0]
    func.return
  }
}

// -----
// Copies by tensor maps are done at once, mbarriers are nothing; a product is a call, which adds to the sums of the whole block in place.
// CHECK: func.func private @wgmma_f16_8(%{{.*}}: index, %{{.*}}: index, %{{.*}}: index, %{{.*}}: memref<64x64xf16>, %{{.*}}: memref<8x64xf16>, %[[SUMS:.*]]: memref<64x8xf32>)
// CHECK: tile.fma
// CHECK: func.func @product(
// CHECK: %[[A:.*]] = memref.view {{.*}} to memref<64x64xf16>
// CHECK: %[[B:.*]] = memref.view {{.*}} to memref<8x64xf16>
// CHECK: %[[C:.*]] = memref.view {{.*}} to memref<64x8xf32>
// CHECK: scf.if
// CHECK: tile.store %{{.*}}, %[[A]][
// CHECK: tile.store %{{.*}}, %[[B]][
// CHECK: func.call @wgmma_f16_8(%{{.*}}, %{{.*}}, %{{.*}}, %[[A]], %[[B]], %[[C]])
// CHECK-NOT: memref.store
// CHECK: tile.load {{.*}} dims [4, 2, 6] : memref<1x4x2x8x1x4x2xf32>, vector<1x2x2xf32>
builtin.module attributes {ln.memory = {static = 0, arena = 16384}, cuda.arch = "sm_90a"} {
  func.func @product(%x: memref<64x64xf16>, %w: memref<8x64xf16>, %y: memref<128x1x2x2xf32>) attributes {cuda.block = array<i32: 128, 1, 1>} {
    %zero = arith.constant 0 : index
    %bytes = arith.constant 9216 : index
    %none = arith.constant dense<0.0> : vector<1x2x2xf32>
    %a = cuda.shared : memref<64x64xf16, 3 : i32>
    %b = cuda.shared : memref<8x64xf16, 3 : i32>
    %m = cuda.shared : memref<1xi64, 3 : i32>
    %t = cuda.thread_id x
    %leads = arith.cmpi eq, %t, %zero : index
    scf.if %leads {
      cuda.mbarrier_init %m[%zero] count 1 : memref<1xi64, 3 : i32>
      cuda.mbarrier_fence
    }
    cuda.barrier
    scf.if %leads {
      cuda.mbarrier_expect %m[%zero], %bytes : memref<1xi64, 3 : i32>
      cuda.tma_load %a[%zero, %zero], %x[%zero, %zero] by #cuda.tiled<array<i64: 64, 64>>, %m[%zero] : memref<64x64xf16, 3 : i32>, memref<64x64xf16>, memref<1xi64, 3 : i32>
      cuda.tma_load %b[%zero, %zero], %w[%zero, %zero] by #cuda.tiled<array<i64: 8, 64>>, %m[%zero] : memref<8x64xf16, 3 : i32>, memref<8x64xf16>, memref<1xi64, 3 : i32>
    }
    cuda.mbarrier_wait %m[%zero], %zero : memref<1xi64, 3 : i32>
    %c = cuda.warpgroup_mma %a[%zero], %b[%zero], %none : memref<64x64xf16, 3 : i32>, memref<8x64xf16, 3 : i32>, vector<1x2x2xf32>
    %d = cuda.warpgroup_wait %c pending 0 : vector<1x2x2xf32>
    tile.store %d, %y[%t, %zero, %zero, %zero] dims [1, 2, 3] : vector<1x2x2xf32>, memref<128x1x2x2xf32>
    func.return
  }
  func.func @main() {
    cuda.launch @product grid [1, 1, 1] block [128, 1, 1] [arena+0, arena+8192, arena+9216]
    func.return
  }
}
