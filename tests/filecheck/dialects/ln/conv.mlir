// RUN: ln-opt %s --split-input-file --verify-diagnostics | filecheck %s

// Defaults are left out, operand types are not repeated, names stand behind the op.
// CHECK: %y = ln.conv2d %x, %w, %b {size = [3, 3], padding = [1, 1, 1, 1]} : tensor<1x4x6x6xf32> as "conv2d0"("y")
func.func @main(%x: tensor<1x3x6x6xf32>, %w: tensor<4x3x3x3xf32>, %b: tensor<4xf32>) {
  %y = ln.conv2d %x, %w, %b {group = 1, size = [3, 3], stride = [1, 1], padding = [1, 1, 1, 1]} : tensor<1x4x6x6xf32> as "conv2d0"("y")
  func.return
}

// -----
// A group sees its own channels: 4 channels in 2 groups take weights of 2.
// CHECK: ln.conv2d {{.*}} {group = 2, size = [1, 1]} : tensor<1x6x5x5xf32>
func.func @groups(%x: tensor<1x4x5x5xf32>, %w: tensor<6x2x1x1xf32>, %b: tensor<6xf32>) {
  %y = ln.conv2d %x, %w, %b {group = 2, size = [1, 1]} : tensor<1x6x5x5xf32>
  func.return
}

// -----
// Stride 2 halves the picture in a convolution and doubles it in a transposed one.
// CHECK: ln.deconv2d {{.*}} {size = [2, 2], stride = [2, 2]} : tensor<1x5x8x10xf32>
func.func @transposed(%x: tensor<1x3x4x5xf32>, %w: tensor<3x5x2x2xf32>, %b: tensor<5xf32>) {
  %y = ln.deconv2d %x, %w, %b {size = [2, 2], stride = [2, 2]} : tensor<1x5x8x10xf32>
  func.return
}

// -----
func.func @channels(%x: tensor<1x3x6x6xf32>, %w: tensor<4x2x3x3xf32>, %b: tensor<4xf32>) {
  // expected-error@+1 {{conv2d: `c` should satisfy "weight.dims[1] * group == src.dims[1]"}}
  %y = ln.conv2d %x, %w, %b {size = [3, 3]} : tensor<1x4x4x4xf32> as "c"
  func.return
}

// -----
func.func @bias(%x: tensor<1x3x6x6xf32>, %w: tensor<4x3x3x3xf32>, %b: tensor<5xf32>) {
  // expected-error@+1 {{"bias.dims[0] == weight.dims[0]"}}
  %y = ln.conv2d %x, %w, %b {size = [3, 3]} : tensor<1x4x4x4xf32>
  func.return
}

// -----
func.func @rank(%x: tensor<3x6x6xf32>, %w: tensor<4x3x3x3xf32>, %b: tensor<4xf32>) {
  // expected-error@+1 {{tensor `src` should be a 4-dimensional tensor, but gets tensor<3x6x6xf32>}}
  %y = ln.conv2d %x, %w, %b {size = [3, 3]} : tensor<1x4x4x4xf32>
  func.return
}

// -----
func.func @result(%x: tensor<1x3x6x6xf32>, %w: tensor<4x3x3x3xf32>, %b: tensor<4xf32>) {
  // expected-error@+1 {{its results should be tensor<1x4x4x4xf32>, but are tensor<1x4x6x6xf32>}}
  %y = ln.conv2d %x, %w, %b {size = [3, 3]} : tensor<1x4x6x6xf32>
  func.return
}

// -----
func.func @length(%x: tensor<1x3x6x6xf32>, %w: tensor<4x3x3x3xf32>, %b: tensor<4xf32>) {
  // expected-error@+1 {{`size` param needs 2 elements, but gets 3 elements}}
  %y = ln.conv2d %x, %w, %b {size = [3, 3, 3]} : tensor<1x4x4x4xf32>
  func.return
}

// -----
func.func @bound(%x: tensor<1x3x6x6xf32>, %w: tensor<4x3x3x3xf32>, %b: tensor<4xf32>) {
  // expected-error@+1 {{`stride` param[1]'s value should be >= 1, but gets a 0}}
  %y = ln.conv2d %x, %w, %b {size = [3, 3], stride = [1, 0]} : tensor<1x4x4x4xf32>
  func.return
}

// -----
func.func @unknown(%x: tensor<1x3x6x6xf32>, %w: tensor<4x3x3x3xf32>, %b: tensor<4xf32>) {
  // expected-error@+1 {{unknown parameter 'strides'; there are: group, size, stride, dilation, padding, autopad}}
  %y = ln.conv2d %x, %w, %b {size = [3, 3], strides = [1, 1]} : tensor<1x4x4x4xf32>
  func.return
}
