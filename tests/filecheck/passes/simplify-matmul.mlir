// RUN: ln-opt %s --pass=simplify --columns=0 | filecheck %s

// Keys that two groups of four heads share: the heads of a group are rows of one product, and nothing is repeated.
// CHECK: %[[Q:.*]] = ln.reshape %q : tensor<1x2x4x64xf32>
// CHECK: %[[P:.*]] = ln.matmul %[[Q]], %{{.*}} : tensor<1x2x4x?xf32, #ln.dims<"past(1..255)">> as "p"
// CHECK: %y{{.*}} = ln.reshape %[[P]] : tensor<1x8x1x?xf32, #ln.dims<"past(1..255)">> as "p"("y")
// CHECK: ln.matmul %{{.*}}, %k : tensor<1x2x4x64xf32>
// CHECK-NOT: ln.expand
func.func @main() -> (tensor<1x8x1x?xf32, #ln.dims<"past(1..255)">>, tensor<1x8x1x64xf32>) {
  %q = ln.input : tensor<1x8x1x64xf32> as ("q")
  %s = ln.input : tensor<1x8x1x?xf32, #ln.dims<"past(1..255)">> as ("s")
  %k = ln.input : tensor<1x2x?x64xf32, #ln.dims<"past(1..255)">> as ("k")
  %1 = ln.reshape %k : tensor<1x2x1x?x64xf32, #ln.dims<"past(1..255)">>
  %2 = ln.expand %1 : tensor<1x2x4x?x64xf32, #ln.dims<"past(1..255)">>
  %3 = ln.reshape %2 : tensor<8x?x64xf32, #ln.dims<"past(1..255)">>
  %4 = ln.transpose %3 {axes = [0, 2, 1]} : tensor<8x64x?xf32, #ln.dims<"past(1..255)">>
  %5 = ln.reshape %4 : tensor<1x8x64x?xf32, #ln.dims<"past(1..255)">>
  %6 = ln.matmul %q, %5 : tensor<1x8x1x?xf32, #ln.dims<"past(1..255)">> as "p"("y")
  %7 = ln.reshape %2 : tensor<1x8x?x64xf32, #ln.dims<"past(1..255)">>
  %8 = ln.matmul %s, %7 : tensor<1x8x1x64xf32> as "r"("z")
  func.return %6, %8 : tensor<1x8x1x?xf32, #ln.dims<"past(1..255)">>, tensor<1x8x1x64xf32>
}
