// RUN: ln-opt %s --split-input-file --pass=cascade | filecheck %s
// RUN: ln-opt %s --pass=@cpu:graph --layout=plain --split-input-file | filecheck %s --check-prefix=PLAIN
// RUN: ln-opt %s --pass=@cpu:graph --split-input-file | filecheck %s --check-prefix=BLOCKED

// The map between the two convolutions, 8 MiB, is there in two parts, one after the other: rows that the windows of both
// read are computed twice, and what pads it is above the first and below the last.
// CHECK-LABEL: @main
// CHECK: %[[X0:.*]] = ln.slice %x {axis = 2, start = 0, len = 129} : tensor<1x2x129x256xf32>
// CHECK-NEXT: %[[C0:.*]] = ln.conv2d %[[X0]], %w, %b {size = [3, 3], padding = [1, 1, 0, 1]} : tensor<1x32x128x256xf32>
// CHECK-NEXT: %[[R0:.*]] = ln.relu %[[C0]] : tensor<1x32x128x256xf32>
// CHECK-NEXT: %[[Y0:.*]] = ln.conv2d %[[R0]], %v, %c {size = [3, 3], stride = [2, 2], padding = [1, 1, 0, 1]} : tensor<1x72x64x128xf32>
// CHECK-NEXT: %[[X1:.*]] = ln.slice %x {axis = 2, start = 126, len = 130} : tensor<1x2x130x256xf32>
// CHECK-NEXT: ln.conv2d %[[X1]], %w, %b {size = [3, 3], padding = [0, 1, 1, 1]} : tensor<1x32x129x256xf32>
// CHECK-NEXT: ln.relu
// CHECK-NEXT: %[[Y1:.*]] = ln.conv2d {{.*}}, %v, %c {size = [3, 3], stride = [2, 2], padding = [0, 1, 0, 1]} : tensor<1x72x64x128xf32>
// CHECK-NEXT: %[[Y:.*]] = ln.concat %[[Y0]], %[[Y1]] {axis = 2} : tensor<1x72x128x128xf32> as ("y")
// CHECK-NEXT: func.return %[[Y]]
// PLAIN: ln.concat
// BLOCKED-NOT: ln.concat
func.func @main() -> tensor<1x72x128x128xf32> {
  %x = ln.input : tensor<1x2x256x256xf32> as ("x")
  %w = ln.param : tensor<32x2x3x3xf32> as ("w")
  %b = ln.param : tensor<32xf32> as ("b")
  %v = ln.param : tensor<72x32x3x3xf32> as ("v")
  %c = ln.param : tensor<72xf32> as ("c")
  %m = ln.conv2d %x, %w, %b {size = [3, 3], padding = [1, 1, 1, 1]} : tensor<1x32x256x256xf32> as ("m")
  %r = ln.relu %m : tensor<1x32x256x256xf32> as ("r")
  %y = ln.conv2d %r, %v, %c {size = [3, 3], stride = [2, 2], padding = [1, 1, 1, 1]} : tensor<1x72x128x128xf32> as ("y")
  func.return %y : tensor<1x72x128x128xf32>
}
