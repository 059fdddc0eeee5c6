// A pass and a pattern from a file outside the project run like ours.
// RUN: ln-opt --load %S/../../../examples/my_pass.py --pass=my-pass %s | filecheck %s
// RUN: ln-opt --load %S/../../../examples/my_pass.py '--pass=my-pass{dce=false}' %s | filecheck %s --check-prefix=KEEP
// RUN: ln-opt --load %S/../../../examples/my_pass.py --list-passes | filecheck %s --check-prefix=LIST
// RUN: ln-opt --load %S/../../../examples/my_pass.py --pass=my-pass %s --print-locations | filecheck %s --check-prefix=LOC

// LIST: my-pass{{ +}}Removes a relu of a relu

// CHECK-LABEL: @main
// CHECK: %[[X:.*]] = ln.create
// The op that stands for another one keeps its names.
// CHECK-NEXT: %[[Z:.*]] = ln.relu %[[X]] : tensor<2x3xf32> as "relu1"("z")
// CHECK-NEXT: return %[[Z]]

// KEEP: as "relu0"("y")
// KEEP-NEXT: as "relu1"("z")

// and its place.
// LOC: ln.relu {{.*}}("z") loc("{{.*}}load.mlir":[[# @LINE + 5]]:8)
func.func @main() -> tensor<2x3xf32> {
  %x = ln.create {ran = [0, 1]} : tensor<2x3xf32>
  %y = ln.relu %x : tensor<2x3xf32> as "relu0"("y")

  %z = ln.relu %y : tensor<2x3xf32> as "relu1"("z")
  func.return %z : tensor<2x3xf32>
}
