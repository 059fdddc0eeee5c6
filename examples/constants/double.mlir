// A rule that reads a constant: in PDL, as a description (double.json) and in Python (double.py).
// RUN: ln-opt --load %s --pass=bind,simplify --check=exact %S/double.net | filecheck %s
// RUN: ln-opt --load %S/double.json --pass=bind,simplify --check=exact %S/double.net | filecheck %s
// RUN: ln-opt --load %S/double.py --pass=bind,simplify --check=exact %S/double.net | filecheck %s

// CHECK: %[[X:.*]] = ln.input
// CHECK-NEXT: ln.add %[[X]], %[[X]] : tensor<1x3x8x8xf32> as "{{.*}}"("doubled")
// CHECK-NEXT: ln.sigmoid
builtin.module attributes {ln.pass = "simplify"} {
  // x * 2 = x + x
  pdl.pattern @double : benefit(1) {
    %type = pdl.type
    %x = pdl.operand : %type
    %numbers = pdl.attribute = [2.0]
    %constant = pdl.operation "ln.constant" {"data" = %numbers}
    %two = pdl.result 0 of %constant
    %twice = pdl.operation "ln.mul" (%x, %two : !pdl.value, !pdl.value) -> (%type : !pdl.type)
    pdl.rewrite %twice {
      %sum = pdl.operation "ln.add" (%x, %x : !pdl.value, !pdl.value)
      pdl.replace %twice with %sum
    }
  }
}
