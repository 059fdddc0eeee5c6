// RUN: ln-opt %s --split-input-file --pass=schedule | filecheck %s
// RUN: ln-opt %s --split-input-file --pass=schedule{order=source} | filecheck %s --check-prefix=SOURCE

// What can work in place waits for the other readers of its operand.
// CHECK: ln.transpose
// CHECK: ln.relu
// SOURCE: ln.relu
// SOURCE: ln.transpose
func.func @main() -> (tensor<8x8xf32>, tensor<8x8xf32>) {
  %i = ln.input : tensor<8x8xf32> as ("i")
  %x = ln.sigmoid %i : tensor<8x8xf32> as ("x")
  %a = ln.relu %x : tensor<8x8xf32> as ("a")
  %b = ln.transpose %x {axes = [1, 0]} : tensor<8x8xf32> as ("b")
  func.return %a, %b : tensor<8x8xf32>, tensor<8x8xf32>
}

// -----

// Wide results are made one at a time when each is reduced at once.
// CHECK: ln.upsample
// CHECK: ln.maxreduce
// CHECK: ln.upsample
// CHECK: ln.maxreduce
// SOURCE: ln.upsample
// SOURCE: ln.upsample
// SOURCE: ln.maxreduce
func.func @main() -> tensor<1x1xf32> {
  %x = ln.input : tensor<1x8xf32> as ("x")
  %z = ln.input : tensor<1x8xf32> as ("z")
  %a = ln.upsample %x {scales = [1, 99]} : tensor<1x792xf32> as ("a")
  %b = ln.upsample %z {scales = [1, 99]} : tensor<1x792xf32> as ("b")
  %p = ln.maxreduce %a {axis = 1} : tensor<1x1xf32> as ("p")
  %q = ln.maxreduce %b {axis = 1} : tensor<1x1xf32> as ("q")
  %y = ln.elew %p, %q {elew_op = "TL_SUM"} : tensor<1x1xf32> as ("y")
  func.return %y : tensor<1x1xf32>
}

// -----

// The order of the source stays where another is no better; prints keep their order always.
// CHECK: msg = "first"
// CHECK: ln.sigmoid
// CHECK: msg = "second"
// CHECK: ln.relu
// SOURCE: ln.print
func.func @main() -> tensor<3xf32> {
  %x = ln.input : tensor<3xf32> as ("x")
  ln.print %x {msg = "first"}
  %a = ln.sigmoid %x : tensor<3xf32> as ("a")
  ln.print %x {msg = "second"}
  %b = ln.relu %a : tensor<3xf32> as ("b")
  func.return %b : tensor<3xf32>
}
