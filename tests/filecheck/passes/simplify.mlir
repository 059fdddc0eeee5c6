// RUN: ln-opt %s --split-input-file --pass=simplify | filecheck %s

// Chains of reshapes are one; a forward in between is nothing.
// CHECK: %[[X:.*]] = ln.input
// CHECK-NEXT: ln.reshape %[[X]] : tensor<3x2xf32> as "reshape1"("y")
func.func @main() -> tensor<3x2xf32> {
  %x = ln.input : tensor<2x3xf32> as ("x")
  %a = ln.forward %x : tensor<2x3xf32> as "forward0"("a")
  %b = ln.reshape %a : tensor<6xf32> as "reshape0"("b")
  %y = ln.reshape %b : tensor<3x2xf32> as "reshape1"("y")
  func.return %y : tensor<3x2xf32>
}

// -----

// An output keeps its name: a forward of a named tensor stays where it is returned, and nowhere else.
// CHECK: %[[Y:.*]] = ln.forward %x : tensor<3xf32> as "forward0"("y")
// CHECK-NEXT: %[[Z:.*]] = ln.relu %x
// CHECK-NEXT: ln.print %x {msg = "y:"}
// CHECK-NEXT: func.return %[[Y]], %[[Z]]
func.func @main() -> (tensor<3xf32>, tensor<3xf32>) {
  %x = ln.input : tensor<3xf32> as ("x")
  %y = ln.forward %x : tensor<3xf32> as "forward0"("y")
  %z = ln.relu %y : tensor<3xf32> as ("z")
  ln.print %y {msg = "y:"}
  func.return %y, %z : tensor<3xf32>, tensor<3xf32>
}

// -----

// Any other op that is equal to its operand becomes such a forward.
// CHECK: %[[A:.*]] = ln.relu %x
// CHECK-NEXT: ln.forward %[[A]] : tensor<3xf32> as "relu1"("y")
func.func @main() -> (tensor<3xf32>, tensor<3xf32>) {
  %x = ln.input : tensor<3xf32> as ("x")
  %a = ln.relu %x : tensor<3xf32> as "relu0"("a")
  %y = ln.relu %a : tensor<3xf32> as "relu1"("y")
  func.return %a, %y : tensor<3xf32>, tensor<3xf32>
}

// -----

// Transposes compose; one that only moves axes of length 1 is a reshape.
// CHECK: %[[T:.*]] = ln.transpose %x {axes = [2, 0, 1]} : tensor<4x2x3xf32>
// CHECK-NEXT: ln.reshape %[[T]] : tensor<4x1x2x3xf32>
func.func @main() -> tensor<4x1x2x3xf32> {
  %x = ln.input : tensor<2x3x4xf32> as ("x")
  %a = ln.transpose %x {axes = [1, 0, 2]} : tensor<3x2x4xf32> as ("a")
  %b = ln.transpose %a {axes = [2, 1, 0]} : tensor<4x2x3xf32> as ("b")
  %c = ln.reshape %b : tensor<1x4x2x3xf32> as ("c")
  %d = ln.transpose %c {axes = [1, 0, 2, 3]} : tensor<4x1x2x3xf32> as ("d")
  func.return %d : tensor<4x1x2x3xf32>
}

// -----

// A transpose and its inverse are nothing.
// CHECK: %[[X:.*]] = ln.input
// CHECK-NEXT: ln.sigmoid %[[X]]
func.func @main() -> tensor<2x3x4xf32> {
  %x = ln.input : tensor<2x3x4xf32> as ("x")
  %a = ln.transpose %x {axes = [1, 2, 0]} : tensor<3x4x2xf32> as ("a")
  %b = ln.transpose %a {axes = [2, 0, 1]} : tensor<2x3x4xf32> as ("b")
  %c = ln.sigmoid %b : tensor<2x3x4xf32> as ("c")
  func.return %c : tensor<2x3x4xf32>
}

// -----

// Slices of slices, of one side of a concatenation, and neighbours that are put together again.
// CHECK: %[[S:.*]] = ln.slice %x {axis = 1, start = 1, len = 4}
// CHECK-NEXT: %[[A:.*]] = ln.slice %x {axis = 1, start = 2, len = 2}
// CHECK-NEXT: %[[B:.*]] = ln.slice %z {axis = 1, start = 1, len = 1}
// CHECK-NEXT: %[[R:.*]] = ln.forward %[[S]] {{.*}} as ("r")
// CHECK-NEXT: func.return %[[S]], %[[A]], %[[B]], %[[R]]
func.func @main() -> (tensor<1x4xf32>, tensor<1x2xf32>, tensor<1x1xf32>, tensor<1x4xf32>) {
  %x = ln.input : tensor<1x5xf32> as ("x")
  %z = ln.input : tensor<1x3xf32> as ("z")
  %s = ln.slice %x {axis = 1, start = 1, len = 4} : tensor<1x4xf32> as ("s")
  %a = ln.slice %s {axis = 1, start = 1, len = 2} : tensor<1x2xf32> as ("a")
  %c = ln.concat %x, %z {axis = 1} : tensor<1x8xf32> as ("c")
  %b = ln.slice %c {axis = 1, start = 6, len = 1} : tensor<1x1xf32> as ("b")
  %p = ln.slice %x {axis = 1, start = 1, len = 1} : tensor<1x1xf32> as ("p")
  %q = ln.slice %x {axis = 1, start = 2, len = 3} : tensor<1x3xf32> as ("q")
  %r = ln.concat %p, %q {axis = 1} : tensor<1x4xf32> as ("r")
  func.return %s, %a, %b, %r : tensor<1x4xf32>, tensor<1x2xf32>, tensor<1x1xf32>, tensor<1x4xf32>
}

