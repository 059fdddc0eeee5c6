// RUN: ln-opt %s --split-input-file --pass=bind | filecheck %s
// RUN: ln-opt %s --split-input-file --pass=bind{inputs=w} | filecheck %s --check-prefix=NAMED

// A tensor with a use as data is an input, any other a param; names, parameters and contents stay.
// CHECK: ln.input {ran = [-1, 1]} : tensor<1x1x4x4xf32> as "create0"("x")
// CHECK: ln.param {from_file = true} : tensor<2x1x3x3xf32> as "create1"("w")
// CHECK: ln.param : tensor<2xf32> as "create2"("b")
// NAMED: ln.input {ran = [-1, 1]} : tensor<1x1x4x4xf32> as "create0"("x")
// NAMED: ln.input {from_file = true} : tensor<2x1x3x3xf32> as "create1"("w")
func.func @main() -> tensor<1x2x2x2xf32> {
  %x = ln.create {ran = [-1, 1]} : tensor<1x1x4x4xf32> as "create0"("x")
  %w = ln.create {from_file = true} : tensor<2x1x3x3xf32> as "create1"("w")
  %b = ln.create : tensor<2xf32> as "create2"("b")
  %y = ln.conv2d %x, %w, %b {size = [3, 3]} : tensor<1x2x2x2xf32> as "conv2d0"("y")
  func.return %y : tensor<1x2x2x2xf32>
}

// -----

// A look at a weight does not make it an input; a tensor that is looked at only is one.
// CHECK: ln.param : tensor<2x1x3x3xf32> as ("w")
// CHECK: ln.input {data = [1, 2, 3]} : tensor<3xf32> as ("seen")
// NAMED: ln.input
func.func @main() -> tensor<1x2x2x2xf32> {
  %x = ln.create : tensor<1x1x4x4xf32> as ("x")
  %w = ln.create : tensor<2x1x3x3xf32> as ("w")
  %b = ln.create : tensor<2xf32> as ("b")
  ln.print %w {msg = "w:"}
  %seen = ln.create {data = [1, 2, 3]} : tensor<3xf32> as ("seen")
  ln.print %seen {msg = "seen:"}
  %y = ln.conv2d %x, %w, %b {size = [3, 3]} : tensor<1x2x2x2xf32> as ("y")
  func.return %y : tensor<1x2x2x2xf32>
}

// -----

// Uses inside kernels count by the op that reads the operand there.
// CHECK: ln.input : tensor<3xf32> as ("x")
// NAMED: ln.input
func.func @main() -> tensor<3xf32> {
  %x = ln.create : tensor<3xf32> as ("x")
  %w = ln.create : tensor<3xf32> as ("w")
  %y = cpu.kernel(%a = %x, %c = %w) {
    %0 = ln.elew %a, %c {elew_op = "TL_SUM"} : tensor<3xf32> as ("y")
    ln.yield %0
  } as ("y")
  func.return %y : tensor<3xf32>
}

// -----

// An argument is an input under its name, which every call feeds.
// CHECK: func.func @main() -> tensor<3xf32> {
// CHECK-NEXT: %[[X:.*]] = ln.input {required = true} : tensor<3xf32> as ("x")
// CHECK: ln.relu %[[X]]
func.func @main(%x: tensor<3xf32>) -> tensor<3xf32> {
  %w = ln.input : tensor<3xf32> as ("w")
  %y = ln.relu %x : tensor<3xf32>
  %z = ln.elew %y, %w {elew_op = "TL_SUM"} : tensor<3xf32>
  func.return %z : tensor<3xf32>
}
