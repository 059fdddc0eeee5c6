// RUN: ln-opt %s --split-input-file --pass=move-scales --columns=0 | filecheck %s

// Both roots of attention's scale become one number of the queries; keys are turned over as they are.
// CHECK-NOT: %a
// CHECK: %[[T:.*]] = ln.transpose %k {axes = [0, 2, 1]} : tensor<2x8x5xf32>
// CHECK: %[[S:.*]] = ln.mul %s, %s : tensor<f32>
// CHECK: %[[Q:.*]] = ln.mul %q, %[[S]] : tensor<2x3x8xf32>
// CHECK: %[[Y:.*]] = ln.matmul %[[Q]], %[[T]] : tensor<2x3x5xf32> as "m"("y")
// CHECK-NEXT: func.return %[[Y]]
func.func @main() -> tensor<2x3x5xf32> {
  %q = ln.input : tensor<2x3x8xf32> as ("q")
  %k = ln.input : tensor<2x5x8xf32> as ("k")
  %s = ln.param {data = [0.6]} : tensor<f32> as ("s")
  %a = ln.mul %q, %s : tensor<2x3x8xf32> as ("a")
  %t = ln.transpose %k {axes = [0, 2, 1]} : tensor<2x8x5xf32> as ("t")
  %b = ln.mul %t, %s : tensor<2x8x5xf32> as ("b")
  %y = ln.matmul %a, %b : tensor<2x3x5xf32> as "m"("y")
  func.return %y : tensor<2x3x5xf32>
}

// -----

// One that stands before the turn, as an operand of some axes; the result of a call is no number of load time.
// CHECK: %[[S:.*]] = ln.reshape %s : tensor<f32>
// CHECK: %[[T:.*]] = ln.transpose %k {axes = [1, 0]}
// CHECK: %[[Q:.*]] = ln.mul %a, %[[S]]
// CHECK: ln.matmul %[[Q]], %[[T]] {{.*}}("y")
func.func @main() -> tensor<3x5xf32> {
  %q = ln.input : tensor<3x8xf32> as ("q")
  %k = ln.input : tensor<5x8xf32> as ("k")
  %s = ln.input : tensor<1x1xf32> as ("s")
  %a = ln.mul %q, %s : tensor<3x8xf32> as ("a")
  %b = ln.mul %s, %k : tensor<5x8xf32> as ("b")
  %t = ln.transpose %b {axes = [1, 0]} : tensor<8x5xf32> as ("t")
  %y = ln.matmul %a, %t : tensor<3x5xf32> as "m"("y")
  func.return %y : tensor<3x5xf32>
}

// -----

// The first factor is larger; or something else reads what is scaled; or it is known at load.
// CHECK: ln.matmul %q, %b
// CHECK: ln.matmul %p, %c
// CHECK: ln.matmul %p, %d
func.func @main() -> (tensor<9x5xf32>, tensor<3x5xf32>, tensor<8x5xf32>, tensor<3x5xf32>) {
  %q = ln.input : tensor<9x8xf32> as ("q")
  %p = ln.input : tensor<3x8xf32> as ("p")
  %k = ln.input : tensor<8x5xf32> as ("k")
  %w = ln.param : tensor<8x5xf32> as ("w")
  %s = ln.param {data = [0.6]} : tensor<f32> as ("s")
  %b = ln.mul %k, %s : tensor<8x5xf32> as ("b")
  %y = ln.matmul %q, %b : tensor<9x5xf32> as ("y")
  %c = ln.mul %k, %s : tensor<8x5xf32> as ("c")
  %z = ln.matmul %p, %c : tensor<3x5xf32> as ("z")
  %d = ln.mul %w, %s : tensor<8x5xf32> as ("d")
  %u = ln.matmul %p, %d : tensor<3x5xf32> as ("u")
  func.return %y, %z, %c, %u : tensor<9x5xf32>, tensor<3x5xf32>, tensor<8x5xf32>, tensor<3x5xf32>
}

// -----

// Integers wrap, and are left alone.
// CHECK: ln.matmul %q, %b
func.func @main() -> tensor<3x5xi32> {
  %q = ln.input : tensor<3x8xi32> as ("q")
  %k = ln.input : tensor<8x5xi32> as ("k")
  %s = ln.param {data = [3]} : tensor<i32> as ("s")
  %b = ln.mul %k, %s : tensor<8x5xi32> as ("b")
  %y = ln.matmul %q, %b : tensor<3x5xi32> as ("y")
  func.return %y : tensor<3x5xi32>
}
