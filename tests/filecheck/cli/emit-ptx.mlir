// A lowered network as PTX and as LLVM IR, whatever passes made of it; before it is lowered there is none.
// RUN: ln-opt -t cuda --emit=ptx %s | filecheck %s
// RUN: ln-opt -t cuda --emit=llvm %s | filecheck %s --check-prefix=LLVM
// RUN: sed 's/, cuda.arch = "sm_90"//' %s | not ln-opt -t cuda --emit=ptx - 2>&1 | filecheck %s --check-prefix=ARCH
// RUN: ln-opt %s | not ln-opt -t cuda --pass=simt-to-cpu --emit=ptx - 2>&1 | filecheck %s --check-prefix=ERROR

// CHECK: .target sm_90
// CHECK: .visible .entry k(
// LLVM: define ptx_kernel void @k(
// ARCH: error: the module does not say which architecture its kernels are for: cuda.arch = "sm_80", or another one, in its attributes
// ERROR: error: target 'cuda' emits kernels of threads: run its passes up to lower-cuda first
builtin.module attributes {ln.memory = {static = 0, arena = 4096}, cuda.arch = "sm_90"} {
  func.func @k(%x: memref<32xf32>) attributes {cuda.block = array<i32: 32, 1, 1>} {
    %t = cuda.thread_id x
    %v = memref.load %x[%t] : memref<32xf32>
    %w = arith.addf %v, %v : f32
    memref.store %w, %x[%t] : memref<32xf32>
    func.return
  }
  func.func @main() {
    cuda.launch @k grid [1, 1, 1] block [32, 1, 1] [arena+0]
    func.return
  }
}
