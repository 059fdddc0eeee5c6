// RUN: ln-opt %s --pass=defuse | filecheck %s
// RUN: ln-opt %s --pass=defuse,combine | filecheck %s --check-prefix=AGAIN

// One kernel for each op, with the names that they have; choices of the whole are gone. `combine` takes it back.
// CHECK: %[[A:.*]] = cpu.kernel(%[[X:.*]] = %x) {
// CHECK-NEXT: ln.relu %[[X]] {{.*}} as "relu0"("a")
// CHECK-NEXT: ln.yield
// CHECK-NEXT: } : tensor<3xf32> as ("a")
// CHECK-NEXT: %[[Y:.*]] = cpu.kernel(%{{.*}} = %[[A]], %{{.*}} = %x) {
// CHECK-NEXT: ln.elew {{.*}} as "elew0"("y")
// CHECK-NEXT: ln.yield
// CHECK-NEXT: } : tensor<3xf32> as ("y")
// CHECK-NEXT: func.return %[[Y]]
// AGAIN: cpu.kernel(%{{.*}} = %x) {
// AGAIN-NEXT: ln.relu
// AGAIN-NEXT: ln.elew
func.func @main() -> tensor<3xf32> {
  %x = ln.input : tensor<3xf32> as ("x")
  %y = cpu.kernel(%x_ = %x) choices {alg = "loops"} {
    %0 = ln.relu %x_ : tensor<3xf32> as "relu0"("a")
    %1 = ln.elew %0, %x_ {elew_op = "TL_SUM"} : tensor<3xf32> as "elew0"("y")
    ln.yield %1
  } as ("y")
  func.return %y : tensor<3xf32>
}
