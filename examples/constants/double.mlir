// A rule that reads a constant, in PDL.
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
