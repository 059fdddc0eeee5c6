// RUN: ln-opt %s --pass='choose{threads=4}' | filecheck %s
// RUN: ln-opt %s --pass=choose | filecheck %s --check-prefix=ALONE

// As many threads as the work pays for; one where it is little, and for what has loops in an order.
// CHECK: cpu.kernel(%{{.*}} = %x) choices {alg = "loops", threads = 4} {
// CHECK: cpu.kernel(%{{.*}} = %s) choices {alg = "loops"} {
// CHECK: cpu.kernel(%{{.*}} = %l) choices {alg = "loops", ln.workspace_size
// A choice that is there stays.
// CHECK: cpu.kernel(%{{.*}} = %x) choices {threads = 2, alg = "loops"} {
// ALONE-NOT: threads = 4
func.func @main() -> (tensor<1x64x64x64xf32>, tensor<4xf32>) {
  %x = ln.input : tensor<1x64x64x64xf32> as ("x")
  %s = ln.input : tensor<4xf32> as ("s")
  %y = cpu.kernel(%x_ = %x) {
    %0 = ln.sigmoid %x_ : tensor<1x64x64x64xf32>
    ln.yield %0
  } as ("y")
  %z = cpu.kernel(%s_ = %s) {
    %0 = ln.sigmoid %s_ : tensor<4xf32>
    ln.yield %0
  } as ("z")
  %l = ln.input : tensor<9999xf32> as ("l")
  %o = cpu.kernel(%l_ = %l) {
    %0 = ln.sort1d %l_ {dir = "TL_SORT_DIR_ASCENDING"} : tensor<9999xf32>
    ln.yield %0
  } as ("o")
  %p = cpu.kernel(%x_ = %x) choices {threads = 2 : i64} {
    %0 = ln.relu %x_ : tensor<1x64x64x64xf32>
    ln.yield %0
  } as ("p")
  func.return %y, %z : tensor<1x64x64x64xf32>, tensor<4xf32>
}
