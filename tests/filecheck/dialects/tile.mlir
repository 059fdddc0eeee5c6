// The ops of the tile dialect print as they were written, and again after the generic form.
// RUN: ln-opt %s --columns=0 | filecheck %s
// RUN: ln-opt --print-op-generic %s | ln-opt --columns=0 - | filecheck %s

// A slice: indices, the memref dimension that each vector dimension walks, steps, static extents, run-time lanes.
// CHECK-LABEL: func.func @tiles
func.func @tiles(%lo: index, %hi: index, %x: memref<64x30x30xf32>, %o: memref<64x30x30xf32>) attributes {tile.opt = "none"} {
  // CHECK: %[[A:.*]] = tile.load %x[%lo, %lo, %lo] dims [0, 2] : memref<64x30x30xf32>, vector<8x14xf32>
  %a = tile.load %x[%lo, %lo, %lo] dims [0, 2] : memref<64x30x30xf32>, vector<8x14xf32>
  // CHECK: tile.load %x[%lo, %lo, %lo] dims [0, 0] steps [1, 0] : memref<64x30x30xf32>, vector<4x8xf32>
  %w = tile.load %x[%lo, %lo, %lo] dims [0, 0] steps [1, 0] : memref<64x30x30xf32>, vector<4x8xf32>
  // CHECK: tile.load %x[%lo, %lo, %lo] dims [2] steps [2] valid [13] lanes %hi {note} : memref<64x30x30xf32>, vector<14xf32>
  %v = tile.load %x[%lo, %lo, %lo] dims [2] steps [2] valid [13] lanes %hi {note} : memref<64x30x30xf32>, vector<14xf32>
  // CHECK: %[[S:.*]] = tile.reduce max %[[A]] dims [0] : vector<8x14xf32> to vector<14xf32>
  %s = tile.reduce max %a dims [0] : vector<8x14xf32> to vector<14xf32>
  // CHECK: tile.reduce add %[[S]] dims [0] : vector<14xf32> to f32
  %t = tile.reduce add %s dims [0] : vector<14xf32> to f32
  // CHECK: %[[ACC:.*]] = vector.broadcast
  %acc = vector.broadcast %t : f32 to vector<4x14xf32>
  // CHECK: %[[R:.*]] = tile.fma %{{.*}}, %[[A]], %[[ACC]] : vector<4x8xf32>, vector<8x14xf32>, vector<4x14xf32>
  %r = tile.fma %w, %a, %acc : vector<4x8xf32>, vector<8x14xf32>, vector<4x14xf32>
  // CHECK: %[[M:.*]] = tile.cmp olt %[[R]], %[[ACC]] : vector<4x14xf32>
  %m = tile.cmp olt %r, %acc : vector<4x14xf32>
  // CHECK: %[[C:.*]] = tile.select %[[M]], %[[R]], %[[ACC]] : vector<4x14xi1>, vector<4x14xf32>
  %c = tile.select %m, %r, %acc : vector<4x14xi1>, vector<4x14xf32>
  // CHECK: tile.cast fptosi %[[C]] : vector<4x14xf32> to vector<4x14xi8>
  %i = tile.cast fptosi %c : vector<4x14xf32> to vector<4x14xi8>
  // CHECK: tile.transpose %{{.*}}, %{{.*}} : vector<4x8xf32>, vector<4x8xf32> -> vector<2x8xf32>, vector<2x8xf32>, vector<2x8xf32>, vector<2x8xf32>
  %p0, %p1, %p2, %p3 = tile.transpose %w, %w : vector<4x8xf32>, vector<4x8xf32> -> vector<2x8xf32>, vector<2x8xf32>, vector<2x8xf32>, vector<2x8xf32>
  // Hints, that may name what lies outside.
  // CHECK: tile.prefetch %x[%hi, %lo, %hi] bytes 1024 : memref<64x30x30xf32>
  tile.prefetch %x[%hi, %lo, %hi] bytes 1024 : memref<64x30x30xf32>
  // CHECK: tile.prefetch %o[%lo, %lo, %hi] bytes 64 write {note} : memref<64x30x30xf32>
  tile.prefetch %o[%lo, %lo, %hi] bytes 64 write {note} : memref<64x30x30xf32>
  // CHECK: tile.store %[[C]], %o[%lo, %lo, %lo] dims [0, 2] valid [4, 13] : vector<4x14xf32>, memref<64x30x30xf32>
  tile.store %c, %o[%lo, %lo, %lo] dims [0, 2] valid [4, 13] : vector<4x14xf32>, memref<64x30x30xf32>
  func.return
}

// The launch list: places are a memory space and a byte offset.
// CHECK-LABEL: func.func @main
func.func @main() {
  // CHECK-NEXT: tile.launch @tiles grid 12 [arena+0, static+64]
  tile.launch @tiles grid 12 [arena, static+64]
  // On at most 4 threads; the last place is scratch, 128 bytes for each.
  // CHECK-NEXT: tile.launch @tiles grid 12 threads 4 [arena+0]
  tile.launch @tiles grid 12 threads 4 [arena]
  // CHECK-NEXT: tile.launch @tiles grid 12 threads 4 scratch 128 [arena+0, arena+4096] {note}
  tile.launch @tiles grid 12 threads 4 scratch 128 [arena, arena+4096] {note}
  // CHECK-NEXT: tile.launch @tiles grid 12 scratch 64 [arena+0]
  tile.launch @tiles grid 12 scratch 64 [arena]
  // CHECK-NEXT: tile.copy 4096 [arena+1024, sram+0]
  tile.copy 4096 [arena+1024, sram+0]
  // CHECK-NEXT: tile.host "print" [arena+1024] {msg = "x", dtype = "f32"}
  tile.host "print" [arena+1024] {msg = "x", dtype = "f32"}
  func.return
}

// CHECK-LABEL: func.func @places
// CHECK-SAME: ln.workspace = #ln.place<arena, 64>
func.func @places() attributes {ln.workspace = #ln.place<arena, 64>} {
  func.return
}
