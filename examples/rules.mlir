// Rewrite rules as data. On rules.net, both apply, and the negation that has another reader stays.
// RUN: ln-opt --load %s --pass=bind,simplify %S/rules.net | filecheck %s
// RUN: lightnet --load %s %S/rules.net | filecheck %s --check-prefix=RAN

// CHECK: %[[X:.*]] = ln.input
// CHECK: %[[Y:.*]] = ln.input
// CHECK-NEXT: %[[KEPT:.*]] = ln.neg %[[Y]]
// CHECK-NEXT: %[[A:.*]] = ln.sub %[[X]], %[[Y]]
// CHECK-NEXT: %[[B:.*]] = ln.add %[[A]], %[[X]] : tensor<3xf32> as "sub0"("b")
// CHECK-NEXT: ln.print %[[B]]
// CHECK-NEXT: ln.print %[[KEPT]]

// RAN: [-2.000 -1.000 0.000]
// RAN: [-4.000 -5.000 -6.000]
builtin.module attributes {ln.pass = "simplify"} {
  // x + (-y) = x - y
  pdl.pattern @add_of_neg : benefit(1) {
    %x = pdl.operand
    %y = pdl.operand
    %neg = pdl.operation "ln.neg" (%y : !pdl.value)
    %n = pdl.result 0 of %neg
    %root = pdl.operation "ln.add" (%x, %n : !pdl.value, !pdl.value)
    pdl.rewrite %root {
      %new = pdl.operation "ln.sub" (%x, %y : !pdl.value, !pdl.value)
      pdl.replace %root with %new
    }
  }

  // x - (-y) = x + y
  pdl.pattern @sub_of_neg : benefit(1) {
    %x = pdl.operand
    %y = pdl.operand
    %neg = pdl.operation "ln.neg" (%y : !pdl.value)
    %n = pdl.result 0 of %neg
    %root = pdl.operation "ln.sub" (%x, %n : !pdl.value, !pdl.value)
    pdl.rewrite %root {
      %new = pdl.operation "ln.add" (%x, %y : !pdl.value, !pdl.value)
      pdl.replace %root with %new
    }
  }
}
