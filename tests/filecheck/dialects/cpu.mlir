// RUN: ln-opt %s --split-input-file --verify-diagnostics | filecheck %s

// A kernel: operands bound to names of the body, choices, a body of ln ops, places and names behind it.
// CHECK: %y = cpu.kernel(%x_1 = %x) choices {alg = "loops"} {
// CHECK-NEXT: %a = ln.relu %x_1 : tensor<2x3xf32> as "relu0"("a")
// CHECK-NEXT: %y_1 = ln.sigmoid %a : tensor<2x3xf32> as "sigmoid0"("y")
// CHECK-NEXT: ln.yield %y_1
// CHECK-NEXT: } : tensor<2x3xf32> at arena+64 work arena+128 as ("y")
func.func @main() {
  %x = ln.input : tensor<2x3xf32> at arena+0 as "create0"("x")
  %y = cpu.kernel(%x_1 = %x) choices {alg = "loops"} {
    %a = ln.relu %x_1 : tensor<2x3xf32> as "relu0"("a")
    %y_1 = ln.sigmoid %a : tensor<2x3xf32> as "sigmoid0"("y")
    ln.yield %y_1
  } at arena+64 work arena+128 as ("y")
  func.return
}

// -----
// Types of results may stand behind the body, as they are printed: they are those of what it yields.
func.func @main() {
  %x = ln.input : tensor<3xf32>
  %a = cpu.kernel(%b = %x) {
    %c = ln.relu %b : tensor<3xf32>
    ln.yield %c
  // expected-error@+1 {{a kernel has the types that it yields: expected tensor<3xf32>, got tensor<4xf32>}}
  } : tensor<4xf32>
  func.return
}

// -----
// What the host does never stands in a kernel.
func.func @host(%x: tensor<3xf32>) {
  // expected-error@+1 {{ln.print runs in the host and cannot stand in a kernel}}
  cpu.kernel(%x_1 = %x) {
    ln.print %x_1 {msg = "x"}
    ln.yield
  }
  func.return
}

// -----
func.func @isolated(%x: tensor<3xf32>, %y: tensor<3xf32>) {
  %z = cpu.kernel(%x_1 = %x) {
    // expected-error@+1 {{value %y is used before it is defined}}
    %z_1 = ln.relu %y : tensor<3xf32>
    ln.yield %z_1
  }
  func.return
}
