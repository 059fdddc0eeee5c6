builtin.module attributes {ln.pass = "rewrite"} {
  // x * sigmoid(x) = silu(x)
  pdl.pattern @silu : benefit(1) {
    %x = pdl.operand
    %sigmoid = pdl.operation "ln.sigmoid" (%x : !pdl.value)
    %g = pdl.result 0 of %sigmoid
    %root = pdl.operation "ln.mul" (%x, %g : !pdl.value, !pdl.value)
    pdl.rewrite %root {
      %new = pdl.operation "ln.silu" (%x : !pdl.value)
      pdl.replace %root with %new
    }
  }
}
