// RUN: ln-opt %s --target=cuda --pass=layout --columns=0 | filecheck %s
// RUN: ln-opt %s --target=cuda --pass=layout,choose,pack,plan --columns=0 | filecheck %s --check-prefix=PLANNED
// RUN: ln-opt %s --target=cuda --pass=layout,choose,pack,plan,lower-cuda --check 2>&1 >%t | filecheck %s --check-prefix=LOWERED
// RUN: ln-opt %s --target=cuda --pass='layout{layout=plain}' --columns=0 | filecheck %s --check-prefix=PLAIN

// What a kernel reads as a map is laid out in front of it; what follows stays in that layout.
// CHECK: %[[X:.*]] = cuda.kernel(%[[A:.*]] = %x) {
// CHECK-NEXT: ln.forward %[[A]] : tensor<1x6x12x12xf32, #ln.layout<"nhwc4">>
// CHECK: cuda.kernel(%{{.*}} = %[[X]], %{{.*}} = %w, %{{.*}} = %b) choices {alg = "simt"} {
// CHECK: ln.relu {{.*}} : tensor<1x32x12x12xf32, #ln.layout<"nhwc4">> as ("r")
// CHECK: ln.maxpool2d {{.*}} : tensor<1x32x6x6xf32, #ln.layout<"nhwc4">> as ("p")
// CHECK: ln.concat {{.*}} : tensor<1x64x6x6xf32, #ln.layout<"nhwc4">> as ("j")
// Shuffling channels moves elements in any layout: reshapes of maps are no views.
// CHECK: ln.transpose
// CHECK: ln.reshape {{.*}} : tensor<1x64x6x6xf32, #ln.layout<"nhwc4">> as ("s")
// CHECK: cuda.kernel(%{{.*}} = %s, %{{.*}} = %v, %{{.*}} = %d) choices {alg = "depthwise"} {
// CHECK: ln.conv2d {{.*}} : tensor<1x64x6x6xf32, #ln.layout<"nhwc4">>
// An output is plain, and keeps its name.
// CHECK: %c = cuda.kernel
// CHECK-NEXT: ln.forward {{.*}} : tensor<1x64x6x6xf32> as "c"("c")
// CHECK: func.return %c

// Weights lie as their kernels read them; an op and the change of layout behind it are kernels as others are.
// PLANNED-DAG: ln.forward {{.*}} : tensor<32x6x3x3xf32, #ln.layout<"nhwc4">>
// PLANNED-DAG: ln.forward {{.*}} : tensor<64x1x3x3xf32, #ln.layout<"d4">>
// PLANNED: choices {alg = "reorder"}
// PLANNED: choices {alg = "depthwise", strip = {{[124]}}}
// PLANNED: choices {alg = "reorder"}
// LOWERED: check: 5 passes keep the results
// PLAIN-NOT: nhwc4
func.func @main() -> tensor<1x64x6x6xf32> {
  %w, %v, %b, %d = ln.once {
    %0 = ln.param : tensor<32x6x3x3xf32> as ("w")
    %1 = ln.param : tensor<64x1x3x3xf32> as ("v")
    %2 = ln.param : tensor<32xf32> as ("b")
    %3 = ln.param : tensor<64xf32> as ("d")
    ln.yield %0, %1, %2, %3
  } : tensor<32x6x3x3xf32>, tensor<64x1x3x3xf32>, tensor<32xf32>, tensor<64xf32> as ("w", "v", "b", "d")
  %x = ln.input : tensor<1x6x12x12xf32> as ("x")
  %r = cuda.kernel(%x_ = %x, %w_ = %w, %b_ = %b) choices {alg = "simt"} {
    %0 = ln.conv2d %x_, %w_, %b_ {size = [3, 3], padding = [1, 1, 1, 1]} : tensor<1x32x12x12xf32> as ("a")
    %1 = ln.relu %0 : tensor<1x32x12x12xf32> as ("r")
    ln.yield %1
  } as ("r")
  %p = cuda.kernel(%r_ = %r) {
    %0 = ln.maxpool2d %r_ {size = [2, 2], stride = [2, 2]} : tensor<1x32x6x6xf32> as ("p")
    ln.yield %0
  } as ("p")
  %q = cuda.kernel(%p_ = %p) {
    %0 = ln.sigmoid %p_ : tensor<1x32x6x6xf32> as ("q")
    ln.yield %0
  } as ("q")
  %j = cuda.kernel(%p_ = %p, %q_ = %q) {
    %0 = ln.concat %p_, %q_ {axis = 1} : tensor<1x64x6x6xf32> as ("j")
    ln.yield %0
  } as ("j")
  %s = cuda.kernel(%j_ = %j) {
    %0 = ln.reshape %j_ : tensor<2x32x6x6xf32>
    %1 = ln.transpose %0 {axes = [1, 0, 2, 3]} : tensor<32x2x6x6xf32>
    %2 = ln.reshape %1 : tensor<1x64x6x6xf32> as ("s")
    ln.yield %2
  } as ("s")
  %c = cuda.kernel(%s_ = %s, %v_ = %v, %d_ = %d) choices {alg = "depthwise"} {
    %0 = ln.conv2d %s_, %v_, %d_ {group = 64, size = [3, 3], padding = [1, 1, 1, 1]} : tensor<1x64x6x6xf32> as "c"("c")
    ln.yield %0
  } as ("c")
  func.return %c : tensor<1x64x6x6xf32>
}
