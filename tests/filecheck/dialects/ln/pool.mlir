// RUN: ln-opt %s --split-input-file --verify-diagnostics | filecheck %s

// CHECK: ln.maxpool2d %x {size = [3, 3], stride = [2, 2], padding = [1, 1, 1, 1]} : tensor<1x2x4x5xf32>
// CHECK: ln.avgpool2d %x {size = [7, 9]} : tensor<1x2x1x1xf32>
func.func @main(%x: tensor<1x2x7x9xf32>) {
  %y = ln.maxpool2d %x {size = [3, 3], stride = [2, 2], padding = [1, 1, 1, 1]} : tensor<1x2x4x5xf32>
  %z = ln.avgpool2d %x {size = [7, 9]} : tensor<1x2x1x1xf32>
  func.return
}

// -----
// SAME_UPPER gives ceil(size / stride) positions, whatever the window.
// CHECK: ln.maxpool2d %x {size = [2, 2], stride = [2, 2], autopad = "SAME_UPPER"} : tensor<1x2x4x5xf32>
func.func @same(%x: tensor<1x2x7x9xf32>) {
  %y = ln.maxpool2d %x {size = [2, 2], stride = [2, 2], autopad = "SAME_UPPER"} : tensor<1x2x4x5xf32>
  func.return
}

// -----
// A window in the padding alone would have no maximum.
func.func @padding(%x: tensor<1x2x7x9xf32>) {
  // expected-error@+1 {{maxpool2d.padding-height}}
  %y = ln.maxpool2d %x {size = [2, 2], padding = [2, 0, 0, 0]} : tensor<1x2x8x8xf32>
  func.return
}

// -----
func.func @mode(%x: tensor<1x2x7x9xf32>) {
  // expected-error@+1 {{`autopad` param's value should be one of NOTSET, VALID, SAME_UPPER, SAME_LOWER, but gets "SAME"}}
  %y = ln.maxpool2d %x {size = [2, 2], autopad = "SAME"} : tensor<1x2x7x9xf32>
  func.return
}

// -----
func.func @integers(%x: tensor<1x2x7x9xi32>) {
  // expected-error@+1 {{dtype should be f32 or f64 or f16 or bf16, but gets a i32}}
  %y = ln.avgpool2d %x {size = [2, 2]} : tensor<1x2x6x8xi32>
  func.return
}
