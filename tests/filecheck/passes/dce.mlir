// RUN: ln-opt %s --split-input-file --pass=ln-dce | filecheck %s

// What nobody uses goes, params and inputs too, and whole chains in one walk.
// CHECK: ln.input {{.*}}("x")
// CHECK-NEXT: func.return
func.func @main() -> tensor<3xf32> {
  %w = ln.param : tensor<3xf32> as ("w")
  %x = ln.input : tensor<3xf32> as ("x")
  %y = ln.elew %x, %w {elew_op = "TL_SUM"} : tensor<3xf32> as ("y")
  %z = ln.relu %y : tensor<3xf32> as ("z")
  func.return %x : tensor<3xf32>
}

// -----

// A print is a use; a result of several that is used keeps its op.
// CHECK: ln.scatter
// CHECK-NEXT: ln.print
func.func @main() {
  %x = ln.input : tensor<2x3xf32> as ("x")
  %a, %b = ln.scatter %x : tensor<3xf32>, tensor<3xf32> as ("a", "b")
  ln.print %b {msg = "b:"}
  func.return
}

// -----

// In regions, unused results go, then what made them, then the operands that this read.
// CHECK: ln.once
// CHECK-NOT: "v"
// CHECK: ln.yield %{{[^,]*}}{{$}}
// CHECK: cpu.kernel(%{{.*}} = %x) {
// CHECK-NEXT: ln.relu
// CHECK-NEXT: ln.yield
// CHECK-NEXT: } : tensor<3xf32> as ("a")
func.func @main() -> (tensor<3xf32>, tensor<3xf32>) {
  %x = ln.input : tensor<3xf32> as ("x")
  %w, %v = ln.once {
    %w_ = ln.param : tensor<3xf32> as ("w")
    %v_ = ln.param : tensor<3xf32> as ("v")
    ln.yield %w_, %v_
  } : tensor<3xf32>, tensor<3xf32> as ("w", "v")
  %a, %b = cpu.kernel(%x_ = %x, %v_ = %v) {
    %0 = ln.relu %x_ : tensor<3xf32> as ("a")
    %1 = ln.relu %v_ : tensor<3xf32> as ("b")
    ln.yield %0, %1
  } as ("a", "b")
  func.return %a, %w : tensor<3xf32>, tensor<3xf32>
}
