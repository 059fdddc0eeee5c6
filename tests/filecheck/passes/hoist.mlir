// RUN: ln-opt %s --split-input-file --pass=hoist | filecheck %s
// RUN: ln-opt %s --split-input-file --pass=expand,hoist | filecheck %s --check-prefix=KERNELS

// What depends on params alone is computed once; what the rest reads of it is yielded.
// CHECK: %[[O:.*]] = ln.once {
// CHECK-NEXT: %[[W:.*]] = ln.param : tensor<4x3xf32> as ("w")
// CHECK-NEXT: %[[T:.*]] = ln.transpose %[[W]]
// CHECK-NEXT: ln.yield %[[T]]
// CHECK-NEXT: } : tensor<3x4xf32> as ("w1")
// CHECK-NEXT: %[[X:.*]] = ln.input
// CHECK-NEXT: ln.elew %[[X]], %[[O]]
// KERNELS: ln.once
// KERNELS-NEXT: ln.param
// KERNELS-NEXT: ln.transpose
// KERNELS-NEXT: ln.yield
// KERNELS: cpu.kernel
func.func @main() -> tensor<3x4xf32> {
  %x = ln.input : tensor<3x4xf32> as ("x")
  %w = ln.param : tensor<4x3xf32> as ("w")
  %w1 = ln.transpose %w {axes = [1, 0]} : tensor<3x4xf32> as ("w1")
  %y = ln.elew %x, %w1 {elew_op = "TL_SUM"} : tensor<3x4xf32> as ("y")
  func.return %y : tensor<3x4xf32>
}

// -----

// Params that are read directly, or returned, are static too; an existing region is taken in.
// CHECK: ln.once
// CHECK: ln.yield
// CHECK-NEXT: } : tensor<3xf32>, tensor<3xf32> as ("v", "w2")
// CHECK-NOT: ln.once
// CHECK: func.return
// KERNELS: ln.once
// KERNELS-NOT: ln.once
// KERNELS: func.return
func.func @main() -> (tensor<3xf32>, tensor<3xf32>) {
  %once = ln.once {
    %w = ln.param : tensor<3xf32> as ("w")
    %0 = ln.relu %w : tensor<3xf32> as ("w1")
    ln.yield %0
  } : tensor<3xf32> as ("w1")
  %x = ln.input : tensor<3xf32> as ("x")
  %v = ln.param : tensor<3xf32> as ("v")
  %w2 = ln.elew %once, %v {elew_op = "TL_MUL"} : tensor<3xf32> as ("w2")
  %y = ln.elew %x, %w2 {elew_op = "TL_SUM"} : tensor<3xf32> as ("y")
  func.return %v, %y : tensor<3xf32>, tensor<3xf32>
}

// -----

// Zeros are cleared where they are needed, at run time and at load; ranges are computed once.
// CHECK: ln.once {
// CHECK: ln.zeros
// CHECK: ln.yield
// CHECK-NEXT: } : tensor<3xf32>, tensor<3xf32> as ("w1", "r")
// CHECK: ln.zeros : tensor<3xf32> as ("z")
// CHECK-NOT: ln.arange
// CHECK: func.return
// KERNELS: ln.once
func.func @main() -> tensor<3xf32> {
  %x = ln.input : tensor<3xf32> as ("x")
  %z = ln.zeros : tensor<3xf32> as ("z")
  %w = ln.param : tensor<3xf32> as ("w")
  %w1 = ln.elew %w, %z {elew_op = "TL_MAX"} : tensor<3xf32> as ("w1")
  %r = ln.arange {start = 0, stop = 3, step = 1} : tensor<3xf32> as ("r")
  %a = ln.elew %x, %w1 {elew_op = "TL_SUM"} : tensor<3xf32> as ("a")
  %b = ln.elew %a, %z {elew_op = "TL_MIN"} : tensor<3xf32> as ("b")
  %y = ln.elew %b, %r {elew_op = "TL_MUL"} : tensor<3xf32> as ("y")
  func.return %y : tensor<3xf32>
}
