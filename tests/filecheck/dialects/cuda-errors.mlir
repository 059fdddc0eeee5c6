// Each constraint of the cuda dialect, violated.
// RUN: ln-opt --split-input-file --verify-diagnostics %s

func.func @no_kernel() {
  // expected-error@+1 {{it stands in no kernel}}
  cuda.barrier
  func.return
}

// -----

func.func @block() attributes {cuda.block = array<i32: 32, 64, 1>} {
  // expected-error@+1 {{and 1024 together; got (32, 64, 1)}}
  cuda.barrier
  func.return
}

// -----

func.func @block_dims() attributes {cuda.block = array<i32: 32>} {
  // expected-error@+1 {{cuda.block is three numbers of threads}}
  cuda.barrier
  func.return
}

// -----

// A barrier that only some threads reach.
func.func @divergent() attributes {cuda.block = array<i32: 64, 1, 1>} {
  %t = cuda.thread_id x
  %c = arith.constant 7 : index
  %some = arith.cmpi slt, %t, %c : index
  scf.if %some {
    // expected-error@+1 {{it stands under scf.if, which depends on cuda.thread_id}}
    cuda.barrier
  }
  func.return
}

// -----

// As often as a thread's own number says.
func.func @divergent_loop() attributes {cuda.block = array<i32: 64, 1, 1>} {
  %t = cuda.lane_id
  %zero = arith.constant 0 : index
  %one = arith.constant 1 : index
  scf.for %i = %zero to %t step %one {
    // expected-error@+1 {{it stands under scf.for, which depends on cuda.lane_id}}
    cuda.barrier
  }
  func.return
}

// -----

// The condition is carried around a loop, from a load at the thread's own address.
func.func @divergent_carried(%x: memref<64xi1>) attributes {cuda.block = array<i32: 64, 1, 1>} {
  %t = cuda.thread_id x
  %zero = arith.constant 0 : index
  %one = arith.constant 1 : index
  %n = arith.constant 4 : index
  %yes = arith.constant true
  %r = scf.for %i = %zero to %n step %one iter_args(%go = %yes) -> (i1) {
    scf.if %go {
      // expected-error@+1 {{it stands under scf.if, which depends on cuda.thread_id}}
      cuda.barrier
    }
    %next = memref.load %x[%t] : memref<64xi1>
    scf.yield %next : i1
  }
  func.return
}

// -----

func.func @divergent_while(%x: memref<64xf32>) attributes {cuda.block = array<i32: 64, 1, 1>} {
  %t = cuda.thread_id x
  %one = arith.constant 1 : index
  %r = scf.while (%i = %t) : (index) -> (index) {
    %go = arith.cmpi sgt, %i, %one : index
    scf.condition(%go) %i : index
  } do {
  ^bb0(%i: index):
    // expected-error@+1 {{it stands under scf.while, which depends on cuda.thread_id}}
    cuda.barrier
    %next = arith.subi %i, %one : index
    scf.yield %next : index
  }
  func.return
}

// -----

// One warp alone may shuffle, and not wait for the others.
func.func @one_warp(%x: memref<64xf32>) attributes {cuda.block = array<i32: 64, 1, 1>} {
  %w = cuda.warp_id
  %zero = arith.constant 0 : index
  %first = arith.cmpi eq, %w, %zero : index
  scf.if %first {
    // expected-error@+1 {{all threads of a block come to it together, and it stands under scf.if, which depends on cuda.warp_id}}
    cuda.barrier
  }
  func.return
}

// -----

func.func @shuffle_divergent(%v: f32) attributes {cuda.block = array<i32: 64, 1, 1>} {
  %l = cuda.lane_id
  %zero = arith.constant 0 : index
  %first = arith.cmpi eq, %l, %zero : index
  scf.if %first {
    // expected-error@+1 {{all threads of a warp come to it together}}
    %y = cuda.shuffle xor %v, %zero : f32
  }
  func.return
}

// -----

func.func @shuffle_lanes(%v: f32) attributes {cuda.block = array<i32: 48, 1, 1>} {
  %zero = arith.constant 0 : index
  // expected-error@+1 {{a block of 48 threads is no multiple of 32}}
  %y = cuda.shuffle xor %v, %zero : f32
  func.return
}

