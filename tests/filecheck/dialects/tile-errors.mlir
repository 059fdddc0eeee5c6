// Each constraint of the tile dialect, violated.
// RUN: ln-opt --split-input-file --verify-diagnostics %s

func.func @too_long(%i: index, %x: memref<8x10xf32>) {
  // expected-error@+1 {{a slice of extent [1, 16] does not fit memref<8x10xf32>}}
  %a = tile.load %x[%i, %i] dims [1] : memref<8x10xf32>, vector<16xf32>
  func.return
}

// -----

func.func @rank(%i: index, %x: memref<8x10xf32>) {
  // expected-error@+1 {{expected 2 indices, got 1}}
  %a = tile.load %x[%i] dims [1] : memref<8x10xf32>, vector<8xf32>
  func.return
}

// -----

func.func @dims(%i: index, %x: memref<8x10xf32>) {
  // expected-error@+1 {{dims, steps and valid need one number a dimension of vector<2x8xf32>}}
  %a = tile.load %x[%i, %i] dims [1] : memref<8x10xf32>, vector<2x8xf32>
  func.return
}

// -----

func.func @element(%i: index, %x: memref<8x10xf32>) {
  // expected-error@+1 {{element types differ}}
  %a = tile.load %x[%i, %i] dims [1] : memref<8x10xf32>, vector<8xf64>
  func.return
}

// -----

func.func @valid(%i: index, %x: memref<8x10xf32>) {
  // expected-error@+1 {{valid [9] exceeds the shape [8]}}
  %a = tile.load %x[%i, %i] dims [1] valid [9] : memref<8x10xf32>, vector<8xf32>
  func.return
}

// -----

func.func @twice(%i: index, %x: memref<8x10xf32>, %v: vector<2x4xf32>) {
  // expected-error@+1 {{a store must write each element once}}
  tile.store %v, %x[%i, %i] dims [1, 1] : vector<2x4xf32>, memref<8x10xf32>
  func.return
}

// -----

func.func @layout(%i: index, %x: memref<8x?xf32>) {
  // expected-error@+1 {{expected a memref with the identity layout}}
  %a = tile.load %x[%i, %i] dims [1] : memref<8x?xf32>, vector<8xf32>
  func.return
}

// -----

func.func @fma(%a: vector<4x8xf32>, %b: vector<4x8xf32>) {
  // expected-error@+1 {{expected [P.., K] . [K, N..] -> [P.., N..]}}
  %r = tile.fma %a, %b, %a : vector<4x8xf32>, vector<4x8xf32>, vector<4x8xf32>
  func.return
}

// -----

func.func @prefetch(%i: index, %x: memref<4x8xf32>) {
  // expected-error@+1 {{expected 2 indices, got 1}}
  tile.prefetch %x[%i] bytes 64 : memref<4x8xf32>
  func.return
}

// -----

func.func @prefetch_nothing(%i: index, %x: memref<4x8xf32>) {
  // expected-error@+1 {{bytes must be 1 to 65536}}
  tile.prefetch %x[%i, %i] bytes 0 : memref<4x8xf32>
  func.return
}

// -----

func.func @reduce(%a: vector<4x8xf32>) {
  // expected-error@+1 {{folding dims [1] of vector<4x8xf32> cannot give vector<8xf32>}}
  %r = tile.reduce add %a dims [1] : vector<4x8xf32> to vector<8xf32>
  func.return
}

// -----

func.func @kind(%a: vector<4x8xf32>) {
  // expected-error@+1 {{umax is for integers}}
  %r = tile.reduce umax %a dims [0, 1] : vector<4x8xf32> to f32
  func.return
}

// -----

func.func @cast(%a: vector<4xf32>) {
  // expected-error@+1 {{sitofp cannot take vector<4xf32> to vector<4xf64>}}
  %r = tile.cast sitofp %a : vector<4xf32> to vector<4xf64>
  func.return
}

// -----

func.func @cmp(%a: vector<4xf32>) {
  // expected-error@+1 {{unknown predicate slt}}
  %r = tile.cmp slt %a, %a : vector<4xf32>
  func.return
}

// -----

func.func @select(%m: vector<8xi1>, %a: vector<4xf32>) {
  // expected-error@+1 {{expected a mask of i1 with the shape of vector<4xf32>}}
  %r = tile.select %m, %a, %a : vector<8xi1>, vector<4xf32>
  func.return
}

// -----

func.func @transpose(%a: vector<2x4xf32>) {
  // expected-error@+1 {{expected 2 results of type vector<1x4xf32>}}
  %r = tile.transpose %a : vector<2x4xf32> -> vector<1x4xf32>
  func.return
}

// -----
// Threads and scratch of a launch are bounded.
func.func @main() {
  // expected-error@+1 {{a launch runs on 1 to 256 threads, not 0}}
  tile.launch @k grid 4 threads 0 [arena+0]
  func.return
}

// -----
func.func @main() {
  // expected-error@+1 {{a launch runs on 1 to 256 threads, not 257}}
  tile.launch @k grid 4 threads 257 [arena+0]
  func.return
}

// -----
func.func @main() {
  // expected-error@+1 {{scratch is a multiple of 64, not 32}}
  tile.launch @k grid 4 scratch 32 [arena+0]
  func.return
}

// -----
func.func @main() {
  // expected-error@+1 {{the last place of a launch with scratch is that of the scratch, and there is none}}
  tile.launch @k grid 4 scratch 64 []
  func.return
}

// -----

// A copy is between bytes that are apart.
func.func @main() {
  // expected-error@+1 {{the bytes that a copy reads and those that it writes overlap}}
  tile.copy 64 [arena+0, arena+32]
  func.return
}

// -----

func.func @main() {
  // expected-error@+1 {{tile.copy takes two places, from where and to where, not 1}}
  tile.copy 64 [arena+0]
  func.return
}
