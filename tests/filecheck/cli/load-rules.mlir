// Patterns in PDL load like Python: applied, traced by name, and refused with their place.
// RUN: ln-opt --load %S/../../../examples/rules.mlir --pass=simplify %s | filecheck %s
// RUN: not ln-opt --load %S/Inputs/bad_rules.mlir --pass=simplify %s 2>&1 | filecheck %s --check-prefix=BAD
// RUN: not ln-opt --load %S/../../../examples/rules.mlir --load %S/../../../examples/rules.mlir %s 2>&1 | filecheck %s --check-prefix=TWICE
// RUN: not ln-opt --load %S/Inputs/bad_rules.txt %s 2>&1 | filecheck %s --check-prefix=KIND

// CHECK: ln.sub %{{[xy]}}, %{{[xy]}}
// CHECK-NOT: ln.neg

// BAD: bad_rules.mlir:3:8: error: unknown op 'ln.rleu'; did you mean {{.*}}ln.relu
// BAD-NEXT: %a = pdl.operation "ln.rleu"
// BAD-NEXT: ^

// TWICE: rules.mlir: error: pattern 'add_of_neg' of pass 'simplify' is defined twice: by {{.*}}rules.mlir:{{[0-9]+}}:3 and by {{.*}}rules.mlir:{{[0-9]+}}:3

// KIND: error: cannot load '{{.*}}bad_rules.txt': a file to load is a folder with Python, or .py (
func.func @main(%x : tensor<3xf32>, %y : tensor<3xf32>) -> tensor<3xf32> {
  %n = ln.neg %y : tensor<3xf32>
  %a = ln.add %x, %n : tensor<3xf32>
  func.return %a : tensor<3xf32>
}
