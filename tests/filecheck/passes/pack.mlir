// RUN: ln-opt %s --pass='layout{layout=blocked},choose,pack' | filecheck %s
// RUN: ln-opt %s --pass=choose,pack | filecheck %s --check-prefix=PLAIN
// RUN: ln-opt %s --pass='layout{layout=blocked},choose{set="y.tile=[1,7]"},pack' | filecheck %s --check-prefix=SET
// RUN: not ln-opt %s --pass='choose{set="nobody.alg=direct"}' 2>&1 | filecheck %s --check-prefix=ERR

// Weights are packed once, when a network is loaded; kernels that want them alike share them; what nobody reads is gone.
// CHECK: ln.once {
// CHECK: %[[W:.*]] = ln.param : tensor<32x1x3x3xf32> as ("w")
// CHECK-NEXT: %[[B:.*]] = ln.param : tensor<32xf32> as ("b")
// CHECK-NEXT: ln.forward %[[W]] : tensor<32x1x3x3xf32, #ln.layout<"d16">>
// CHECK-NEXT: ln.forward %[[B]] : tensor<32xf32, #ln.layout<"v16">>
// CHECK-NEXT: ln.yield
// CHECK: } : tensor<32x1x3x3xf32, #ln.layout<"d16">>, tensor<32xf32, #ln.layout<"v16">>
// CHECK: choices {alg = "depthwise"
// CHECK: choices {alg = "depthwise"

// Kernels on plain maps read weights as they are.
// PLAIN-NOT: ln.layout

// A choice may be set by the name of a kernel's result.
// SET: choices {alg = "depthwise"
// SET: choices {tile = [1, 7], alg = "depthwise"
// ERR: error: choose: no kernel has an op or tensor 'nobody', whose choices `set` names
func.func @main() -> tensor<1x32x28x28xf32> {
  %w, %b = ln.once {
    %0 = ln.param : tensor<32x1x3x3xf32> as ("w")
    %1 = ln.param : tensor<32xf32> as ("b")
    ln.yield %0, %1
  } : tensor<32x1x3x3xf32>, tensor<32xf32> as ("w", "b")
  %x = ln.input : tensor<1x32x28x28xf32> as ("x")
  %r = cpu.kernel(%x_ = %x, %w_ = %w, %b_ = %b) {
    %0 = ln.conv2d %x_, %w_, %b_ {group = 32, size = [3, 3], padding = [1, 1, 1, 1]} : tensor<1x32x28x28xf32> as ("r")
    ln.yield %0
  } as ("r")
  %y = cpu.kernel(%r_ = %r, %w_ = %w, %b_ = %b) {
    %0 = ln.conv2d %r_, %w_, %b_ {group = 32, size = [3, 3], padding = [1, 1, 1, 1]} : tensor<1x32x28x28xf32> as ("y")
    ln.yield %0
  } as ("y")
  func.return %y : tensor<1x32x28x28xf32>
}
