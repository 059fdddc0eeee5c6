// RUN: ln-opt %s --load %S/Inputs/leaky_sum.op --pass=decompose | filecheck %s

// An op of a description whose C calls ops becomes the graph of its calls, and keeps its name; others stay as they are.
// CHECK: %[[X:.*]] = ln.input
// CHECK-NEXT: %[[SLOPE:.*]] = ln.lrelu %[[X]] {negslope = 0.5}
// CHECK-NEXT: %[[SUM:.*]] = ln.elew %[[SLOPE]], %[[X]] {elew_op = "TL_SUM"} : tensor<3xf32> as "leaky0"("y")
// CHECK-NEXT: ln.sigmoid %[[SUM]]
// CHECK-NEXT: func.return
func.func @main() -> tensor<3xf32> {
  %x = ln.input : tensor<3xf32> as ("x")
  %y = ln.leaky_sum %x {slope = 0.5} : tensor<3xf32> as "leaky0"("y")
  %z = ln.sigmoid %y : tensor<3xf32> as "sigmoid0"("z")
  func.return %z : tensor<3xf32>
}