// -----

func.func @shared_space() attributes {cuda.block = array<i32: 32, 1, 1>} {
  // expected-error@+1 {{expected a memref in shared memory, got memref<4xf32>}}
  %s = cuda.shared : memref<4xf32>
  func.return
}

// -----

func.func @shared_bytes() attributes {cuda.block = array<i32: 32, 1, 1>} {
  // expected-error@+1 {{400000 bytes of shared memory: a block has between 1 and 232448}}
  %s = cuda.shared : memref<100000xf32, 3 : i32>
  func.return
}

// -----

func.func @shared_shape() attributes {cuda.block = array<i32: 32, 1, 1>} {
  // expected-error@+1 {{expected a memref with a static shape and the identity layout}}
  %s = cuda.shared : memref<?xf32, 3 : i32>
  func.return
}

// -----

func.func @shared_inside() attributes {cuda.block = array<i32: 32, 1, 1>} {
  %yes = arith.constant true
  scf.if %yes {
    // expected-error@+1 {{shared memory is allocated in the outermost block of a kernel}}
    %s = cuda.shared : memref<4xf32, 3 : i32>
  }
  func.return
}

// -----

func.func @copy_bytes(%x: memref<64xf32>) attributes {cuda.block = array<i32: 32, 1, 1>} {
  %s = cuda.shared : memref<64xf32, 3 : i32>
  %zero = arith.constant 0 : index
  // expected-error@+1 {{a thread copies 4, 8 or 16 bytes, not 12}}
  cuda.async_copy %s[%zero], %x[%zero] bytes 12 : memref<64xf32, 3 : i32>, memref<64xf32>
  func.return
}

// -----

// Element t of a vector of f32 is at a multiple of 4 bytes.
func.func @copy_alignment(%x: memref<64xf32>) attributes {cuda.block = array<i32: 32, 1, 1>} {
  %s = cuda.shared : memref<64xf32, 3 : i32>
  %t = cuda.thread_id x
  %zero = arith.constant 0 : index
  // expected-error@+1 {{the source: the address has to be a multiple of 16 bytes, and what is known of its indices makes it one of 4}}
  cuda.async_copy %s[%zero], %x[%t] bytes 16 : memref<64xf32, 3 : i32>, memref<64xf32>
  func.return
}

// -----

// A row of 17 floats is no multiple of 16 bytes.
func.func @copy_row(%x: memref<64x16xf32>) attributes {cuda.block = array<i32: 32, 1, 1>} {
  %s = cuda.shared : memref<64x17xf32, 3 : i32>
  %t = cuda.thread_id x
  %zero = arith.constant 0 : index
  // expected-error@+1 {{the destination: the address has to be a multiple of 16 bytes}}
  cuda.async_copy %s[%t, %zero], %x[%t, %zero] bytes 16 : memref<64x17xf32, 3 : i32>, memref<64x16xf32>
  func.return
}

// -----

func.func @copy_spaces(%x: memref<64xf32>, %y: memref<64xf32>) attributes {cuda.block = array<i32: 32, 1, 1>} {
  %zero = arith.constant 0 : index
  // expected-error@+1 {{the destination: expected a memref in shared memory}}
  cuda.async_copy %y[%zero], %x[%zero] bytes 16 : memref<64xf32>, memref<64xf32>
  func.return
}

// -----

func.func @copy_source() attributes {cuda.block = array<i32: 32, 1, 1>} {
  %s = cuda.shared : memref<64xf32, 3 : i32>
  %zero = arith.constant 0 : index
  // expected-error@+1 {{the source: expected a memref in global memory}}
  cuda.async_copy %s[%zero], %s[%zero] bytes 16 : memref<64xf32, 3 : i32>, memref<64xf32, 3 : i32>
  func.return
}

// -----

func.func @copy_types(%x: memref<64xf16>) attributes {cuda.block = array<i32: 32, 1, 1>} {
  %s = cuda.shared : memref<64xf32, 3 : i32>
  %zero = arith.constant 0 : index
  // expected-error@+1 {{element types differ}}
  cuda.async_copy %s[%zero], %x[%zero] bytes 16 : memref<64xf32, 3 : i32>, memref<64xf16>
  func.return
}

