// The rules of pads.json: the padding that differs becomes an op, and the relu goes behind the pool; --check says that all of it is right.
// RUN: ln-opt --load %S/pads.json --check=rewrite --pass=bind,expand,subgraph %s | filecheck %s

// CHECK: ln.pad {{.*}} {before = [0, 0, 1, 0], after = [0, 0, 2, 1]}
// CHECK-NEXT: tensor<1x3x11x10xf32> as "pad1"("pad1_dst")
// CHECK: ln.conv2d {{.*}} {size = [3, 3]} : tensor<1x4x9x8xf32> as "conv2d0"("c")
// CHECK: ln.maxpool2d
// CHECK-NEXT: as "maxpool2d0"("maxpool2d0_dst")
// CHECK: ln.relu {{.*}} as "relu0"("y")
func.func @main() -> tensor<1x4x4x4xf32> {
  %x = ln.create {ran = [-1, 1]} : tensor<1x3x8x9xf32> as "create0"("x")
  %w = ln.create {ran = [-1, 1]} : tensor<4x3x3x3xf32> as "create1"("w")
  %b = ln.create {ran = [-1, 1]} : tensor<4xf32> as "create2"("b")
  %c = ln.conv2d %x, %w, %b {size = [3, 3], padding = [1, 0, 2, 1]} : tensor<1x4x9x8xf32> as "conv2d0"("c")
  %r = ln.relu %c : tensor<1x4x9x8xf32> as "relu0"("r")
  %y = ln.maxpool2d %r {size = [2, 2], stride = [2, 2]} : tensor<1x4x4x4xf32> as "maxpool2d0"("y")
  func.return %y : tensor<1x4x4x4xf32>
}
