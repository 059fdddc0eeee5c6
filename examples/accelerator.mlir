// The test of the accelerator: a convolution of two groups is split, each half is fused with nothing but runs on the array; what follows
// is one kernel of the vector unit. Results are near, the output is where the host finds it.
// RUN: ln-opt --load %S/accelerator -t npu --pass=bind,expand,hoist,combine,choose,plan %s | filecheck %s
// RUN: ln-opt --load %S/accelerator -t npu --pass=bind,expand,hoist,combine,choose,plan --emit=c %s | filecheck %s --check-prefix=C

// CHECK: ln.memory = {static = {{[0-9]+}} : i64, arena = {{[0-9]+}} : i64, sram = {{[0-9]+}} : i64}
// CHECK: npu.kernel({{.*}}) choices {unit = "array", cycles = {{[0-9]+}}
// CHECK-NEXT: ln.conv2d {{.*}} : tensor<1x32x16x16xf32>
// CHECK: } : {{.*}} at sram+
// CHECK: unit = "array"
// CHECK: ln.concat
// CHECK: unit = "vector"
// CHECK: ln.conv2d {{.*}}group = 64
// CHECK-NEXT: ln.relu
// CHECK: } : {{.*}} at arena+{{[0-9]+}} as ("y")

// C: static unsigned char sram[
// C: y: tensor<1x64x16x16xf32> at arena+
// C: void npu_run(unsigned char *arena, unsigned char *static_)
func.func @main() -> tensor<1x64x16x16xf32> {
  %x = ln.input {ran = [-1, 1]} : tensor<1x32x16x16xf32> as "create0"("x")
  %w = ln.param {ran = [-1, 1]} : tensor<64x16x3x3xf32> as "create1"("w")
  %b = ln.param {ran = [-1, 1]} : tensor<64xf32> as "create2"("b")
  %d = ln.param {ran = [-1, 1]} : tensor<64x1x3x3xf32> as "create3"("d")
  %a = ln.conv2d %x, %w, %b {size = [3, 3], padding = [1, 1, 1, 1], group = 2} : tensor<1x64x16x16xf32>
  %c = ln.conv2d %a, %d, %b {size = [3, 3], padding = [1, 1, 1, 1], group = 64} : tensor<1x64x16x16xf32>
  %y = ln.relu %c : tensor<1x64x16x16xf32> as "relu0"("y")
  func.return %y : tensor<1x64x16x16xf32>
}
