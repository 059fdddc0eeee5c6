// RUN: ln-opt %s --split-input-file --pass=expand,combine | filecheck %s

// A convolution takes its epilogue in: batchnorm, residual, activation.
// CHECK: %[[Y:.*]] = cpu.kernel(
// CHECK-NEXT: ln.conv2d {{.*}} as ("c")
// CHECK-NEXT: ln.batchnorm {{.*}} as ("n")
// CHECK-NEXT: ln.elew {{.*}} as ("e")
// CHECK-NEXT: ln.relu {{.*}} as "relu0"("y")
// CHECK-NEXT: ln.yield
// CHECK-NEXT: } : tensor<1x2x4x4xf32> as ("y")
// CHECK-NEXT: func.return %[[Y]]
func.func @main() -> tensor<1x2x4x4xf32> {
  %x = ln.input : tensor<1x2x4x4xf32> as ("x")
  %w = ln.param : tensor<2x2x3x3xf32> as ("w")
  %b = ln.param : tensor<2xf32> as ("b")
  %v = ln.param : tensor<2xf32> as ("v")
  %c = ln.conv2d %x, %w, %b {size = [3, 3], padding = [1, 1, 1, 1]} : tensor<1x2x4x4xf32> as ("c")
  %n = ln.batchnorm %c, %b, %b, %b, %v : tensor<1x2x4x4xf32> as ("n")
  %e = ln.elew %n, %x {elew_op = "TL_SUM"} : tensor<1x2x4x4xf32> as ("e")
  %y = ln.relu %e : tensor<1x2x4x4xf32> as "relu0"("y")
  func.return %y : tensor<1x2x4x4xf32>
}

// -----

// A graph of elementwise ops is one kernel; what both halves read is one operand.
// CHECK: cpu.kernel(%[[X:.*]] = %x) {
// CHECK-NEXT: %[[A:.*]] = ln.relu %[[X]]
// CHECK-NEXT: %[[B:.*]] = ln.sigmoid %[[X]]
// CHECK-NEXT: %[[C:.*]] = ln.elew %[[A]], %[[B]]
// CHECK-NEXT: ln.elew %[[C]], %[[X]]
// CHECK-NOT: cpu.kernel
// CHECK: func.return
func.func @main() -> tensor<3x4xf32> {
  %x = ln.input : tensor<3x4xf32> as ("x")
  %a = ln.relu %x : tensor<3x4xf32> as ("a")
  %b = ln.sigmoid %x : tensor<3x4xf32> as ("b")
  %c = ln.elew %a, %b {elew_op = "TL_MUL"} : tensor<3x4xf32> as ("c")
  %y = ln.elew %c, %x {elew_op = "TL_SUM"} : tensor<3x4xf32> as ("y")
  func.return %y : tensor<3x4xf32>
}

// -----

// A chain of pure moves is one copy.
// CHECK: cpu.kernel
// CHECK-NEXT: ln.reshape
// CHECK-NEXT: ln.transpose
// CHECK-NEXT: ln.reshape
// CHECK-NEXT: ln.yield
// CHECK-NOT: cpu.kernel
// CHECK: func.return
func.func @main() -> tensor<1x6x4xf32> {
  %x = ln.input : tensor<1x6x4xf32> as ("x")
  %a = ln.reshape %x : tensor<1x3x2x4xf32> as ("a")
  %b = ln.transpose %a {axes = [0, 2, 1, 3]} : tensor<1x2x3x4xf32> as ("b")
  %y = ln.reshape %b : tensor<1x6x4xf32> as ("y")
  func.return %y : tensor<1x6x4xf32>
}

// -----

// A move that a plan makes free is never merged into a kernel that could work in place.
// CHECK: cpu.kernel
// CHECK-NEXT: ln.relu
// CHECK-NEXT: ln.yield
// CHECK: cpu.kernel
// CHECK-NEXT: ln.reshape
// CHECK-NEXT: ln.yield
// CHECK: cpu.kernel
// CHECK-NEXT: ln.sigmoid
// CHECK-NEXT: ln.yield
func.func @main() -> tensor<6x4xf32> {
  %x = ln.input : tensor<1x6x4xf32> as ("x")
  %a = ln.relu %x : tensor<1x6x4xf32> as ("a")
  %b = ln.reshape %a : tensor<6x4xf32> as ("b")
  %y = ln.sigmoid %b : tensor<6x4xf32> as ("y")
  func.return %y : tensor<6x4xf32>
}

