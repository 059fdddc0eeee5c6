// RUN: ln-opt --pass=check-indices --columns=0 %s | filecheck %s

// A check of two ops that read one index under one bound stands once; what has no index has none.
// CHECK-LABEL: func.func @main
func.func @main(%x: tensor<5x4xf32>, %i: tensor<3xi64>) -> (tensor<3x4xf32>, tensor<3x4xf32>) {
  %y = ln.take %x, %i {axis = 0} : tensor<3x4xf32>
  %r = ln.relu %x : tensor<5x4xf32>
  %z = ln.take %r, %i {axis = 0} : tensor<3x4xf32>
  // CHECK: ln.less %i
  // CHECK: ln.less_equal {{.*}}, %i
  // CHECK: ln.argmax
  // CHECK: %[[C:.*]] = ln.concat
  // CHECK-SAME: check-indices:0:3:5:take
  // CHECK-NOT: ln.concat
  // CHECK: func.return %y, %z, %[[C]]
  func.return %y, %z : tensor<3x4xf32>, tensor<3x4xf32>
}
