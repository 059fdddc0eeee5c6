// RUN: ln-opt %s --split-input-file '--pass=short-products{to=bf16 features=avx512bf16}' --columns=0 | filecheck %s
// RUN: ln-opt %s --split-input-file '--pass=short-products{to=auto features=avx512bf16}' --columns=0 | filecheck %s
// RUN: ln-opt %s --split-input-file '--pass=short-products{to=bf16 features=avx2}' --columns=0 | filecheck %s --check-prefix=WITHOUT
// RUN: ln-opt %s --split-input-file '--pass=short-products{to=bf16 features=avx512bf16 exact=true}' --columns=0 | filecheck %s --check-prefix=WITHOUT
// RUN: ln-opt %s --split-input-file '--pass=short-products{features=avx512bf16}' --columns=0 | filecheck %s --check-prefix=ASKED
// RUN: ln-opt %s --split-input-file '--pass=short-products{to=bf16 features=avx512bf16}' --columns=0 --remarks=cost 2>&1 | filecheck %s --check-prefix=REMARK

// REMARK: remark: ln.conv2d "y" computes in bf16: in f32 {{.*}} us, in bf16 {{.*}} us [cost: short-products]
// Factors are rounded, the map where it is made and once for both products; sums, the bias and what follows stay f32. Where there
// are few channels, nothing changes.
// CHECK: %[[X:.*]] = ln.relu %
// CHECK-NEXT: %[[S:.*]] = ln.cast %[[X]] {mode = "wrap"} : tensor<1x64x14x14xbf16>
// CHECK: %[[N:.*]] = ln.conv2d_short %[[S]], %{{.*}} {size = [1, 1]} : tensor<1x128x14x14xf32>
// CHECK: ln.add %[[N]], %{{.*}} : tensor<1x128x14x14xf32> as "y"("y")
// CHECK: ln.conv2d_short %[[S]], %
// CHECK: ln.conv2d %p, %{{.*}} as "few"("few")
// CHECK: ln.matmul_short %a.1, %{{.*}} : tensor<50x96xf32> as "m"("m")
// CHECK: ln.matmul_short %a.1, %c.1 : tensor<50x50xf32> as "computed"("computed")
// WITHOUT-NOT: _short
// ASKED: ln.conv2d %x, %w
func.func @main() -> (tensor<1x128x14x14xf32>, tensor<1x64x14x14xf32>, tensor<1x16x14x14xf32>, tensor<50x96xf32>, tensor<50x50xf32>) {
  %i = ln.input : tensor<1x64x14x14xf32> as ("i")
  %p = ln.input : tensor<1x3x14x14xf32> as ("p")
  %a = ln.input : tensor<50x64xf32> as ("a")
  %c = ln.input : tensor<64x50xf32> as ("c")
  %w = ln.param : tensor<128x64x1x1xf32> as ("w")
  %b = ln.param : tensor<128xf32> as ("b")
  %v = ln.param : tensor<64x64x1x1xf32> as ("v")
  %d = ln.param : tensor<64xf32> as ("d")
  %u = ln.param : tensor<16x3x1x1xf32> as ("u")
  %e = ln.param : tensor<16xf32> as ("e")
  %k = ln.param : tensor<64x96xf32> as ("k")
  %x = ln.relu %i : tensor<1x64x14x14xf32> as ("x")
  %y = ln.conv2d %x, %w, %b {size = [1, 1]} : tensor<1x128x14x14xf32> as "y"("y")
  %z = ln.conv2d %x, %v, %d {size = [1, 1]} : tensor<1x64x14x14xf32> as "z"("z")
  %f = ln.conv2d %p, %u, %e {size = [1, 1]} : tensor<1x16x14x14xf32> as "few"("few")
  %m = ln.matmul %a, %k : tensor<50x96xf32> as "m"("m")
  %q = ln.matmul %a, %c : tensor<50x50xf32> as "computed"("computed")
  func.return %y, %z, %f, %m, %q : tensor<1x128x14x14xf32>, tensor<1x64x14x14xf32>, tensor<1x16x14x14xf32>, tensor<50x96xf32>, tensor<50x50xf32>
}

// -----

// A product of a network of bf16 keeps its sums, and rounds what it rounded before.
// ASKED: %[[N:.*]] = ln.conv2d_short %x, %w {size = [1, 1]} : tensor<1x128x14x14xf32>
// ASKED: %[[A:.*]] = ln.add %[[N]], %{{.*}} : tensor<1x128x14x14xf32>
// ASKED: ln.cast %[[A]] {mode = "wrap"} : tensor<1x128x14x14xbf16> as "y"("y")
func.func @main() -> tensor<1x128x14x14xbf16> {
  %x = ln.input : tensor<1x64x14x14xbf16> as ("x")
  %w = ln.param : tensor<128x64x1x1xbf16> as ("w")
  %b = ln.param : tensor<128xbf16> as ("b")
  %y = ln.conv2d %x, %w, %b {size = [1, 1]} : tensor<1x128x14x14xbf16> as "y"("y")
  func.return %y : tensor<1x128x14x14xbf16>
}
