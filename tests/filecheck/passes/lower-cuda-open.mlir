// RUN: ln-opt --columns=0 --pass=bind,expand{target=cuda},choose{target=cuda},plan{target=cuda},lower-cuda --split-input-file %s | filecheck %s

// The value of a symbol is the first argument of a kernel that needs it; the grid, and where a tensor stands, are what a call decides.
// CHECK: ln.symbols = #ln.param<[?"n(1..9)"]>
// CHECK: func.func @relu_0(%[[N:.*]]: index, %[[X:.*]]: memref<?xf32>, %[[Y:.*]]: memref<?xf32>) attributes {cuda.block = array<i32: 128, 1, 1>, tile.symbols = ["n"]} {
// CHECK: %[[MOST:.*]] = arith.muli %{{.*}}, %[[N]] : index
// CHECK: arith.cmpi slt, %{{.*}}, %[[MOST]] : index
// CHECK: tile.store %{{.*}}, %[[Y]]
// CHECK: func.func @main() {
// CHECK-NEXT: cuda.launch @relu_0 grid [?"((75*n(1..9) + 127) floordiv 128)", 1, 1] block [128, 1, 1] [arena+0, arena+?"{{.*}}"]
func.func @main() -> tensor<?x300xf32, #ln.dims<"n(1..9)">> {
  %x = ln.input : tensor<?x300xf32, #ln.dims<"n(1..9)">> as ("x")
  %y = ln.relu %x : tensor<?x300xf32, #ln.dims<"n(1..9)">> as ("y")
  func.return %y : tensor<?x300xf32, #ln.dims<"n(1..9)">>
}

// -----

// A kernel of a row, in strips: a block has its number in the kernel's own grid, and views of its row; there is no symbol to be told.
// CHECK: func.func @softmax_0(%[[X:.*]]: memref<?xi8>, %[[Y:.*]]: memref<?xi8>) attributes {cuda.block = array<i32: {{.*}}>} {
// CHECK: %[[B:.*]] = cuda.block_id x
// CHECK: %[[AT:.*]] = arith.muli %[[B]], %{{.*}} : index
// CHECK: memref.view %[[X]][%[[AT]]][] : memref<?xi8> to memref<256xf32>
// CHECK: %[[TO:.*]] = arith.muli %[[B]], %{{.*}} : index
// CHECK: memref.view %[[Y]][%[[TO]]][] : memref<?xi8> to memref<256xf32>
// CHECK: cuda.launch @softmax_0 grid [?"n(1..900)", 1, 1]
func.func @main() -> tensor<?x256xf32, #ln.dims<"n(1..900)">> {
  %x = ln.input : tensor<?x256xf32, #ln.dims<"n(1..900)">> as ("x")
  %y = ln.softmax %x {axis = 1} : tensor<?x256xf32, #ln.dims<"n(1..900)">> as ("y")
  func.return %y : tensor<?x256xf32, #ln.dims<"n(1..900)">>
}
