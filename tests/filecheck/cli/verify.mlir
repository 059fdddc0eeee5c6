// The level-1 verifier reports an op's own place, its constraint's label, and that op only; nothing is written.
// RUN: not ln-opt %s -o %t 2>&1 | filecheck %s
// RUN: not cat %t

func.func @main() -> tensor<2x3xf32> {
  %x = ln.create {ran = [0, 1]} : tensor<2x3xf32>
// CHECK: verify.mlir:[[# @LINE + 4]]:8: error: {{.*}} [slice.range]
// CHECK-NEXT: {{^}}    %y = ln.slice
// CHECK-NEXT: {{^}}         ^
// CHECK-NEXT: note: the op is: %y = ln.slice
  %y = ln.slice %x {axis = 0, start = 1, len = 2} : tensor<2x3xf32> as "slice0"("y")
// CHECK-NOT: ln.create
  func.return %y : tensor<2x3xf32>
}
