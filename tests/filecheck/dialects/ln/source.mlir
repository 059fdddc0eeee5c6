// RUN: ln-opt %s --split-input-file --verify-diagnostics | filecheck %s

// Where contents come from: a store, a range, or literals; dims and dtype are the result's type.
// CHECK: %x = ln.create {data = [1, 2.5, -3]} : tensor<3xf32> as "create0"("x")
// CHECK: ln.input {ran = [0, 255], from_file = true} : tensor<1x3x4x4xui8>
// CHECK: ln.param {from_file = true} : tensor<4x3xf64>
// CHECK: ln.zeros : tensor<2xi1>
// CHECK: ln.arange {start = 0, stop = 5, step = 2} : tensor<3xi32>
// CHECK: ln.rearange %x {start = 0, stop = 3, step = 1} : tensor<3xf32>
func.func @main() {
  %x = ln.create {data = [1, 2.5, -3], ran = [0, 0], from_file = false} : tensor<3xf32> as "create0"("x")
  %i = ln.input {ran = [0, 255], from_file = true} : tensor<1x3x4x4xui8>
  %p = ln.param {from_file = true} : tensor<4x3xf64>
  %z = ln.zeros : tensor<2xi1>
  %a = ln.arange {start = 0, stop = 5, step = 2} : tensor<3xi32>
  %r = ln.rearange %x {start = 0, stop = 3, step = 1} : tensor<3xf32>
  func.return
}

// -----
func.func @order() {
  // expected-error@+1 {{create.ran-order}}
  %x = ln.create {ran = [1, 0]} : tensor<3xf32>
  func.return
}

// -----
func.func @size() {
  // expected-error@+1 {{more than the limit}}
  %x = ln.create : tensor<1048576x1048576xf32>
  func.return
}

// -----
func.func @range() {
  // expected-error@+1 {{should lie in the range of TL_UINT8}}
  %x = ln.arange {start = 0, stop = 300, step = 1} : tensor<300xui8>
  func.return
}

// -----
func.func @length(%x: tensor<3xi32>) {
  // expected-error@+1 {{expected 3, got 4}}
  %r = ln.rearange %x {start = 0, stop = 4, step = 1} : tensor<3xi32>
  func.return
}
