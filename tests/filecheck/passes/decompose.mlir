// RUN: ln-opt %s --pass=decompose | filecheck %s

// An op without a decomposition stays as it is; `tests/test_passes.py` has an op with one.
// CHECK: ln.sigmoid %x : tensor<3xf32> as "sigmoid0"("y")
// CHECK-NEXT: func.return
func.func @main() -> tensor<3xf32> {
  %x = ln.input : tensor<3xf32> as ("x")
  %y = ln.sigmoid %x : tensor<3xf32> as "sigmoid0"("y")
  func.return %y : tensor<3xf32>
}
