// RUN: ln-opt --pass=plan --split-input-file %s | filecheck %s

// An operand that dies is overwritten by an elementwise result; a reshape stands where its source stands; the input
// keeps its bytes, since the next call may not feed it again.
// CHECK-LABEL: ln.memory = {static = 0 : i64, arena = 96 : i64}
// CHECK: ln.input {{.*}} at arena+[[IN:[0-9]+]] as "x"
// CHECK: ln.transpose {{.*}} at arena+[[T:[0-9]+]] as "t"
// CHECK: ln.relu {{.*}} at arena+[[T]] as "r"
// CHECK: ln.reshape {{.*}} at arena+[[T]] as "s"
func.func @main() -> tensor<8xf32> {
  %x = ln.input : tensor<2x4xf32> as "x"("x")
  %t = ln.transpose %x {axes = [1, 0]} : tensor<4x2xf32> as "t"("t")
  %r = ln.relu %t : tensor<4x2xf32> as "r"("r")
  %s = ln.reshape %r : tensor<8xf32> as "s"("s")
  func.return %s : tensor<8xf32>
}

// -----

// Params have a space of their own, one behind the other; the operands of a concat are made in its result.
// CHECK-LABEL: ln.memory = {static = 128 : i64, arena = 256 : i64}
// CHECK: ln.input {{.*}} at arena+0 as "x"
// CHECK: ln.param {{.*}} at static+0 as "a"
// CHECK: ln.param {{.*}} at static+64 as "b"
// CHECK: ln.elew {{.*}} at arena+128 as "u"
// CHECK: ln.elew {{.*}} at arena+192 as "v"
// CHECK: ln.concat {{.*}} at arena+128 as "c"
func.func @main() -> tensor<32xf32> {
  %x = ln.input : tensor<32xf32> as "x"("x")
  %a = ln.param : tensor<16xf32> as "a"("a")
  %b = ln.param : tensor<16xf32> as "b"("b")
  %u = ln.elew %a, %b {elew_op = "TL_SUM"} : tensor<16xf32> as "u"("u")
  %v = ln.elew %a, %b {elew_op = "TL_MUL"} : tensor<16xf32> as "v"("v")
  %c = ln.concat %u, %v {axis = 0} : tensor<32xf32> as "c"("c")
  func.return %c : tensor<32xf32>
}

// -----

// Two outputs and a value that is read after its copy was changed: nothing is overwritten too early.
// CHECK-LABEL: ln.memory = {static = 0 : i64, arena = 192 : i64}
// CHECK: ln.relu {{.*}} at arena+64 as "r"
// CHECK: ln.sigmoid {{.*}} at arena+128 as "s"
// CHECK: ln.elew {{.*}} at arena+64 as "e"
func.func @main() -> (tensor<16xf32>, tensor<16xf32>) {
  %x = ln.input : tensor<16xf32> as "x"("x")
  %r = ln.relu %x : tensor<16xf32> as "r"("r")
  %s = ln.sigmoid %r : tensor<16xf32> as "s"("s")
  %e = ln.elew %r, %s {elew_op = "TL_SUM"} : tensor<16xf32> as "e"("e")
  func.return %s, %e : tensor<16xf32>, tensor<16xf32>
}

// -----

// A kernel's workspace lives while the kernel runs, beside its operands and results.
// CHECK-LABEL: ln.memory = {static = 0 : i64, arena = 1152 : i64}
// CHECK: at arena+1088 work arena+64 as ("y")
func.func @main() -> tensor<16xf32> {
  %x = ln.input : tensor<16xf32> as "x"("x")
  %y = cpu.kernel(%x_ = %x) choices {ln.workspace_size = 1024 : i64} {
    %0 = ln.relu %x_ : tensor<16xf32> as "r"("y")
    ln.yield %0
  } as ("y")
  func.return %y : tensor<16xf32>
}
