// Inputs and outputs of a size and more are the caller's memory: each a space of its own, aligned as its elements are.
// RUN: ln-opt --pass=expand,combine,plan{ports=24} %s | filecheck %s --check-prefix=PLAN
// RUN: ln-opt --pass=expand,combine,plan{ports=24},lower-cpu %s | filecheck %s --check-prefix=LOOPS
// RUN: ln-opt --pass=expand,combine,plan %s | filecheck %s --check-prefix=SMALL
// RUN: ln-opt --pass=expand,combine,plan{ports=24},lower-cpu --emit=llvm %s | filecheck %s --check-prefix=LLVM

// The part %p is no port: its bytes are some of %s; nor is %m, which has 8 bytes.
// PLAN: module attributes {ln.memory = {static = 0 : i64, arena = {{[0-9]+}} : i64, in0 = 24 : i64, out0 = 48 : i64}}
// PLAN: ln.input : tensor<2x3xf32> at in0+0
// PLAN: ln.input : tensor<2xf32> at arena+
// PLAN: } : tensor<2x3xf32> at out0+0
// PLAN: } : tensor<2x3xf32> at out0+24
// PLAN: } : tensor<4x3xf32> at out0+0 as ("s")
// PLAN: } : tensor<2x3xf32> at out0+12 as ("p")
// PLAN: } : tensor<2xf32> at arena+64 as ("m")
// LOOPS: tile.align = 4
// LOOPS: tile.launch @{{.*}} [in0+0, out0+0]
// SMALL-NOT: in0
// SMALL-NOT: out0
// LLVM: getelementptr ptr, ptr %frame, i64 3
// LLVM: %in0 = load ptr
// LLVM: getelementptr ptr, ptr %frame, i64 4
// LLVM: %out0 = load ptr
// LLVM: ptr %in0, ptr %out0
func.func @main() -> (tensor<4x3xf32>, tensor<2x3xf32>, tensor<2xf32>) {
  %x = ln.input : tensor<2x3xf32> as ("x")
  %n = ln.input : tensor<2xf32> as ("n")
  %r = ln.relu %x : tensor<2x3xf32>
  %t = ln.tanh %r : tensor<2x3xf32>
  %s = ln.concat %r, %t {axis = 0} : tensor<4x3xf32> as ("s")
  %p = ln.slice %s {axis = 0, start = 1, len = 2} : tensor<2x3xf32> as ("p")
  %m = ln.relu %n : tensor<2xf32> as ("m")
  func.return %s, %p, %m : tensor<4x3xf32>, tensor<2x3xf32>, tensor<2xf32>
}
