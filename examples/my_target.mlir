// The test of my_target.py: three ops in a chain become two kernels of the toy, with places.
// RUN: ln-opt --load %S/my_target.py --target=toy --pass=bind,expand,combine,plan %s | filecheck %s
// RUN: lightnet --load %S/my_target.py -t toy %s | filecheck %s --check-prefix=RAN

// CHECK: toy.kernel
// CHECK: ln.relu
// CHECK: toy.kernel
// CHECK: } : tensor<3xf32> at arena+64 as ("y")
// CHECK-NOT: toy.kernel

// RAN: [0.500 0.500 0.731]
func.func @main() {
  %x = ln.input {data = [-1, 0, 1]} : tensor<3xf32> as "create0"("x")
  %a = ln.relu %x : tensor<3xf32>
  %b = ln.relu %a : tensor<3xf32>
  %y = ln.sigmoid %b : tensor<3xf32> as "sigmoid0"("y")
  ln.print %y {msg = "y:"}
  func.return
}
