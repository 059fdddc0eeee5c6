// RUN: ln-opt %s --split-input-file --pass=integers{features=avx2} --columns=0 | filecheck %s
// RUN: ln-opt %s --split-input-file --pass=integers{features=avx512vnni} --columns=0 | filecheck %s --check-prefix=BYTES
// RUN: ln-opt %s --split-input-file --pass=integers{exact=true} --columns=0 | filecheck %s --check-prefix=EXACT

// What is rounded to an integer type and read back is clamped as a float; the product is one of words (of bytes, where the processor
// has that: the zero point is 0), its scales come behind it.
// CHECK: %[[X:.*]] = ln.round_clip %{{.*}} {low = 0.0, high = 255.0}
// CHECK: %[[A:.*]] = ln.cast %[[X]] : tensor<1x8x4x4xi16>
// CHECK: %[[N:.*]] = ln.conv2d_integer %[[A]], %{{.*}} {size = [1, 1]} : tensor<1x16x4x4xi32>
// CHECK-NEXT: %[[F:.*]] = ln.cast %[[N]] : tensor<1x16x4x4xf32>
// CHECK: %[[S:.*]] = ln.mul %{{.*}}, %{{.*}} : tensor<16x1x1xf32>
// CHECK: %[[M:.*]] = ln.mul %[[F]], %[[S]] : tensor<1x16x4x4xf32>
// CHECK: ln.add %[[M]], %{{.*}} : tensor<1x16x4x4xf32> as "y"("y")
// BYTES: ln.cast %{{.*}} : tensor<1x8x4x4xui8>
// BYTES: ln.conv2d_integer %{{.*}}, %w
// EXACT: ln.conv2d %
func.func @main() -> tensor<1x16x4x4xf32> {
  %x = ln.input : tensor<1x8x4x4xf32> as ("x")
  %s = ln.constant {data = [0.25]} : tensor<f32> as ("s")
  %w = ln.param : tensor<16x8x1x1xi8> as ("w")
  %t = ln.param : tensor<16x1x1x1xf32> as ("t")
  %b = ln.param : tensor<16xf32> as ("b")
  %d = ln.div %x, %s : tensor<1x8x4x4xf32> as ("d")
  %r = ln.round_even %d : tensor<1x8x4x4xf32> as ("r")
  %q = ln.cast %r : tensor<1x8x4x4xui8> as ("q")
  %f = ln.cast %q : tensor<1x8x4x4xf32> as ("f")
  %v = ln.mul %f, %s : tensor<1x8x4x4xf32> as ("v")
  %wf = ln.cast %w : tensor<16x8x1x1xf32> as ("wf")
  %wv = ln.mul %wf, %t : tensor<16x8x1x1xf32> as ("wv")
  %y = ln.conv2d %v, %wv, %b {size = [1, 1]} : tensor<1x16x4x4xf32> as "y"("y")
  func.return %y : tensor<1x16x4x4xf32>
}

// -----

// Sums of whole numbers without scales are the same in integers, exactly; a param may be anything.
// CHECK: ln.matmul_integer
// EXACT: ln.matmul_integer %{{.*}}, %{{.*}} : tensor<3x5xi32>
// CHECK: ln.matmul %
func.func @main() -> (tensor<3x5xf32>, tensor<3x5xf32>) {
  %x = ln.input : tensor<3x8xui8> as ("x")
  %z = ln.constant {data = [7]} : tensor<f32> as ("z")
  %p = ln.param {data = [7]} : tensor<f32> as ("p")
  %w = ln.param : tensor<8x5xi8> as ("w")
  %f = ln.cast %x : tensor<3x8xf32> as ("f")
  %a = ln.sub %f, %z : tensor<3x8xf32> as ("a")
  %c = ln.sub %f, %p : tensor<3x8xf32> as ("c")
  %wf = ln.cast %w : tensor<8x5xf32> as ("wf")
  %y = ln.matmul %a, %wf : tensor<3x5xf32> as "y"("y")
  %u = ln.matmul %c, %wf : tensor<3x5xf32> as "u"("u")
  func.return %y, %u : tensor<3x5xf32>, tensor<3x5xf32>
}
