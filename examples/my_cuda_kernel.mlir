// The test of my_cuda_kernel.py. Run it with `pytest tests/test_docs.py`, or by hand with the first of these lines.
// RUN: ln-opt -t cuda --load %S/my_cuda_kernel.py --pass=bind,expand,hoist,combine,layout,choose,pack,plan %s | filecheck %s
// RUN: ln-opt --columns=0 -t cuda --load %S/my_cuda_kernel.py --pass="bind,expand,hoist,combine,layout,choose{set=\"turned.side=16\"},pack,plan,lower-cuda" --check %s | filecheck %s --check-prefix=LOOPS
// RUN: ln-opt -t cuda --pass=bind,expand,hoist,combine,layout,choose %s | filecheck %s --check-prefix=WITHOUT

// A product of matrices, turned over, and another one: what is between them is a kernel of the file.
// CHECK: cuda.kernel({{.*}}) choices {{.*}}alg = "turn", side = 32}
// CHECK-NEXT: ln.transpose {{.*}} : tensor<70x50xf32>

// Level 4: tiles of 16 x 16 in shared memory, with one element between rows. `side` is a choice, and may be set by hand.
// LOOPS: func.func @transpose_0{{.*}} attributes {cuda.block = array<i32: 16, 8, 1>}
// LOOPS: cuda.shared : memref<16x17xf32, 3 : i32>
// LOOPS: cuda.barrier
// LOOPS: cuda.launch @transpose_0 grid [20, 1, 1] block [16, 8, 1] [

// Without the file the plain loops do it.
// WITHOUT: %turned = cuda.kernel({{.*}}) choices {{.*}}alg = "loops"}
// WITHOUT-NEXT: ln.transpose
func.func @main() -> tensor<70x30xf32> {
  %x = ln.input {ran = [-1, 1]} : tensor<50x40xf32> as "x"("x")
  %w1 = ln.param {ran = [-0.1, 0.1]} : tensor<40x70xf32> as "w1"("w1")
  %w2 = ln.param {ran = [-0.1, 0.1]} : tensor<50x30xf32> as "w2"("w2")
  %y = ln.matmul %x, %w1 : tensor<50x70xf32> as "y"("y")
  %turned = ln.transpose %y {axes = [1, 0]} : tensor<70x50xf32> as "turned"("turned")
  %z = ln.matmul %turned, %w2 : tensor<70x30xf32> as "z"("z")
  func.return %z : tensor<70x30xf32>
}
