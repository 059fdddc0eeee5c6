// RUN: ln-opt %s --split-input-file --verify-diagnostics | filecheck %s

// Norms, reductions, resampling, sorts, detection heads, effects.
// CHECK: ln.batchnorm {{.*}} : tensor<1x3x2x2xf32>
// CHECK: ln.softmax %x {axis = 1} : tensor<1x3x2x2xf32>
// CHECK: ln.maxreduce_arg %x {axis = 2} : tensor<1x3x1x2xf32>, tensor<1x3x1x2xi32>
// CHECK: ln.dot_product %x, %x : tensor<1xf32>
// CHECK: ln.resize %x : tensor<1x3x5x4xf32>
// CHECK: ln.resize %x {mode = "TL_LINEAR"} : tensor<1x3x5x4xf32>
// CHECK: ln.upsample %x {scales = [1, 1, 2, 1.5]} : tensor<1x3x4x3xf32>
// CHECK: ln.sort1d_by_key %v, %i {dir = "TL_SORT_DIR_DESCENDING"} : tensor<3xf32>, tensor<3xi32>
// CHECK: ln.pick1d %v, %i {len = 2} : tensor<2xf32>
// CHECK: ln.print %v {msg = "a \"quoted\" line"}
func.func @main(%x: tensor<1x3x2x2xf32>, %v: tensor<3xf32>, %i: tensor<3xi32>) {
  %a = ln.batchnorm %x, %v, %v, %v, %v {epsilon = 0.001} : tensor<1x3x2x2xf32>
  %b = ln.softmax %x {axis = 1} : tensor<1x3x2x2xf32>
  %c, %d = ln.maxreduce_arg %x {axis = 2} : tensor<1x3x1x2xf32>, tensor<1x3x1x2xi32>
  %e = ln.dot_product %x, %x : tensor<1xf32>
  %f = ln.resize %x : tensor<1x3x5x4xf32>
  %fl = ln.resize %x {mode = "TL_LINEAR"} : tensor<1x3x5x4xf32>
  %g = ln.upsample %x {scales = [1, 1, 2, 1.5]} : tensor<1x3x4x3xf32>
  %h, %j = ln.sort1d_by_key %v, %i {dir = "TL_SORT_DIR_DESCENDING"} : tensor<3xf32>, tensor<3xi32>
  %k = ln.pick1d %v, %i {len = 2} : tensor<2xf32>
  ln.print %v {msg = "a \"quoted\" line"}
  func.return
}

// -----
func.func @batchnorm(%x: tensor<1x3x2x2xf32>, %v: tensor<4xf32>) {
  // expected-error@+1 {{"scale.len == src.dims[1]", but gets 4 against 3}}
  %a = ln.batchnorm %x, %v, %v, %v, %v : tensor<1x3x2x2xf32>
  func.return
}

// -----
func.func @linear_bools(%x: tensor<4xi1>) {
  // expected-error@+1 {{resize.mode}}
  %a = ln.resize %x {mode = "TL_LINEAR"} : tensor<8xi1>
  func.return
}

// -----
func.func @values(%v: tensor<3xf32>, %i: tensor<3xf32>) {
  // expected-error@+1 {{dtype should be i32, but gets a f32}}
  %h, %j = ln.sort1d_by_key %v, %i {dir = "TL_SORT_DIR_DESCENDING"} : tensor<3xf32>, tensor<3xf32>
  func.return
}

// -----
func.func @detect(%x: tensor<1x17x2x2xf32>, %a: tensor<3x2xf32>) {
  // expected-error@+1 {{detect_yolov3.channels}}
  %r:5 = ln.detect_yolov3 %x, %a {img_width = 8, img_height = 8} : tensor<1x3x2x2x2xf32>, tensor<1x3x2x2x2xf32>, tensor<1x3x4x2x2xf32>, tensor<1x3x1x2x2xf32>, tensor<1x3x1x2x2xf32>
  func.return
}
