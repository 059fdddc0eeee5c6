// RUN: ln-opt %s --split-input-file --pass=expand | filecheck %s
// RUN: ln-opt %s --split-input-file --pass=expand --target=none | filecheck %s --check-prefix=NONE

// Each op becomes a kernel; inputs, params, ln.once and host ops stay. A target without kernels runs the graph as it is.
// CHECK: ln.input
// CHECK: ln.once
// CHECK: %[[A:.*]] = cpu.kernel(%[[X:.*]] = %x) {
// CHECK-NEXT: %[[R:.*]] = ln.relu %[[X]] : tensor<3xf32> as "relu0"("a")
// CHECK-NEXT: ln.yield %[[R]]
// CHECK-NEXT: } : tensor<3xf32> as ("a")
// CHECK: ln.print %[[A]]
// CHECK: cpu.kernel(%{{.*}} = %[[A]], %{{.*}} = %w)
// CHECK: ln.elew
// NONE-NOT: kernel
func.func @main() -> tensor<3xf32> {
  %x = ln.input : tensor<3xf32> as ("x")
  %w = ln.once {
    %0 = ln.param : tensor<3xf32> as ("p")
    %1 = ln.relu %0 : tensor<3xf32> as ("w")
    ln.yield %1
  } : tensor<3xf32> as ("w")
  %a = ln.relu %x : tensor<3xf32> as "relu0"("a")
  ln.print %a {msg = "a:"}
  %y = ln.elew %a, %w {elew_op = "TL_SUM"} : tensor<3xf32> as "elew0"("y")
  func.return %y : tensor<3xf32>
}
