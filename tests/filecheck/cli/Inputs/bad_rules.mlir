pdl.pattern @bad : benefit(1) {
  %x = pdl.operand
  %a = pdl.operation "ln.rleu" (%x : !pdl.value)
  pdl.rewrite %a {
    pdl.replace %a with (%x : !pdl.value)
  }
}
