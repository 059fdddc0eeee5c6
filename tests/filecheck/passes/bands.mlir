// RUN: ln-opt %s --pass='layout{layout=blocked},bands' --columns=0 | filecheck %s
// RUN: ln-opt %s --pass='layout{layout=plain},bands' --columns=0 | filecheck %s --check-prefix=PLAIN
// RUN: ln-opt %s --pass='layout{layout=blocked},bands,choose,pack' --columns=0 | filecheck %s --check-prefix=CHOSEN
// RUN: ln-opt %s --pass='layout{layout=blocked},bands,layout{layout=plain},defuse' --columns=0 | filecheck %s --check-prefix=APART

// An inverted residual whose wide maps leave the cache becomes one kernel; in between, types have no layouts.
// CHECK: %[[X:.*]] = cpu.kernel(%{{.*}} = %x) {
// CHECK-NEXT: ln.forward {{.*}} : tensor<1x24x56x56xf32, #ln.layout<"c16">>
// CHECK: %y = cpu.kernel(%[[A:.*]] = %[[X]], {{.*}}) {
// CHECK-NEXT: ln.conv2d %[[A]], {{.*}} : tensor<1x144x56x56xf32> as ("e")
// CHECK-NEXT: ln.clip {{.*}} : tensor<1x144x56x56xf32>
// CHECK-NEXT: ln.conv2d {{.*}}group = 144{{.*}} : tensor<1x144x56x56xf32> as ("d")
// CHECK-NEXT: ln.conv2d {{.*}} : tensor<1x24x56x56xf32>
// CHECK-NEXT: ln.add {{.*}}, %[[A]] : tensor<1x24x56x56xf32, #ln.layout<"c16">> as ("y")
// CHECK-NEXT: ln.yield
// A map that something else reads is stored, so the chain begins behind it.
// CHECK: %[[F:.*]] = cpu.kernel
// CHECK-NEXT: ln.conv2d {{.*}} : tensor<1x144x56x56xf32, #ln.layout<"c16h1">> as ("f")
// CHECK: %z = cpu.kernel(%{{.*}} = %[[F]], {{.*}}) {
// CHECK-NEXT: ln.conv2d {{.*}}group = 144
// CHECK-NEXT: ln.conv2d {{.*}} as ("z")

// On plain maps there are no such kernels; they come apart again.
// PLAIN-COUNT-6: cpu.kernel
// PLAIN-NOT: cpu.kernel
// APART: %e = cpu.kernel
// APART-NEXT: ln.conv2d {{.*}} : tensor<1x144x56x56xf32> as ("e")
// APART-NEXT: ln.yield
// APART: cpu.kernel
// APART-NEXT: ln.clip
// APART: %d = cpu.kernel
// APART-NEXT: ln.conv2d {{.*}} as ("d")

// CHOSEN: choices {{.*}}alg = "bands", {{.*}}band = {{.*}}depthwise = {{.*}}expand = {{.*}}project =
// CHOSEN: choices {{.*}}alg = "direct"
// CHOSEN: choices {{.*}}alg = "bands", {{.*}}band = {{.*}}depthwise = {{.*}}project =
func.func @main() -> (tensor<1x24x56x56xf32>, tensor<1x144x56x56xf32>) {
  %ew, %eb, %dw, %pw, %pb = ln.once {
    %0 = ln.param : tensor<144x24x1x1xf32> as ("ew")
    %1 = ln.param : tensor<144xf32> as ("eb")
    %2 = ln.param : tensor<144x1x3x3xf32> as ("dw")
    %3 = ln.param : tensor<24x144x1x1xf32> as ("pw")
    %4 = ln.param : tensor<24xf32> as ("pb")
    ln.yield %0, %1, %2, %3, %4
  } : tensor<144x24x1x1xf32>, tensor<144xf32>, tensor<144x1x3x3xf32>, tensor<24x144x1x1xf32>, tensor<24xf32> as ("ew", "eb", "dw", "pw", "pb")
  %x = ln.input : tensor<1x24x56x56xf32> as ("x")
  %e = cpu.kernel(%x_ = %x, %w_ = %ew, %b_ = %eb) {
    %0 = ln.conv2d %x_, %w_, %b_ {size = [1, 1]} : tensor<1x144x56x56xf32> as ("e")
    %1 = ln.clip %0 {lo = 0, hi = 6} : tensor<1x144x56x56xf32>
    ln.yield %1
  }
  %d = cpu.kernel(%e_ = %e, %w_ = %dw, %b_ = %eb) {
    %0 = ln.conv2d %e_, %w_, %b_ {group = 144, size = [3, 3], padding = [1, 1, 1, 1]} : tensor<1x144x56x56xf32> as ("d")
    ln.yield %0
  } as ("d")
  %y = cpu.kernel(%d_ = %d, %w_ = %pw, %b_ = %pb, %x_ = %x) {
    %0 = ln.conv2d %d_, %w_, %b_ {size = [1, 1]} : tensor<1x24x56x56xf32>
    %1 = ln.add %0, %x_ : tensor<1x24x56x56xf32> as ("y")
    ln.yield %1
  } as ("y")
  %f = cpu.kernel(%y_ = %y, %w_ = %ew, %b_ = %eb) {
    %0 = ln.conv2d %y_, %w_, %b_ {size = [1, 1]} : tensor<1x144x56x56xf32> as ("f")
    ln.yield %0
  } as ("f")
  %g = cpu.kernel(%f_ = %f, %w_ = %dw, %b_ = %eb) {
    %0 = ln.conv2d %f_, %w_, %b_ {group = 144, size = [3, 3], padding = [1, 1, 1, 1]} : tensor<1x144x56x56xf32> as ("g")
    ln.yield %0
  } as ("g")
  %z = cpu.kernel(%g_ = %g, %w_ = %pw, %b_ = %pb) {
    %0 = ln.conv2d %g_, %w_, %b_ {size = [1, 1]} : tensor<1x24x56x56xf32> as ("z")
    ln.yield %0
  } as ("z")
  func.return %z, %f : tensor<1x24x56x56xf32>, tensor<1x144x56x56xf32>
}
