// RUN: ln-opt --pass=lower-cuda --split-input-file --verify-diagnostics %s | filecheck %s

// A kernel becomes a SIMT kernel with a thread for four elements, which it reads at once, the op a launch with its places.
// CHECK: builtin.module attributes {ln.memory = {arena = 4000 : i64}, cuda.arch = "sm_80"}
// CHECK: func.func @relu_0(%[[X:.*]]: memref<300xf32>, %[[Y:.*]]: memref<300xf32>) attributes {cuda.block = array<i32: 96, 1, 1>} {
// CHECK-DAG: %[[B:.*]] = cuda.block_id x
// CHECK-DAG: %[[T:.*]] = cuda.thread_id x
// CHECK: %[[I:.*]] = arith.addi %{{.*}}, %[[T]] : index
// CHECK: %[[INSIDE:.*]] = arith.cmpi slt, %[[I]], %{{.*}} : index
// CHECK: scf.if %[[INSIDE]] {
// CHECK: scf.for %{{.*}} = %[[I]] to %{{.*}} step
// CHECK: tile.load %[[X]]
// CHECK: tile.store %{{.*}}, %[[Y]]
// CHECK: func.func @main() {
// CHECK-NEXT: cuda.launch @relu_0 grid [1, 1, 1] block [96, 1, 1] [arena+0, arena+2048]
// CHECK-NEXT: tile.host "print" [arena+2048] {msg = "y:", dims = [2 : i64, 150 : i64], dtype = "f32"}
// CHECK-NEXT: func.return
builtin.module attributes {ln.memory = {arena = 4000 : i64}} {
  func.func @main() -> tensor<2x150xf32> {
    %x = ln.input : tensor<2x150xf32> at arena+0 as ("x")
    %y = cuda.kernel(%x_1 = %x) {
      %y_1 = ln.relu %x_1 : tensor<2x150xf32>
      ln.yield %y_1
    } at arena+2048 as ("y")
    ln.print %y {msg = "y:"}
    func.return %y : tensor<2x150xf32>
  }
}

// -----
// In place, operand and result are one memref; a block has no more warps than there are points; equal kernels share one function.
// CHECK: func.func @relu_0(%{{.*}}: memref<33xf32>) attributes {cuda.block = array<i32: 64, 1, 1>}
// CHECK-NOT: @relu_1
// CHECK: cuda.launch @relu_0 grid [1, 1, 1] block [64, 1, 1] [arena+0]
// CHECK-NEXT: cuda.launch @relu_0 grid [1, 1, 1] block [64, 1, 1] [arena+0]
builtin.module attributes {ln.memory = {arena = 132 : i64}} {
  func.func @main() -> tensor<33xf32> {
    %x = cuda.kernel() {
      %x_1 = ln.zeros : tensor<33xf32>
      ln.yield %x_1
    } at arena+0 as ("x")
    %y = cuda.kernel(%a = %x) {
      %b = ln.relu %a : tensor<33xf32>
      ln.yield %b
    } at arena+0 as ("y")
    %z = cuda.kernel(%c = %y) {
      %d = ln.relu %c : tensor<33xf32>
      ln.yield %d
    } at arena+0 as ("z")
    func.return %z : tensor<33xf32>
  }
}

// -----
// A reduction is one thread for each result. What one nest of loops hands to the next is workspace; there is a launch for each.
// CHECK: func.func @softmax_0(
// CHECK: arith.maximumf
// CHECK: cuda.launch @softmax_0 grid [1, 1, 1] block [32, 1, 1] [arena+0, arena+[[WS:[0-9]+]]]
// CHECK-NEXT: cuda.launch @softmax_0_1 grid
// CHECK: arena+1024
builtin.module attributes {ln.memory = {arena = 4096 : i64}} {
  func.func @main() -> tensor<4x40xf32> {
    %x = ln.input : tensor<4x40xf32> at arena+0 as ("x")
    %y = cuda.kernel(%x_1 = %x) {
      %y_1 = ln.softmax %x_1 {axis = 1} : tensor<4x40xf32>
      ln.yield %y_1
    } at arena+1024 as ("y")
    func.return %y : tensor<4x40xf32>
  }
}

// -----
// A move that stands in place is nothing, and one that does not is copied.
// CHECK: func.func @copy_0(%{{.*}}: memref<3xi64>, %{{.*}}: memref<3xi64>)
// CHECK: func.func @main() {
// CHECK-NEXT: cuda.launch @copy_0 grid [1, 1, 1] block [32, 1, 1] [arena+0, arena+256]
// CHECK-NEXT: func.return
builtin.module attributes {ln.memory = {arena = 512 : i64}} {
  func.func @main() -> (tensor<6xf32>, tensor<3x2xf32>) {
    %x = ln.input : tensor<2x3xf32> at arena+0 as ("x")
    %y = cuda.kernel(%x_1 = %x) {
      %y_1 = ln.reshape %x_1 : tensor<6xf32>
      ln.yield %y_1
    } at arena+256 as ("y")
    %z = cuda.kernel(%x_1 = %x) {
      %z_1 = ln.reshape %x_1 : tensor<3x2xf32>
      ln.yield %z_1
    } at arena+0 as ("z")
    func.return %y, %z : tensor<6xf32>, tensor<3x2xf32>
  }
}

// -----
builtin.module attributes {ln.memory = {arena = 512 : i64}, ln.plan = "upstream"} {
  func.func @main() -> tensor<6xf32> {
    %x = ln.input : tensor<6xf32> at arena+1 as ("x")
    // expected-error @+1 {{a tensor stands at arena+1, and a device reads elements of 4 bytes at multiples of 4 alone}}
    %y = cuda.kernel(%x_1 = %x) {
      %y_1 = ln.relu %x_1 : tensor<6xf32>
      ln.yield %y_1
    } at arena+64 as ("y")
    func.return %y : tensor<6xf32>
  }
}

// -----
builtin.module {
  func.func @main() -> tensor<6xf32> {
    %x = ln.input : tensor<6xf32> as ("x")
    // expected-error @+1 {{ln.relu cannot be lowered: the module is at no level that lower-cuda takes (run expand)}}
    %y = ln.relu %x : tensor<6xf32>
    func.return %y : tensor<6xf32>
  }
}
