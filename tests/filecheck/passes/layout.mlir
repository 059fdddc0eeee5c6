// RUN: ln-opt %s --pass=layout --layout=plain | filecheck %s
// RUN: not ln-opt %s --pass=layout --layout=c16 2>&1 | filecheck %s --check-prefix=ERR

// The plain layout is the one without encodings, inside kernels too.
// CHECK-NOT: ln.layout
// CHECK: ln.relu {{.*}} : tensor<1x3x4x4xf32> as ("y")
// ERR: error: target 'cpu' has no layout 'c16'; there are: plain
func.func @main() -> tensor<1x3x4x4xf32, #ln.layout<"c16h1">> {
  %x = ln.input : tensor<1x3x4x4xf32, #ln.layout<"c16h1">> as ("x")
  %y = cpu.kernel(%x_ = %x) {
    %0 = ln.relu %x_ : tensor<1x3x4x4xf32, #ln.layout<"c16h1">> as ("y")
    ln.yield %0
  } as ("y")
  func.return %y : tensor<1x3x4x4xf32, #ln.layout<"c16h1">>
}
