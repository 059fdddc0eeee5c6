// RUN: ln-opt %s --split-input-file --verify-diagnostics | filecheck %s

// CHECK: ln.concat %x, %y {axis = 1} : tensor<2x7xf32>
// CHECK: ln.slice %x {axis = 1, start = 1, len = 2} : tensor<2x2xf32>
// CHECK: ln.transpose %x {axes = [1, 0]} : tensor<3x2xf32>
// CHECK: ln.reshape %x : tensor<6xf32>
// CHECK: ln.forward %x : tensor<2x3xf32>
// CHECK: ln.gather %x, %x : tensor<2x2x3xf32>
// CHECK: %s.1, %s.2 = ln.scatter %x : tensor<3xf32>, tensor<3xf32> as ("s_1", "s_2")
// CHECK: ln.scatter %v : tensor<f32>, tensor<f32>
// CHECK: ln.concat %x, %y, %x {axis = 1} : tensor<2x10xf32>
func.func @main(%x: tensor<2x3xf32>, %y: tensor<2x4xf32>, %v: tensor<2xf32>) {
  %a = ln.concat %x, %y {axis = 1} : tensor<2x7xf32>
  %b = ln.slice %x {axis = 1, start = 1, len = 2} : tensor<2x2xf32>
  %c = ln.transpose %x {axes = [1, 0]} : tensor<3x2xf32>
  %d = ln.reshape %x : tensor<6xf32>
  %e = ln.forward %x : tensor<2x3xf32>
  %f = ln.gather %x, %x : tensor<2x2x3xf32>
  %s.1, %s.2 = ln.scatter %x : tensor<3xf32>, tensor<3xf32> as ("s_1", "s_2")
  %t.1, %t.2 = ln.scatter %v : tensor<f32>, tensor<f32>
  %g = ln.concat %x, %y, %x {axis = 1} : tensor<2x10xf32>
  func.return
}

// -----
func.func @concat(%x: tensor<2x3xf32>, %y: tensor<3x3xf32>) {
  // expected-error@+1 {{should have the same dimensions but along axis 1}}
  %a = ln.concat %x, %y {axis = 1} : tensor<2x6xf32>
  func.return
}

// -----
func.func @slice(%x: tensor<2x3xf32>) {
  // expected-error@+1 {{"start + len <= src.dims[axis]", but gets 4 against 3}}
  %a = ln.slice %x {axis = 1, start = 2, len = 2} : tensor<2x2xf32>
  func.return
}

// -----
func.func @axis(%x: tensor<2x3xf32>) {
  // expected-error@+1 {{`axis` param's value should be < 2, but gets a 5}}
  %a = ln.slice %x {axis = 5, start = 0, len = 2} : tensor<2x2xf32>
  func.return
}

// -----
func.func @axes(%x: tensor<2x3xf32>) {
  // expected-error@+1 {{permutation(axes)}}
  %a = ln.transpose %x {axes = [1, 1]} : tensor<3x3xf32>
  func.return
}

// -----
func.func @reshape(%x: tensor<2x3xf32>) {
  // expected-error@+1 {{5 against 6}}
  %a = ln.reshape %x : tensor<5xf32>
  func.return
}

// -----
func.func @gather(%x: tensor<2x3xf32>, %y: tensor<2x4xf32>) {
  // expected-error@+1 {{should have the same shape}}
  %a = ln.gather %x, %y : tensor<2x2x3xf32>
  func.return
}

// -----
func.func @scatter(%x: tensor<f32>) {
  // expected-error@+1 {{should have at least 1 dimension}}
  %a = ln.scatter %x : tensor<f32>
  func.return
}