// -----

// Elementwise ops ride along with a copy.
// CHECK: cpu.kernel
// CHECK-NEXT: ln.relu
// CHECK-NEXT: ln.transpose
// CHECK-NEXT: ln.sigmoid
// CHECK-NEXT: ln.yield
// CHECK-NOT: cpu.kernel
// CHECK: func.return
func.func @main() -> tensor<4x6xf32> {
  %x = ln.input : tensor<6x4xf32> as ("x")
  %a = ln.relu %x : tensor<6x4xf32> as ("a")
  %b = ln.transpose %a {axes = [1, 0]} : tensor<4x6xf32> as ("b")
  %y = ln.sigmoid %b : tensor<4x6xf32> as ("y")
  func.return %y : tensor<4x6xf32>
}

// -----

// Nothing is computed twice: not what another op reads, not an output, not the operand of a pool or an upsampling.
// CHECK: cpu.kernel
// CHECK-NEXT: ln.relu
// CHECK-NEXT: ln.yield
// CHECK: cpu.kernel
// CHECK-NEXT: ln.sigmoid
// CHECK-NEXT: ln.yield
// CHECK: cpu.kernel
// CHECK-NEXT: ln.maxpool2d
// CHECK-NEXT: ln.yield
// CHECK: cpu.kernel
// CHECK-NEXT: ln.relu
// CHECK-NEXT: ln.yield
// CHECK: cpu.kernel
// CHECK-NEXT: ln.upsample
// CHECK-NEXT: ln.sigmoid
// CHECK-NEXT: ln.yield
func.func @main() -> (tensor<1x2x4x4xf32>, tensor<1x2x3x3xf32>, tensor<1x2x8x8xf32>) {
  %x = ln.input : tensor<1x2x4x4xf32> as ("x")
  %a = ln.relu %x : tensor<1x2x4x4xf32> as ("a")
  %b = ln.sigmoid %a : tensor<1x2x4x4xf32> as ("b")
  %p = ln.maxpool2d %b {size = [2, 2]} : tensor<1x2x3x3xf32> as ("p")
  %c = ln.relu %b : tensor<1x2x4x4xf32> as ("c")
  %u = ln.upsample %c {scales = [1, 1, 2, 2]} : tensor<1x2x8x8xf32> as ("u")
  %s = ln.sigmoid %u : tensor<1x2x8x8xf32> as ("s")
  func.return %a, %p, %s : tensor<1x2x4x4xf32>, tensor<1x2x3x3xf32>, tensor<1x2x8x8xf32>
}

// -----

// Of two convolutions that are added, the later one takes the sum in; a concatenation stays alone.
// CHECK: cpu.kernel
// CHECK-NEXT: ln.conv2d {{.*}} as ("c")
// CHECK-NEXT: ln.yield
// CHECK: cpu.kernel
// CHECK-NEXT: ln.conv2d {{.*}} as ("d")
// CHECK-NEXT: ln.elew
// CHECK-NEXT: ln.yield
// CHECK: cpu.kernel
// CHECK-NEXT: ln.concat
// CHECK-NEXT: ln.yield
func.func @main() -> tensor<1x4x4x4xf32> {
  %x = ln.input : tensor<1x2x4x4xf32> as ("x")
  %w = ln.param : tensor<2x2x1x1xf32> as ("w")
  %v = ln.param : tensor<2x2x1x1xf32> as ("v")
  %b = ln.param : tensor<2xf32> as ("b")
  %c = ln.conv2d %x, %w, %b {size = [1, 1]} : tensor<1x2x4x4xf32> as ("c")
  %d = ln.conv2d %x, %v, %b {size = [1, 1]} : tensor<1x2x4x4xf32> as ("d")
  %e = ln.elew %d, %c {elew_op = "TL_SUM"} : tensor<1x2x4x4xf32> as ("e")
  %y = ln.concat %e, %x {axis = 1} : tensor<1x4x4x4xf32> as ("y")
  func.return %y : tensor<1x4x4x4xf32>
}
