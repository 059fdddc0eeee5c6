// RUN: ln-opt %s --split-input-file --pass=precision{to=f16} | filecheck %s
// RUN: ln-opt %s --split-input-file --pass=precision{to=f16},simplify,hoist --check | filecheck %s --check-prefix=ONCE

// Between inputs and outputs everything is f16: what is read is rounded once, and an output keeps its type and its name.
// CHECK-LABEL: @main
// CHECK-DAG: %[[X:.*]] = ln.cast %x {mode = "wrap"} : tensor<1x3x6x6xf16> as ("x_f16")
// CHECK-DAG: %[[W:.*]] = ln.cast %w {mode = "wrap"} : tensor<4x3x3x3xf16> as ("w_f16")
// CHECK-DAG: %[[B:.*]] = ln.cast %b {mode = "wrap"} : tensor<4xf16> as ("b_f16")
// CHECK: %[[C:.*]] = ln.conv2d %[[X]], %[[W]], %[[B]] {size = [3, 3]} : tensor<1x4x4x4xf16> as "conv"("c")
// CHECK-NEXT: %[[R:.*]] = ln.relu %[[C]] : tensor<1x4x4x4xf16> as ("r")
// CHECK-NEXT: %[[P:.*]] = ln.maxpool2d %[[R]] {{.*}} : tensor<1x4x2x2xf16> as ("y_f16")
// CHECK-NEXT: %[[Y:.*]] = ln.cast %[[P]] : tensor<1x4x2x2xf32> as ("y")
// CHECK-NEXT: func.return %[[Y]] : tensor<1x4x2x2xf32>

// Weights are rounded where params are read: in memory they are f16.
// ONCE: ln.once {
// ONCE: ln.yield
// ONCE-NEXT: } : tensor<4x3x3x3xf16>, tensor<4xf16>
func.func @main() -> tensor<1x4x2x2xf32> {
  %x = ln.input {ran = [-1, 1]} : tensor<1x3x6x6xf32> as ("x")
  %w = ln.param {ran = [-1, 1]} : tensor<4x3x3x3xf32> as ("w")
  %b = ln.param {ran = [-1, 1]} : tensor<4xf32> as ("b")
  %c = ln.conv2d %x, %w, %b {size = [3, 3]} : tensor<1x4x4x4xf32> as "conv"("c")
  %r = ln.relu %c : tensor<1x4x4x4xf32> as ("r")
  %y = ln.maxpool2d %r {size = [2, 2], stride = [2, 2]} : tensor<1x4x2x2xf32> as ("y")
  func.return %y : tensor<1x4x2x2xf32>
}

// -----

// A softmax leaves the range of f16 on its way, and stays f32; so does the move of what it made, which rounds nothing twice.
// CHECK-LABEL: @main
// CHECK: %[[M:.*]] = ln.matmul {{.*}} : tensor<2x10xf16> as ("m")
// CHECK-NEXT: %[[F:.*]] = ln.cast %[[M]] : tensor<2x10xf32>
// CHECK-NEXT: %[[S:.*]] = ln.softmax %[[F]] {axis = 1} : tensor<2x10xf32> as ("s")
// CHECK-NEXT: %[[Y:.*]] = ln.reshape %[[S]] : tensor<20xf32> as ("y")
// CHECK-NEXT: func.return %[[Y]] : tensor<20xf32>
func.func @main() -> tensor<20xf32> {
  %x = ln.input {ran = [-1, 1]} : tensor<2x8xf32> as ("x")
  %w = ln.param {ran = [-1, 1]} : tensor<8x10xf32> as ("w")
  %m = ln.matmul %x, %w : tensor<2x10xf32> as ("m")
  %s = ln.softmax %m {axis = 1} : tensor<2x10xf32> as ("s")
  %y = ln.reshape %s : tensor<20xf32> as ("y")
  func.return %y : tensor<20xf32>
}

// -----

// A sum of few elements keeps the range, one of many does not; integers are no floats, and ops on params alone are evaluated once in f32.
// CHECK-LABEL: @main
// CHECK: ln.reduce_sum %{{.*}} {{.*}} : tensor<4x1xf16> as ("few_f16")
// CHECK: ln.reduce_sum %x {{.*}} : tensor<4x1xf32> as ("many")
// CHECK: ln.argmax %{{.*}} : tensor<4x1xi64>
// CHECK: %[[V:.*]] = ln.exp %w : tensor<1000xf32> as ("v")
// CHECK: ln.cast %[[V]] {mode = "wrap"} : tensor<1000xf16>
func.func @main() -> (tensor<4x1xf32>, tensor<4x1xf32>, tensor<4x1xi64>, tensor<4x1000xf32>) {
  %x = ln.input {ran = [-1, 1]} : tensor<4x1000xf32> as ("x")
  %w = ln.param {ran = [-1, 1]} : tensor<1000xf32> as ("w")
  %z = ln.slice %x {axis = 1, start = 0, len = 100} : tensor<4x100xf32> as ("z")
  %few = ln.reduce_sum %z {axes = [1]} : tensor<4x1xf32> as ("few")
  %many = ln.reduce_sum %x {axes = [1]} : tensor<4x1xf32> as ("many")
  %i = ln.argmax %x {axis = 1} : tensor<4x1xi64> as ("i")
  %v = ln.exp %w : tensor<1000xf32> as ("v")
  %y = ln.add %x, %v : tensor<4x1000xf32> as ("y")
  func.return %few, %many, %i, %y : tensor<4x1xf32>, tensor<4x1xf32>, tensor<4x1xi64>, tensor<4x1000xf32>
}