// -----

// Gather undoes scatter, and scatter gather.
// CHECK: %[[R:.*]] = ln.relu %x
// CHECK-NEXT: %[[S:.*]] = ln.sigmoid %z
// CHECK-NEXT: func.return %[[R]], %[[S]]
func.func @main() -> (tensor<2x3xf32>, tensor<3xf32>) {
  %x = ln.input : tensor<2x3xf32> as ("x")
  %z = ln.input : tensor<3xf32> as ("z")
  %a, %b = ln.scatter %x : tensor<3xf32>, tensor<3xf32> as ("a", "b")
  %g = ln.gather %a, %b : tensor<2x3xf32> as ("g")
  %r = ln.relu %g : tensor<2x3xf32> as ("r")
  %h = ln.gather %a, %z : tensor<2x3xf32> as ("h")
  %c, %d = ln.scatter %h : tensor<3xf32>, tensor<3xf32> as ("c", "d")
  %s = ln.sigmoid %d : tensor<3xf32> as ("s")
  func.return %r, %s : tensor<2x3xf32>, tensor<3xf32>
}

// -----

// Ops that cannot change anything: of types without a sign, on axes of length 1, to the dims there are.
// CHECK: %[[X:.*]] = ln.input
// CHECK-NEXT: %[[Y:.*]] = ln.transpose %[[X]]
// CHECK-NEXT: func.return %[[Y]]
func.func @main() -> tensor<3x1x2xui8> {
  %x = ln.input : tensor<2x1x3xui8> as ("x")
  %a = ln.relu %x : tensor<2x1x3xui8> as ("a")
  %b = ln.lrelu %a {negslope = 0.5} : tensor<2x1x3xui8> as ("b")
  %c = ln.maxreduce %b {axis = 1} : tensor<2x1x3xui8> as ("c")
  %d = ln.resize %c : tensor<2x1x3xui8> as ("d")
  %e = ln.upsample %d {scales = [1, 1, 1]} : tensor<2x1x3xui8> as ("e")
  %f = ln.elew %e, %e {elew_op = "TL_MAX"} : tensor<2x1x3xui8> as ("f")
  %g = ln.slice %f {axis = 0, start = 0, len = 2} : tensor<2x1x3xui8> as ("g")
  %y = ln.transpose %g {axes = [2, 1, 0]} : tensor<3x1x2xui8> as ("y")
  func.return %y : tensor<3x1x2xui8>
}

// -----

// The contents of what rearange numbers anew do not matter: nobody need make them.
// CHECK-NOT: ln.input
// CHECK: ln.arange {start = 0, stop = 3, step = 1} : tensor<3xi32> as "rearange0"("y")
func.func @main() -> tensor<3xi32> {
  %x = ln.input {ran = [0, 9]} : tensor<3xi32> as ("x")
  %y = ln.rearange %x {start = 0, stop = 3, step = 1} : tensor<3xi32> as "rearange0"("y")
  func.return %y : tensor<3xi32>
}

// -----

// A constant stands behind the other operand of a sum and a product, where rules look for it; a neutral one goes.
// CHECK: %[[X:.*]] = ln.input
// CHECK-NEXT: %[[T:.*]] = ln.constant {data = [2]}
// CHECK-NEXT: %[[A:.*]] = ln.mul %[[X]], %[[T]]
// CHECK-NEXT: %[[B:.*]] = ln.add %[[A]], %[[T]]
// CHECK-NEXT: func.return %[[B]]
func.func @main() -> tensor<2x3xf32> {
  %x = ln.input : tensor<2x3xf32> as ("x")
  %two = ln.constant {data = [2]} : tensor<f32>
  %one = ln.constant {data = [1]} : tensor<1xf32>
  %zero = ln.zeros : tensor<3xf32>
  %a = ln.mul %two, %x : tensor<2x3xf32>
  %b = ln.mul %one, %a : tensor<2x3xf32>
  %c = ln.div %b, %one : tensor<2x3xf32>
  %d = ln.sub %c, %zero : tensor<2x3xf32>
  %y = ln.add %two, %d : tensor<2x3xf32>
  func.return %y : tensor<2x3xf32>
}

// -----

// What anybody may feed is no such number; x + 0 is not x where x is -0, and a product that repeats x is none of x.
// CHECK: ln.mul %x, %one
// CHECK: ln.add %{{.*}}, %{{.*}} : tensor<2x3xf32>
// CHECK: ln.mul %{{.*}}, %{{.*}} : tensor<2x2x3xf32>
// CHECK-NEXT: func.return
func.func @main() -> tensor<2x2x3xf32> {
  %x = ln.input : tensor<2x3xf32> as ("x")
  %one = ln.param {data = [1]} : tensor<1xf32> as ("one")
  %zero = ln.constant {data = [0]} : tensor<1xf32> as ("zero")
  %ones = ln.constant {data = [1, 1]} : tensor<2x1x1xf32> as ("ones")
  %a = ln.mul %x, %one : tensor<2x3xf32>
  %b = ln.add %a, %zero : tensor<2x3xf32>
  %y = ln.mul %b, %ones : tensor<2x2x3xf32>
  func.return %y : tensor<2x2x3xf32>
}
