// RUN: ln-opt %s --split-input-file --pass='recognize{rules=norms,activations}' | filecheck %s

// What PyTorch's exporter spells out of a layer normalisation is one op; gain and bias stay behind it.
// CHECK: %[[X:.*]] = ln.input
// CHECK-NEXT: %[[Y:.*]] = ln.layernorm %[[X]] {axis = 1, epsilon = 9.999999747378752e-06} : tensor<2x8xf32> as ("y")
// CHECK-NEXT: func.return %[[Y]]
func.func @main() -> tensor<2x8xf32> {
  %x = ln.input : tensor<2x8xf32> as ("x")
  %e = ln.constant {data = [9.999999747378752e-06]} : tensor<f32>
  %mean = ln.reduce_mean %x {axes = [1]} : tensor<2x1xf32>
  %d = ln.sub %x, %mean : tensor<2x8xf32>
  %sq = ln.mul %d, %d : tensor<2x8xf32>
  %var = ln.reduce_mean %sq {axes = [1]} : tensor<2x1xf32>
  %ve = ln.add %var, %e : tensor<2x1xf32>
  %s = ln.sqrt %ve : tensor<2x1xf32>
  %y = ln.div %d, %s : tensor<2x8xf32> as ("y")
  func.return %y : tensor<2x8xf32>
}

// -----

// An epsilon that anybody may feed is none of the op's; nor is one that is a tensor.
// CHECK: ln.param
// CHECK: ln.reduce_mean
// CHECK: ln.sqrt
// CHECK-NEXT: ln.div
func.func @main() -> tensor<2x8xf32> {
  %x = ln.input : tensor<2x8xf32> as ("x")
  %e = ln.param {data = [9.999999747378752e-06]} : tensor<f32> as ("e")
  %sq = ln.mul %x, %x : tensor<2x8xf32>
  %ms = ln.reduce_mean %sq {axes = [1]} : tensor<2x1xf32>
  %ve = ln.add %ms, %e : tensor<2x1xf32>
  %s = ln.sqrt %ve : tensor<2x1xf32>
  %y = ln.div %x, %s : tensor<2x8xf32> as ("y")
  func.return %y : tensor<2x8xf32>
}

// -----

// x * sigmoid(b * x) is silu, for any number b.
// CHECK: %[[X:.*]] = ln.input
// CHECK-NEXT: ln.silu %[[X]] {beta = 2.0} : tensor<2x8xf32>
// CHECK-NEXT: func.return
func.func @main() -> tensor<2x8xf32> {
  %x = ln.input : tensor<2x8xf32> as ("x")
  %b = ln.constant {data = [2.0]} : tensor<1xf32>
  %k = ln.mul %x, %b : tensor<2x8xf32>
  %s = ln.sigmoid %k : tensor<2x8xf32>
  %y = ln.mul %s, %x : tensor<2x8xf32> as ("y")
  func.return %y : tensor<2x8xf32>
}