// -----

func.func @copy_indices(%x: memref<64xf32>) attributes {cuda.block = array<i32: 32, 1, 1>} {
  %s = cuda.shared : memref<64xf32, 3 : i32>
  %zero = arith.constant 0 : index
  // expected-error@+1 {{the source: expected 1 indices, got 2}}
  cuda.async_copy %s[%zero], %x[%zero, %zero] bytes 16 : memref<64xf32, 3 : i32>, memref<64xf32>
  func.return
}

// -----

func.func @copy_part(%x: memref<64xf64>) attributes {cuda.block = array<i32: 32, 1, 1>} {
  %s = cuda.shared : memref<64xf64, 3 : i32>
  %zero = arith.constant 0 : index
  // expected-error@+1 {{4 bytes are no whole number of f64}}
  cuda.async_copy %s[%zero], %x[%zero] bytes 4 : memref<64xf64, 3 : i32>, memref<64xf64>
  func.return
}

// -----

func.func @wait() attributes {cuda.block = array<i32: 32, 1, 1>} {
  // expected-error@+1 {{the groups still on their way are 0 to 63, not 64}}
  cuda.async_wait 64
  func.return
}

// -----

func.func @commit() {
  // expected-error@+1 {{it stands in no kernel}}
  cuda.async_commit
  func.return
}

// -----

func.func @tiles() attributes {cuda.block = array<i32: 32, 1, 1>} {
  %s = cuda.shared : memref<64x8xf16, 3 : i32>
  %zero = arith.constant 0 : index
  // expected-error@+1 {{1, 2 or 4 matrices are read at a time, not 3}}
  %a = cuda.ldmatrix %s[%zero, %zero] tiles 3 : memref<64x8xf16, 3 : i32>, vector<3x2xf16>
  func.return
}

// -----

func.func @fragment() attributes {cuda.block = array<i32: 32, 1, 1>} {
  %s = cuda.shared : memref<64x8xf16, 3 : i32>
  %zero = arith.constant 0 : index
  // expected-error@+1 {{4 matrices of f16 are a vector<4x2xf16>, not vector<2x2xf16>}}
  %a = cuda.ldmatrix %s[%zero, %zero] tiles 4 : memref<64x8xf16, 3 : i32>, vector<2x2xf16>
  func.return
}

// -----

func.func @ldmatrix_type() attributes {cuda.block = array<i32: 32, 1, 1>} {
  %s = cuda.shared : memref<64x8xi16, 3 : i32>
  %zero = arith.constant 0 : index
  // expected-error@+1 {{matrices are of f16, bf16 or f32 (as tf32), not i16}}
  %a = cuda.ldmatrix %s[%zero, %zero] tiles 4 : memref<64x8xi16, 3 : i32>, vector<4x2xi16>
  func.return
}

// -----

func.func @ldmatrix_trans() attributes {cuda.block = array<i32: 32, 1, 1>} {
  %s = cuda.shared : memref<64x8xf32, 3 : i32>
  %zero = arith.constant 0 : index
  // expected-error@+1 {{only matrices of 16-bit elements can be transposed}}
  %a = cuda.ldmatrix %s[%zero, %zero] tiles 4 trans : memref<64x8xf32, 3 : i32>, vector<4x1xf32>
  func.return
}

// -----

func.func @ldmatrix_row() attributes {cuda.block = array<i32: 32, 1, 1>} {
  %s = cuda.shared : memref<64x12xf16, 3 : i32>
  %zero = arith.constant 0 : index
  %l = cuda.lane_id
  // expected-error@+1 {{a row: the address has to be a multiple of 16 bytes, and what is known of its indices makes it one of 8}}
  %a = cuda.ldmatrix %s[%l, %zero] tiles 4 : memref<64x12xf16, 3 : i32>, vector<4x2xf16>
  func.return
}

// -----

