// RUN: ln-opt %s --pass=layout --layout=plain --columns=0 | filecheck %s
// RUN: not ln-opt %s --pass=layout --layout=c16 2>&1 | filecheck %s --check-prefix=ERR
// RUN: ln-opt %s --pass='layout{layout=blocked}' --columns=0 | filecheck %s --check-prefix=BLOCKED
// RUN: ln-opt %s --pass='layout{layout=blocked features=avx2}' --columns=0 | filecheck %s --check-prefix=AVX2
// RUN: ln-opt %s --pass='layout{layout=blocked},layout{layout=plain},defuse' --columns=0 | filecheck %s

// The plain layout is the one without encodings, inside kernels too.
// CHECK-NOT: ln.layout
// CHECK: ln.conv2d {{.*}} : tensor<1x32x28x28xf32>
// CHECK-NOT: ln.layout
// ERR: error: target 'cpu' has no layout 'c16'; there are: blocked, plain

// What comes in is reordered once, with the halo that its reader needs.
// BLOCKED: %[[X:.*]] = cpu.kernel(%[[A:.*]] = %x) {
// BLOCKED-NEXT: ln.forward %[[A]] : tensor<1x32x28x28xf32, #ln.layout<"c16h1">>
// A kernel writes the halo that the next one reads: its own window does not count.
// BLOCKED: %r = cpu.kernel(%{{.*}} = %[[X]], %{{.*}} = %w, %{{.*}} = %b) {
// BLOCKED: ln.conv2d {{.*}} : tensor<1x32x28x28xf32> as ("a")
// BLOCKED: ln.relu {{.*}} : tensor<1x32x28x28xf32, #ln.layout<"c16h2">> as ("r")
// Slices of whole blocks are views, so they have the halo of what they are cut from.
// BLOCKED: ln.slice {{.*}} : tensor<1x16x28x28xf32, #ln.layout<"c16h2">> as ("e")
// BLOCKED: ln.conv2d {{.*}} : tensor<1x16x28x28xf32, #ln.layout<"c16">>
// An output is plain, and keeps its name.
// BLOCKED: %c = cpu.kernel
// BLOCKED-NEXT: ln.forward {{.*}} : tensor<1x16x28x28xf32> as "c"("c")
// BLOCKED: func.return %c
// AVX2: tensor<1x32x28x28xf32, #ln.layout<"c8h1">>
func.func @main() -> tensor<1x16x28x28xf32> {
  %w, %v, %b, %d = ln.once {
    %0 = ln.param : tensor<32x1x3x3xf32> as ("w")
    %1 = ln.param : tensor<16x1x5x5xf32> as ("v")
    %2 = ln.param : tensor<32xf32> as ("b")
    %3 = ln.param : tensor<16xf32> as ("d")
    ln.yield %0, %1, %2, %3
  } : tensor<32x1x3x3xf32>, tensor<16x1x5x5xf32>, tensor<32xf32>, tensor<16xf32> as ("w", "v", "b", "d")
  %x = ln.input : tensor<1x32x28x28xf32> as ("x")
  %r = cpu.kernel(%x_ = %x, %w_ = %w, %b_ = %b) {
    %0 = ln.conv2d %x_, %w_, %b_ {group = 32, size = [3, 3], padding = [1, 1, 1, 1]} : tensor<1x32x28x28xf32> as ("a")
    %1 = ln.relu %0 : tensor<1x32x28x28xf32> as ("r")
    ln.yield %1
  } as ("r")
  %e = cpu.kernel(%r_ = %r) {
    %0 = ln.slice %r_ {axis = 1, start = 16, len = 16} : tensor<1x16x28x28xf32> as ("e")
    ln.yield %0
  } as ("e")
  %c = cpu.kernel(%e_ = %e, %v_ = %v, %d_ = %d) {
    %0 = ln.conv2d %e_, %v_, %d_ {group = 16, size = [5, 5], padding = [2, 2, 2, 2]} : tensor<1x16x28x28xf32> as ("c")
    ln.yield %0
  } as ("c")
  func.return %c : tensor<1x16x28x28xf32>
}
