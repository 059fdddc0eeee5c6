// RUN: ln-opt %s --split-input-file --verify-diagnostics | filecheck %s

// A region that is evaluated when the network is loaded; it sees nothing from outside.
// CHECK: %w = ln.once {
// CHECK-NEXT: %w_1 = ln.param {from_file = true} : tensor<4x3xf32> as "create0"("w")
// CHECK-NEXT: ln.yield %w_1
// CHECK-NEXT: } : tensor<4x3xf32> as ("w")
func.func @main() {
  %w = ln.once {
    %w_1 = ln.param {from_file = true} : tensor<4x3xf32> as "create0"("w")
    ln.yield %w_1
  } : tensor<4x3xf32> as ("w")
  func.return
}

// -----
func.func @outside(%x: tensor<3xf32>) {
  %w = ln.once {
    // expected-error@+1 {{value %x is used before it is defined}}
    %y = ln.relu %x : tensor<3xf32>
    ln.yield %y
  } : tensor<3xf32>
  func.return
}

// -----
func.func @types() {
  // expected-error@+1 {{the types yielded should be the types of its results}}
  %w = ln.once {
    %y = ln.zeros : tensor<3xf32>
    ln.yield %y
  } : tensor<4xf32>
  func.return
}

// -----
// Nothing may come of a region.
// CHECK: func.func @none
// CHECK-NEXT: ln.once {
// CHECK-NEXT: ln.yield
// CHECK-NEXT: }
// CHECK-NEXT: func.return
func.func @none() {
  ln.once {
    ln.yield
  }
  func.return
}

// -----
// Only a kernel's types may be left out.
func.func @left_out() {
  // expected-error@+1 {{the types yielded should be the types of its results}}
  ln.once {
    %y = ln.zeros : tensor<3xf32>
    ln.yield %y
  }
  func.return
}
