// RUN: ln-opt %s --split-input-file --pass=ln-cse | filecheck %s

// Equal ops on equal operands are one.
// CHECK: %[[A:.*]] = ln.relu
// CHECK-NEXT: ln.elew %[[A]], %[[A]]
func.func @main() -> tensor<3xf32> {
  %x = ln.input : tensor<3xf32> as ("x")
  %a = ln.relu %x : tensor<3xf32> as "relu0"("a")
  %b = ln.relu %x : tensor<3xf32> as "relu1"("b")
  %y = ln.elew %a, %b {elew_op = "TL_SUM"} : tensor<3xf32> as ("y")
  func.return %y : tensor<3xf32>
}

// -----

// Params and inputs are told apart by their names; ops that differ in a parameter are not equal.
// CHECK: ln.input {{.*}} as ("x")
// CHECK: ln.input {{.*}} as ("z")
// CHECK: negslope = 0.1
// CHECK: negslope = 0.2
func.func @main() -> (tensor<3xf32>, tensor<3xf32>) {
  %x = ln.input {ran = [0, 1]} : tensor<3xf32> as ("x")
  %z = ln.input {ran = [0, 1]} : tensor<3xf32> as ("z")
  %a = ln.lrelu %x {negslope = 0.1} : tensor<3xf32> as ("a")
  %b = ln.lrelu %x {negslope = 0.2} : tensor<3xf32> as ("b")
  %c = ln.elew %a, %b {elew_op = "TL_SUM"} : tensor<3xf32> as ("c")
  func.return %z, %c : tensor<3xf32>, tensor<3xf32>
}

// -----

// Both names of a merged output stay.
// CHECK: %[[A:.*]] = ln.relu {{.*}} as ("a")
// CHECK-NEXT: %[[B:.*]] = ln.forward %[[A]] {{.*}}("b")
// CHECK-NEXT: func.return %[[A]], %[[B]]
func.func @main() -> (tensor<3xf32>, tensor<3xf32>) {
  %x = ln.input : tensor<3xf32> as ("x")
  %a = ln.relu %x : tensor<3xf32> as ("a")
  %b = ln.relu %x : tensor<3xf32> as ("b")
  func.return %a, %b : tensor<3xf32>, tensor<3xf32>
}

// -----

// Kernels are equal by structure, whatever their ops are called; effects never merge.
// CHECK: cpu.kernel
// CHECK-NOT: cpu.kernel
// CHECK: ln.print
// CHECK-NEXT: ln.print
func.func @main() {
  %x = ln.input : tensor<3xf32> as ("x")
  %a = cpu.kernel(%a_ = %x) {
    %0 = ln.relu %a_ : tensor<3xf32> as "relu0"("a")
    ln.yield %0
  } as ("a")
  %b = cpu.kernel(%b_ = %x) {
    %0 = ln.relu %b_ : tensor<3xf32> as "relu1"("b")
    ln.yield %0
  } as ("b")
  ln.print %a {msg = "y"}
  ln.print %b {msg = "y"}
  func.return
}

// -----

// The zeros have signs.
// CHECK: ln.pad {{.*}}value = 0.0
// CHECK: ln.pad {{.*}}value = -0.0
func.func @main() -> (tensor<5xf32>, tensor<5xf32>) {
  %x = ln.input : tensor<3xf32> as ("x")
  %a = ln.pad %x {before = [1], after = [1], value = 0.0} : tensor<5xf32> as ("a")
  %b = ln.pad %x {before = [1], after = [1], value = -0.0} : tensor<5xf32> as ("b")
  func.return %a, %b : tensor<5xf32>, tensor<5xf32>
}
