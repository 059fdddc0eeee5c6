builtin.module attributes {ln.pass = "simplify"} {
  // relu(sqrt(x)) = sqrt(x)
  pdl.pattern @relu_of_sqrt : benefit(1) {
    %x = pdl.operand
    %inner = pdl.operation "ln.sqrt" (%x : !pdl.value)
    %r = pdl.result 0 of %inner
    %root = pdl.operation "ln.relu" (%r : !pdl.value)
    pdl.rewrite %root {
      pdl.replace %root with (%r : !pdl.value)
    }
  }
}
