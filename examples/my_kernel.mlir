// The test of my_kernel.py. Run it with `pytest tests/test_docs.py`, or by hand with the first of these lines.
// RUN: ln-opt --load %S/my_kernel.py --pass=bind,expand,hoist,combine,layout,choose,pack,plan %s | filecheck %s
// RUN: ln-opt --columns=0 --load %S/my_kernel.py --pass="bind,expand,hoist,combine,layout,choose{set=\"cut.pixels=4\"},pack,plan,lower-cpu" --check %s | filecheck %s --check-prefix=LOOPS
// RUN: ln-opt --pass=bind,expand,hoist,combine,layout,choose %s | filecheck %s --check-prefix=WITHOUT

// Two convolutions, and between them the picture is cut: its rows 4 to 59. The cut is a kernel on maps in blocks of 16 channels,
// with the activation in it; the halo of its result is what the second convolution reads around the picture.
// CHECK: cpu.kernel({{.*}}) choices {{.*}}alg = "crop", {{.*}}pixels = 8}
// CHECK-NEXT: ln.slice {{.*}} {axis = 2, start = 4, len = 8} : tensor<1x32x8x16xf32>
// CHECK-NEXT: ln.silu {{.*}} : tensor<1x32x8x16xf32, #ln.layout<"c16h1">>

// Level 4: a block of the grid is one block of channels. `pixels` is a choice, and may be set by hand.
// LOOPS: func.func @slice_silu_0
// LOOPS: tile.load {{.*}} : {{.*}} vector<1x4x1x16xf32>
// LOOPS: tile.launch @slice_silu_0 grid 2 [

// Without the file no kernel cuts such maps.
// WITHOUT-NOT: "crop"
func.func @main() -> tensor<1x32x8x16xf32> {
  %x = ln.input {ran = [-1, 1]} : tensor<1x16x16x16xf32> as "x"("x")
  %w1 = ln.param {ran = [-0.1, 0.1]} : tensor<32x16x3x3xf32> as "w1"("w1")
  %w2 = ln.param {ran = [-0.1, 0.1]} : tensor<32x32x3x3xf32> as "w2"("w2")
  %b = ln.param {ran = [-0.1, 0.1]} : tensor<32xf32> as "b"("b")
  %conv1 = ln.conv2d %x, %w1, %b {size = [3, 3], padding = [1, 1, 1, 1]} : tensor<1x32x16x16xf32> as "conv1"("conv1")
  %rows = ln.slice %conv1 {axis = 2, start = 4, len = 8} : tensor<1x32x8x16xf32> as "rows"("rows")
  %cut = ln.silu %rows : tensor<1x32x8x16xf32> as "cut"("cut")
  %conv2 = ln.conv2d %cut, %w2, %b {size = [3, 3], padding = [1, 1, 1, 1]} : tensor<1x32x8x16xf32> as "conv2"("conv2")
  func.return %conv2 : tensor<1x32x8x16xf32>
}
