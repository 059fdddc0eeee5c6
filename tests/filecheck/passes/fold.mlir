// RUN: ln-opt %s --split-input-file --pass=fold,ln-dce | filecheck %s

// A slice of a range is a range.
// CHECK: ln.arange {start = 2.0, stop = 5.0, step = 1.0} : tensor<3xf32> as "slice0"("b")
// CHECK-NEXT: func.return
func.func @main() -> tensor<3xf32> {
  %a = ln.arange {start = 0, stop = 6, step = 1} : tensor<6xf32> as ("a")
  %b = ln.slice %a {axis = 0, start = 2, len = 3} : tensor<3xf32> as "slice0"("b")
  func.return %b : tensor<3xf32>
}

// -----

// Moves of zeros are zeros, at any size.
// CHECK: ln.zeros : tensor<1000x100xi8> as ("b")
// CHECK-NEXT: func.return
func.func @main() -> tensor<1000x100xi8> {
  %a = ln.zeros : tensor<100x1000xi8> as ("a")
  %b = ln.transpose %a {axes = [1, 0]} : tensor<1000x100xi8> as ("b")
  func.return %b : tensor<1000x100xi8>
}

// -----

// Arithmetic folds where the result can be spelt: 2 * [0, 1, 2] is a range, its square is none.
// CHECK: %[[D:.*]] = ln.arange {start = 0, stop = 6, step = 2} : tensor<3xi32> as ("double")
// CHECK: ln.elew %[[D]], %[[D]] {elew_op = "TL_MUL"} : tensor<3xi32> as ("square")
func.func @main() -> tensor<3xi32> {
  %a = ln.arange {start = 0, stop = 3, step = 1} : tensor<3xi32> as ("a")
  %double = ln.elew %a, %a {elew_op = "TL_SUM"} : tensor<3xi32> as ("double")
  %square = ln.elew %double, %double {elew_op = "TL_MUL"} : tensor<3xi32> as ("square")
  func.return %square : tensor<3xi32>
}

// -----

// The contents of params are no constants, inline or not: anybody may feed them.
// CHECK: ln.param {data = [0, 1, 2]}
// CHECK-NEXT: ln.slice
func.func @main() -> tensor<2xf32> {
  %a = ln.param {data = [0, 1, 2]} : tensor<3xf32> as ("a")
  %b = ln.slice %a {axis = 0, start = 0, len = 2} : tensor<2xf32> as ("b")
  func.return %b : tensor<2xf32>
}

// -----

// What nobody can feed is a constant: ops on such fold to one, up to 16 elements; an output is computed.
// CHECK: func.func @main() -> (tensor<2x3xf32>, tensor<3xf32>)
// CHECK: %[[C:.*]] = ln.constant {data = [3.0, 6.0]} : tensor<2x1xf32>
// CHECK: ln.mul %x, %[[C]]
// CHECK: ln.mul %a, %three : tensor<3xf32> as ("z")
func.func @main() -> (tensor<2x3xf32>, tensor<3xf32>) {
  %x = ln.input : tensor<2x3xf32> as ("x")
  %a = ln.constant {data = [1, 2, 4]} : tensor<3xf32> as ("a")
  %three = ln.constant {data = [3]} : tensor<f32> as ("three")
  %b = ln.slice %a {axis = 0, start = 0, len = 2} : tensor<2xf32> as ("b")
  %c = ln.mul %b, %three : tensor<2xf32> as ("c")
  %d = ln.reshape %c : tensor<2x1xf32> as ("d")
  %y = ln.mul %x, %d : tensor<2x3xf32> as ("y")
  %z = ln.mul %a, %three : tensor<3xf32> as ("z")
  func.return %y, %z : tensor<2x3xf32>, tensor<3xf32>
}
