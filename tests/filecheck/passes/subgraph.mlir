// RUN: ln-opt %s --split-input-file --pass=expand,subgraph --columns=0 | filecheck %s

// A channel shuffle of two halves is one interleaving copy of both, from where they lie, with the reshape behind it.
// CHECK-NOT: ln.transpose
// CHECK: %[[A:.*]] = ln.reshape %{{.*}} : tensor<1x3x1x2x2xf32>
// CHECK-NEXT: %[[B:.*]] = ln.reshape %{{.*}} : tensor<1x3x1x2x2xf32>
// CHECK-NEXT: %[[T:.*]] = ln.concat %[[A]], %[[B]] {axis = 2} : tensor<1x3x2x2x2xf32> as "transpose0"("t")
// CHECK-NEXT: ln.reshape %[[T]] : tensor<1x6x2x2xf32> as "reshape1"("y")
// CHECK-NEXT: ln.yield
// CHECK-NEXT: } : tensor<1x6x2x2xf32> as ("y")
// CHECK-NOT: ln.transpose
// CHECK: func.return
func.func @main() -> tensor<1x6x2x2xf32> {
  %a = ln.input : tensor<1x3x2x2xf32> as ("a")
  %b = ln.input : tensor<1x3x2x2xf32> as ("b")
  %c = ln.concat %a, %b {axis = 1} : tensor<1x6x2x2xf32> as "concat0"("c")
  %r = ln.reshape %c : tensor<1x2x3x2x2xf32> as "reshape0"("r")
  %t = ln.transpose %r {axes = [0, 2, 1, 3, 4]} : tensor<1x3x2x2x2xf32> as "transpose0"("t")
  %y = ln.reshape %t : tensor<1x6x2x2xf32> as "reshape1"("y")
  func.return %y : tensor<1x6x2x2xf32>
}

// -----

// Where no reshape follows, the halves are views in kernels of their own.
// CHECK-NOT: ln.transpose
// CHECK: ln.reshape %{{.*}} : tensor<1x3x1x2x2xf32>
// CHECK-NEXT: ln.yield
// CHECK: ln.concat %{{.*}}, %{{.*}} {axis = 2} : tensor<1x3x2x2x2xf32> as ("t")
// CHECK-NEXT: ln.yield
func.func @main() -> tensor<1x3x2x2x2xf32> {
  %a = ln.input : tensor<1x3x2x2xf32> as ("a")
  %b = ln.input : tensor<1x3x2x2xf32> as ("b")
  %c = ln.concat %a, %b {axis = 1} : tensor<1x6x2x2xf32> as ("c")
  %r = ln.reshape %c : tensor<1x2x3x2x2xf32> as ("r")
  %t = ln.transpose %r {axes = [0, 2, 1, 3, 4]} : tensor<1x3x2x2x2xf32> as ("t")
  func.return %t : tensor<1x3x2x2x2xf32>
}

// -----

// Not where the concatenation is an output, too.
// CHECK: ln.concat {{.*}} {axis = 1}
// CHECK: ln.transpose
func.func @main() -> (tensor<1x6x2x2xf32>, tensor<1x3x2x2x2xf32>) {
  %a = ln.input : tensor<1x3x2x2xf32> as ("a")
  %b = ln.input : tensor<1x3x2x2xf32> as ("b")
  %c = ln.concat %a, %b {axis = 1} : tensor<1x6x2x2xf32> as ("c")
  %r = ln.reshape %c : tensor<1x2x3x2x2xf32> as ("r")
  %t = ln.transpose %r {axes = [0, 2, 1, 3, 4]} : tensor<1x3x2x2x2xf32> as ("t")
  func.return %c, %t : tensor<1x6x2x2xf32>, tensor<1x3x2x2x2xf32>
}

// -----

// Not a shuffle of three groups, or of unequal halves.
// CHECK: ln.transpose
func.func @main() -> tensor<1x2x3x2x2xf32> {
  %a = ln.input : tensor<1x2x2x2xf32> as ("a")
  %b = ln.input : tensor<1x4x2x2xf32> as ("b")
  %c = ln.concat %a, %b {axis = 1} : tensor<1x6x2x2xf32> as ("c")
  %r = ln.reshape %c : tensor<1x3x2x2x2xf32> as ("r")
  %t = ln.transpose %r {axes = [0, 2, 1, 3, 4]} : tensor<1x2x3x2x2xf32> as ("t")
  func.return %t : tensor<1x2x3x2x2xf32>
}

// -----

// A maximum over a large window is one over rows, and then one over columns.
// CHECK: ln.maxpool2d %{{.*}} {size = [1, 5], padding = [0, 2, 0, 1]} : tensor<1x2x9x8xf32>
// CHECK: ln.maxpool2d %{{.*}} {size = [5, 1], padding = [2, 0, 2, 0]} : tensor<1x2x9x8xf32> as "pool0"("y")
func.func @main() -> tensor<1x2x9x8xf32> {
  %x = ln.input : tensor<1x2x9x9xf32> as ("x")
  %y = ln.maxpool2d %x {size = [5, 5], padding = [2, 2, 2, 1]} : tensor<1x2x9x8xf32> as "pool0"("y")
  func.return %y : tensor<1x2x9x8xf32>
}

// -----

// A small window, or one whose stride leaves little to share, stays whole.
// CHECK-COUNT-1: ln.maxpool2d
// CHECK-NOT: ln.maxpool2d
func.func @main() -> tensor<1x2x5x5xf32> {
  %x = ln.input : tensor<1x2x9x9xf32> as ("x")
  %y = ln.maxpool2d %x {size = [3, 3], stride = [2, 2], padding = [1, 1, 1, 1]} : tensor<1x2x5x5xf32> as ("y")
  func.return %y : tensor<1x2x5x5xf32>
}

// -----

// A product of short floats is one of f32: its sums are in f32 anyway.
// CHECK: ln.cast %{{.*}} {mode = "wrap"} : tensor<3x4xf32>
// CHECK: ln.cast %{{.*}} {mode = "wrap"} : tensor<4x5xf32>
// CHECK: ln.matmul %{{.*}}, %{{.*}} : tensor<3x5xf32> as "m"
// CHECK: ln.cast %{{.*}} {mode = "wrap"} : tensor<3x5xf16> as ("y")
func.func @main() -> tensor<3x5xf16> {
  %a = ln.input : tensor<3x4xf16> as ("a")
  %b = ln.param : tensor<4x5xf16> as ("b")
  %y = ln.matmul %a, %b : tensor<3x5xf16> as "m"("y")
  func.return %y : tensor<3x5xf16>
}