func.func @ldmatrix_space(%x: memref<64x8xf16>) attributes {cuda.block = array<i32: 32, 1, 1>} {
  %zero = arith.constant 0 : index
  // expected-error@+1 {{the matrix: expected a memref in shared memory}}
  %a = cuda.ldmatrix %x[%zero, %zero] tiles 4 : memref<64x8xf16>, vector<4x2xf16>
  func.return
}

// -----

func.func @ldmatrix_indices() attributes {cuda.block = array<i32: 32, 1, 1>} {
  %s = cuda.shared : memref<64x8xf16, 3 : i32>
  %zero = arith.constant 0 : index
  // expected-error@+1 {{expected 2 indices, got 1}}
  %a = cuda.ldmatrix %s[%zero] tiles 4 : memref<64x8xf16, 3 : i32>, vector<4x2xf16>
  func.return
}

// -----

// Fragments are spread over all lanes of a warp: none may be missing.
func.func @mma_divergent(%a: vector<4x2xf16>, %b: vector<2x2xf16>, %c: vector<2x2xf32>) attributes {cuda.block = array<i32: 32, 1, 1>} {
  %l = cuda.lane_id
  %zero = arith.constant 0 : index
  %first = arith.cmpi eq, %l, %zero : index
  scf.if %first {
    // expected-error@+1 {{all threads of a warp come to it together, and it stands under scf.if, which depends on cuda.lane_id}}
    %d = cuda.mma %a, %b, %c : vector<4x2xf16>, vector<2x2xf16>, vector<2x2xf32>
  }
  func.return
}

// -----

func.func @ldmatrix_divergent() attributes {cuda.block = array<i32: 32, 1, 1>} {
  %s = cuda.shared : memref<64x8xf16, 3 : i32>
  %l = cuda.lane_id
  %zero = arith.constant 0 : index
  %one = arith.constant 1 : index
  scf.for %i = %zero to %l step %one {
    // expected-error@+1 {{all threads of a warp come to it together, and it stands under scf.for, which depends on cuda.lane_id}}
    %a = cuda.ldmatrix %s[%zero, %zero] tiles 4 : memref<64x8xf16, 3 : i32>, vector<4x2xf16>
  }
  func.return
}

// -----

func.func @mma_type(%a: vector<4x2xi16>, %b: vector<2x2xi16>, %c: vector<2x2xf32>) attributes {cuda.block = array<i32: 32, 1, 1>} {
  // expected-error@+1 {{there are products of f16, bf16 and f32 (as tf32), not of i16}}
  %d = cuda.mma %a, %b, %c : vector<4x2xi16>, vector<2x2xi16>, vector<2x2xf32>
  func.return
}

// -----

func.func @mma_fragments(%a: vector<4x2xf16>, %b: vector<4x2xf16>, %c: vector<2x2xf32>) attributes {cuda.block = array<i32: 32, 1, 1>} {
  // expected-error@+1 {{the fragments of a product of f16 are vector<4x2xf16>, vector<2x2xf16>, vector<2x2xf32>, not}}
  %d = cuda.mma %a, %b, %c : vector<4x2xf16>, vector<4x2xf16>, vector<2x2xf32>
  func.return
}

// -----

func.func @grid() {
  // expected-error@+1 {{a grid has 1 to (2147483647, 65535, 65535) blocks along x, y, z; got (0, 1, 1)}}
  cuda.launch @k grid [0, 1, 1] block [32, 1, 1] [arena+0]
  func.return
}

// -----

func.func @launch_block() {
  // expected-error@+1 {{a block has at most (1024, 1024, 64) threads along x, y, z, and 1024 together; got (1, 1, 128)}}
  cuda.launch @k grid [1, 1, 1] block [1, 1, 128] [arena+0]
  func.return
}

// -----

func.func @launch_dims() {
  // expected-error@+1 {{a grid and a block have three dimensions}}
  cuda.launch @k grid [1] block [1, 1, 128] [arena+0]
  func.return
}

// -----

func.func @launch_shared() {
  // expected-error@+1 {{a block has at most 232448 bytes of shared memory}}
  cuda.launch @k grid [1, 1, 1] block [32, 1, 1] shared 300000 [arena+0]
  func.return
}
