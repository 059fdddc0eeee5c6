// The test of my_pass.py. Run it with `pytest tests/test_docs.py`, or by hand with the first of these lines.
// RUN: ln-opt --load %S/my_pass.py --pass=my-pass,expand,ln-dce %s | filecheck %s
// RUN: ln-opt --load %S/my_pass.py --list-passes | filecheck %s --check-prefix=LIST

// LIST: my-pass{{ +}}Removes a relu of a relu

func.func @main() -> (tensor<2x3xf32>, tensor<1x6x8x8xf32>) {
  %x = ln.create {ran = [0, 1]} : tensor<2x3xf32>
  // The pass: one relu is left, under the name of the second.
  // CHECK: %[[X:.*]] = ln.create {ran = [0, 1]} : tensor<2x3xf32>
  // CHECK: cpu.kernel(%[[A:.*]] = %[[X]]) {
  // CHECK-NEXT: ln.relu %[[A]] : tensor<2x3xf32> as "relu1"("z")
  // CHECK-NOT: ln.relu
  %y = ln.relu %x : tensor<2x3xf32> as "relu0"("y")
  %z = ln.relu %y : tensor<2x3xf32> as "relu1"("z")

  // The pattern: two convolutions of one group, each a kernel of its own.
  // CHECK-COUNT-2: ln.conv2d {{.*}} {size = [3, 3]} : tensor<1x3x8x8xf32>
  // CHECK: ln.concat {{.*}} {axis = 1} : tensor<1x6x8x8xf32>
  // CHECK: as ("c")
  %i = ln.input {ran = [0, 1]} : tensor<1x4x10x10xf32>
  %w = ln.param {ran = [0, 1]} : tensor<6x2x3x3xf32>
  %b = ln.param {ran = [0, 1]} : tensor<6xf32>
  %c = ln.conv2d %i, %w, %b {group = 2, size = [3, 3]} : tensor<1x6x8x8xf32> as "conv2d0"("c")
  func.return %z, %c : tensor<2x3xf32>, tensor<1x6x8x8xf32>
}
