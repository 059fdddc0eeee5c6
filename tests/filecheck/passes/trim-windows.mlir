// RUN: ln-opt %s --split-input-file --pass=trim-windows | filecheck %s

// Of a window whose outer taps lie in the padding wherever it stands, the middle stays.
// CHECK: %[[W:.*]] = ln.slice %w {axis = 2, start = 1, len = 1} : tensor<4x3x1x3xf32>
// CHECK: %[[W1:.*]] = ln.slice %[[W]] {axis = 3, start = 1, len = 1} : tensor<4x3x1x1xf32> as ("y_trimmed_weight")
// CHECK: %[[Y:.*]] = ln.conv2d %x, %[[W1]], %b {size = [1, 1]} : tensor<1x4x5x6xf32> as "conv2d0"("y")
// CHECK-NEXT: func.return %[[Y]]
func.func @main() -> tensor<1x4x5x6xf32> {
  %x = ln.input : tensor<1x3x5x6xf32> as ("x")
  %w = ln.param : tensor<4x3x3x3xf32> as ("w")
  %b = ln.param : tensor<4xf32> as ("b")
  %y = ln.conv2d %x, %w, %b {size = [3, 3], dilation = [8, 7], padding = [8, 7, 8, 7]} : tensor<1x4x5x6xf32> as "conv2d0"("y")
  func.return %y : tensor<1x4x5x6xf32>
}

// -----

// Columns alone: rows are read. The padding goes along with the columns before the first that stays.
// CHECK: ln.slice %w {axis = 3, start = 1, len = 2} : tensor<4x3x3x2xf32>
// CHECK: ln.conv2d {{.*}} {size = [3, 2], dilation = [1, 4], padding = [1, 1, 1, 3]}
func.func @main() -> tensor<1x4x5x5xf32> {
  %x = ln.input : tensor<1x3x5x5xf32> as ("x")
  %w = ln.param : tensor<4x3x3x3xf32> as ("w")
  %b = ln.param : tensor<4xf32> as ("b")
  %y = ln.conv2d %x, %w, %b {size = [3, 3], dilation = [1, 4], padding = [1, 5, 1, 3]} : tensor<1x4x5x5xf32> as ("y")
  func.return %y : tensor<1x4x5x5xf32>
}

// -----

// A window that reads the picture with each of its taps stays, and so does one that reads nothing at all.
// CHECK-NOT: ln.slice
// CHECK: ln.conv2d %x, %w, %b {size = [3, 3], dilation = [2, 2], padding = [2, 2, 2, 2]}
// CHECK: ln.conv2d %x, %v, %b {size = [2, 2], stride = [30, 30], padding = [9, 9, 9, 9]}
func.func @main() -> (tensor<1x4x5x5xf32>, tensor<1x4x1x1xf32>) {
  %x = ln.input : tensor<1x3x5x5xf32> as ("x")
  %w = ln.param : tensor<4x3x3x3xf32> as ("w")
  %v = ln.param : tensor<4x3x2x2xf32> as ("v")
  %b = ln.param : tensor<4xf32> as ("b")
  %y = ln.conv2d %x, %w, %b {size = [3, 3], dilation = [2, 2], padding = [2, 2, 2, 2]} : tensor<1x4x5x5xf32> as ("y")
  %z = ln.conv2d %x, %v, %b {size = [2, 2], padding = [9, 9, 9, 9], stride = [30, 30]} : tensor<1x4x1x1xf32> as ("z")
  func.return %y, %z : tensor<1x4x5x5xf32>, tensor<1x4x1x1xf32>
}
