// RUN: ln-opt %s --pass=choose | filecheck %s
// RUN: ln-opt %s "--pass=choose{threads=4}" | filecheck %s

// Each kernel gets an algorithm; a choice that is there already stays.
// CHECK: cpu.kernel(%{{.*}} = %x) choices {alg = "loops"} {
// CHECK: cpu.kernel(%{{.*}} = %a, %{{.*}}) choices {alg = "direct"
// CHECK: cpu.kernel(%{{.*}} = %a, %{{.*}}) choices {alg = "loops"} {
func.func @main() -> (tensor<1x4x4x4xf32>, tensor<1x4x4x4xf32>) {
  %x = ln.input : tensor<1x2x4x4xf32> as ("x")
  %w, %b = ln.once {
    %0 = ln.param : tensor<4x2x1x1xf32> as ("w")
    %1 = ln.param : tensor<4xf32> as ("b")
    ln.yield %0, %1
  } : tensor<4x2x1x1xf32>, tensor<4xf32> as ("w", "b")
  %a = cpu.kernel(%x_ = %x) {
    %0 = ln.sigmoid %x_ : tensor<1x2x4x4xf32> as ("a")
    ln.yield %0
  } as ("a")
  %y = cpu.kernel(%a_ = %a, %w_ = %w, %b_ = %b) {
    %0 = ln.conv2d %a_, %w_, %b_ {size = [1, 1]} : tensor<1x4x4x4xf32> as ("y")
    ln.yield %0
  } as ("y")
  %z = cpu.kernel(%a_ = %a, %w_ = %w, %b_ = %b) choices {alg = "loops"} {
    %0 = ln.conv2d %a_, %w_, %b_ {size = [1, 1]} : tensor<1x4x4x4xf32> as ("z")
    ln.yield %0
  } as ("z")
  func.return %y, %z : tensor<1x4x4x4xf32>, tensor<1x4x4x4xf32>
}
