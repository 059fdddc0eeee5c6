// RUN: ln-opt %s --split-input-file --pass=fold-batchnorm --columns=0 | filecheck %s

// The normalisation goes into weights and bias; the convolution takes over its tensor's name.
// CHECK: %[[Z:.*]] = ln.zeros : tensor<4xf32>
// CHECK: %[[W:.*]] = ln.reshape %w : tensor<1x4x27x1xf32>
// CHECK: %[[W1:.*]] = ln.batchnorm %[[W]], %s, %[[Z]], %[[Z]], %v {epsilon = 0.001}
// CHECK: %[[W2:.*]] = ln.reshape %[[W1]] : tensor<4x3x3x3xf32> as ("y_folded_weight")
// CHECK: %[[B:.*]] = ln.reshape %b : tensor<1x4x1x1xf32>
// CHECK: %[[B1:.*]] = ln.batchnorm %[[B]], %s, %o, %m, %v {epsilon = 0.001}
// CHECK: %[[B2:.*]] = ln.reshape %[[B1]] : tensor<4xf32> as ("y_folded_bias")
// CHECK: %[[Y:.*]] = ln.conv2d %x, %[[W2]], %[[B2]] {size = [3, 3]} : tensor<1x4x3x3xf32> as "conv2d0"("y")
// CHECK-NEXT: func.return %[[Y]]
func.func @main() -> tensor<1x4x3x3xf32> {
  %x = ln.input : tensor<1x3x5x5xf32> as ("x")
  %w = ln.param : tensor<4x3x3x3xf32> as ("w")
  %b = ln.param : tensor<4xf32> as ("b")
  %s = ln.param : tensor<4xf32> as ("s")
  %o = ln.param : tensor<4xf32> as ("o")
  %m = ln.param : tensor<4xf32> as ("m")
  %v = ln.param : tensor<4xf32> as ("v")
  %c = ln.conv2d %x, %w, %b {size = [3, 3]} : tensor<1x4x3x3xf32> as "conv2d0"("c")
  %y = ln.batchnorm %c, %s, %o, %m, %v {epsilon = 0.001} : tensor<1x4x3x3xf32> as "batchnorm0"("y")
  func.return %y : tensor<1x4x3x3xf32>
}

// -----

// Two in a row go into the weights both, of a grouped convolution too.
// CHECK: ln.conv2d %x, %{{.*}}, %{{.*}} {group = 2, size = [1, 1]} {{.*}}("y")
// CHECK-NEXT: func.return
func.func @main() -> tensor<1x4x5x5xf32> {
  %x = ln.input : tensor<1x2x5x5xf32> as ("x")
  %w = ln.param : tensor<4x1x1x1xf32> as ("w")
  %b = ln.param : tensor<4xf32> as ("b")
  %s = ln.param : tensor<4xf32> as ("s")
  %o = ln.param : tensor<4xf32> as ("o")
  %m = ln.param : tensor<4xf32> as ("m")
  %v = ln.param : tensor<4xf32> as ("v")
  %c = ln.conv2d %x, %w, %b {group = 2, size = [1, 1]} : tensor<1x4x5x5xf32> as ("c")
  %n = ln.batchnorm %c, %s, %o, %m, %v : tensor<1x4x5x5xf32> as ("n")
  %y = ln.batchnorm %n, %s, %o, %m, %v : tensor<1x4x5x5xf32> as ("y")
  func.return %y : tensor<1x4x5x5xf32>
}

// -----

// A deconvolution has its output channels on axis 1.
// CHECK: ln.batchnorm %w, %s, %{{.*}}, %{{.*}}, %v : tensor<3x4x2x2xf32> as ("y_folded_weight")
// CHECK: ln.deconv2d {{.*}}("y")
// CHECK-NEXT: func.return
func.func @main() -> tensor<1x4x6x6xf32> {
  %x = ln.input : tensor<1x3x3x3xf32> as ("x")
  %w = ln.param : tensor<3x4x2x2xf32> as ("w")
  %b = ln.param : tensor<4xf32> as ("b")
  %s = ln.param : tensor<4xf32> as ("s")
  %o = ln.param : tensor<4xf32> as ("o")
  %m = ln.param : tensor<4xf32> as ("m")
  %v = ln.param : tensor<4xf32> as ("v")
  %c = ln.deconv2d %x, %w, %b {size = [2, 2], stride = [2, 2]} : tensor<1x4x6x6xf32> as ("c")
  %y = ln.batchnorm %c, %s, %o, %m, %v : tensor<1x4x6x6xf32> as ("y")
  func.return %y : tensor<1x4x6x6xf32>
}

// -----

// Not where another op, or a caller, sees the convolution itself.
// CHECK: ln.conv2d
// CHECK-NEXT: ln.batchnorm
func.func @main() -> (tensor<1x4x5x5xf32>, tensor<1x4x5x5xf32>) {
  %x = ln.input : tensor<1x3x5x5xf32> as ("x")
  %w = ln.param : tensor<4x3x1x1xf32> as ("w")
  %b = ln.param : tensor<4xf32> as ("b")
  %v = ln.param : tensor<4xf32> as ("v")
  %c = ln.conv2d %x, %w, %b {size = [1, 1]} : tensor<1x4x5x5xf32> as ("c")
  %y = ln.batchnorm %c, %b, %b, %b, %v : tensor<1x4x5x5xf32> as ("y")
  func.return %c, %y : tensor<1x4x5x5xf32>, tensor<1x4x5x5xf32>
}

// -----

// Not with a vector that is fed from call to call.
// CHECK: ln.conv2d
// CHECK-NEXT: ln.batchnorm
func.func @main() -> tensor<1x4x5x5xf32> {
  %x = ln.input : tensor<1x3x5x5xf32> as ("x")
  %w = ln.param : tensor<4x3x1x1xf32> as ("w")
  %b = ln.input : tensor<4xf32> as ("b")
  %v = ln.param : tensor<4xf32> as ("v")
  %c = ln.conv2d %x, %w, %b {size = [1, 1]} : tensor<1x4x5x5xf32> as ("c")
  %y = ln.batchnorm %c, %b, %b, %b, %v : tensor<1x4x5x5xf32> as ("y")
  func.return %y : tensor<1x4x5x5xf32>
}
