; The hint that a loop spins; the floating-point mode of a thread (rounding, denormals) as a number; processor cycles
; from some time on, which are always 0 where reading them may be forbidden.

define internal void @pause() {
  ret void
}

define internal i64 @mode() {
  ret i64 0
}
define internal void @set_mode(i64 %w) {
  ret void
}

define internal i64 @cycles() {
  ret i64 0
}
