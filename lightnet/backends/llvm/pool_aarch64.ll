; The hint that a loop spins; the floating-point mode of a thread (rounding, denormals) as a number; processor cycles
; from some time on, which are always 0 where reading them may be forbidden.

declare void @llvm.aarch64.hint(i32)
define internal void @pause() {
  call void @llvm.aarch64.hint(i32 1)
  ret void
}

declare i64 @llvm.aarch64.get.fpcr()
declare void @llvm.aarch64.set.fpcr(i64)
define internal i64 @mode() {
  %w = call i64 @llvm.aarch64.get.fpcr()
  ret i64 %w
}
define internal void @set_mode(i64 %w) {
  call void @llvm.aarch64.set.fpcr(i64 %w)
  ret void
}

define internal i64 @cycles() {
  ret i64 0
}
