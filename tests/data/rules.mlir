// Networks that rewrites apply to which no FileCheck test, mutant or example has: tools/exactness.py runs the passes that stand above each. A line `// LOAD:`
// names a description for them.

// PASSES: bind,simplify
func.func @main() -> tensor<2x3xf32> {
  %x = ln.input : tensor<2x3xf32> as ("x")
  %a = ln.clip %x {lo = -1, hi = 0.5} : tensor<2x3xf32>
  %y = ln.clip %a {lo = -1, hi = 0.5} : tensor<2x3xf32> as ("y")
  func.return %y : tensor<2x3xf32>
}

// -----
// LOAD: tests/filecheck/passes/Inputs/leaky_sum.op
// PASSES: bind,decompose
func.func @main() -> tensor<2x6xf32> {
  %x = ln.input : tensor<2x6xf32> as ("x")
  %y = ln.leaky_sum %x {slope = 0.5} : tensor<2x6xf32> as ("y")
  func.return %y : tensor<2x6xf32>
}

// -----
// PASSES: bind,expand
func.func @main() -> tensor<2x4x20xf32> {
  %q = ln.input : tensor<2x4x32xf32> as ("q")
  %k = ln.input : tensor<2x20x32xf32> as ("k")
  %t = ln.transpose %k {axes = [0, 2, 1]} : tensor<2x32x20xf32>
  %y = ln.matmul %q, %t : tensor<2x4x20xf32> as ("y")
  func.return %y : tensor<2x4x20xf32>
}

// -----
// PASSES: bind,hoist,expand{features=avx512}
func.func @main() -> tensor<1x16x?x8xf32, #ln.dims<"h(2..8)">> {
  %x = ln.input : tensor<1x16x?x8xf32, #ln.dims<"h(2..8)">> as ("x")
  %w = ln.param : tensor<16x8x3x3xf32> as ("w")
  %b = ln.param : tensor<16xf32> as ("b")
  %y = ln.conv2d %x, %w, %b {size = [3, 3], padding = [1, 1, 1, 1], group = 2} : tensor<1x16x?x8xf32, #ln.dims<"h(2..8)">> as ("y")
  func.return %y : tensor<1x16x?x8xf32, #ln.dims<"h(2..8)">>
}

// -----
// PASSES: bind,expand
// TARGET: cuda
func.func @main() -> tensor<2x4x9xf32> {
  %x = ln.input : tensor<2x3x9xf32> as ("x")
  %w = ln.param : tensor<4x3x3xf32> as ("w")
  %b = ln.param : tensor<4xf32> as ("b")
  %y = ln.conv %x, %w, %b {stride = [1], padding = [1, 1], dilation = [1]} : tensor<2x4x9xf32> as ("y")
  func.return %y : tensor<2x4x9xf32>
}

// -----
// PASSES: bind,expand
// TARGET: cuda
func.func @main() -> tensor<1x4x4x6x6xf32> {
  %x = ln.input : tensor<1x16x2x3x3xf32> as ("x")
  %w = ln.param : tensor<16x4x2x2x2xf32> as ("w")
  %b = ln.param : tensor<4xf32> as ("b")
  %y = ln.deconv %x, %w, %b {stride = [2, 2, 2], padding = [0, 0, 0, 0, 0, 0], dilation = [1, 1, 1], output_padding = [0, 0, 0]} : tensor<1x4x4x6x6xf32> as ("y")
  func.return %y : tensor<1x4x4x6x6xf32>
}

// -----
// PASSES: expand,combine
// TARGET: tensorrt
func.func @main() -> tensor<1x3x4x4xf32> {
  %x = ln.create {ran = [-1, 1]} : tensor<1x3x4x4xf32> as ("x")
  ln.print %x {msg = "x"}
  %r = ln.relu %x : tensor<1x3x4x4xf32> as ("r")
  %y = ln.sigmoid %r : tensor<1x3x4x4xf32> as ("y")
  ln.fprint %y {msg = "y", file = "y.txt"}
  func.return %y : tensor<1x3x4x4xf32>
}

// -----
// PASSES: choose
func.func @main() -> tensor<1x16x4x4xf32> {
  %x = ln.input : tensor<1x16x4x4xf32, #ln.layout<"c8">> as ("x")
  %y = cpu.kernel(%x_ = %x) {
    %a = ln.relu %x_ : tensor<1x16x4x4xf32, #ln.layout<"c16h1">>
    ln.yield %a
  } as ("y")
  %z = cpu.kernel(%y_ = %y) {
    %a = ln.forward %y_ : tensor<1x16x4x4xf32>
    ln.yield %a
  } as ("z")
  func.return %z : tensor<1x16x4x4xf32>
}

// -----
// PASSES: @cpu:kernels
func.func @main() -> (tensor<8x64xf32>, tensor<8x700xf32>) {
  %ids = ln.input : tensor<8xi32> as ("ids")
  %x = ln.input : tensor<8x64xf32> as ("x")
  %w = ln.param : tensor<700x64xf32> as ("w")
  %e = ln.take %w, %ids {axis = 0} : tensor<8x64xf32> as ("e")
  %t = ln.transpose %w {axes = [1, 0]} : tensor<64x700xf32>
  %y = ln.matmul %x, %t : tensor<8x700xf32> as ("y")
  func.return %e, %y : tensor<8x64xf32>, tensor<8x700xf32>
}
