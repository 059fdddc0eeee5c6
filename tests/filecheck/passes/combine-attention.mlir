// RUN: ln-opt -t cuda --pass=bind,expand,hoist,combine %s | filecheck %s

// Attention of two heads that are columns of matrices, with a mask, becomes one kernel of cuda; the scores that somebody
// else reads stay several.

// CHECK-LABEL: func.func @main
// CHECK: %out = cuda.kernel(%x{{.*}}) {
// CHECK-NEXT: ln.reshape
// CHECK-NEXT: ln.transpose %{{.*}} {axes = [0, 2, 1, 3]}
// CHECK-NEXT: ln.reshape
// CHECK-NEXT: ln.transpose %{{.*}} {axes = [0, 2, 3, 1]}
// CHECK-NEXT: ln.reshape
// CHECK-NEXT: ln.transpose %{{.*}} {axes = [0, 2, 1, 3]}
// CHECK-NEXT: ln.matmul
// CHECK-NEXT: ln.add
// CHECK-NEXT: ln.softmax %{{.*}} {axis = 3}
// CHECK-NEXT: ln.matmul
// CHECK-NEXT: ln.transpose
// CHECK-NEXT: %{{.*}} = ln.reshape
// CHECK-NEXT: ln.yield
// CHECK-NEXT: } : tensor<1x20x32xf16>
// CHECK-NOT: cuda.kernel
// CHECK: func.return
module {
  func.func @main(%x: tensor<1x20x32xf16>, %y: tensor<1x37x32xf16>, %z: tensor<1x37x32xf16>, %m: tensor<20x37xf16>) -> tensor<1x20x32xf16> {
    %q0 = ln.reshape %x : tensor<1x20x2x16xf16>
    %q = ln.transpose %q0 {axes = [0, 2, 1, 3]} : tensor<1x2x20x16xf16>
    %k0 = ln.reshape %y : tensor<1x37x2x16xf16>
    %k = ln.transpose %k0 {axes = [0, 2, 3, 1]} : tensor<1x2x16x37xf16>
    %v0 = ln.reshape %z : tensor<1x37x2x16xf16>
    %v = ln.transpose %v0 {axes = [0, 2, 1, 3]} : tensor<1x2x37x16xf16>
    %s = ln.matmul %q, %k : tensor<1x2x20x37xf16>
    %e = ln.add %s, %m : tensor<1x2x20x37xf16>
    %p = ln.softmax %e {axis = 3} : tensor<1x2x20x37xf16>
    %o = ln.matmul %p, %v : tensor<1x2x20x16xf16>
    %t = ln.transpose %o {axes = [0, 2, 1, 3]} : tensor<1x20x2x16xf16>
    %out = ln.reshape %t : tensor<1x20x32xf16>
    func.return %out : tensor<1x20x32xf16>
  }
}
