; The hint that a loop spins; the floating-point mode of a thread (rounding, denormals) as a number; processor cycles
; from some time on, which are always 0 where reading them may be forbidden.

declare void @llvm.x86.sse2.pause()
define internal void @pause() {
  call void @llvm.x86.sse2.pause()
  ret void
}

declare void @llvm.x86.sse.stmxcsr(ptr)
declare void @llvm.x86.sse.ldmxcsr(ptr)
define internal i64 @mode() {
  %m = alloca i32, align 4
  call void @llvm.x86.sse.stmxcsr(ptr %m)
  %v = load i32, ptr %m, align 4
  %w = zext i32 %v to i64
  ret i64 %w
}
define internal void @set_mode(i64 %w) {
  %m = alloca i32, align 4
  %v = trunc i64 %w to i32
  store i32 %v, ptr %m, align 4
  call void @llvm.x86.sse.ldmxcsr(ptr %m)
  ret void
}

declare i64 @llvm.readcyclecounter()
define internal i64 @cycles() {
  %c = call i64 @llvm.readcyclecounter()
  ret i64 %c
}
