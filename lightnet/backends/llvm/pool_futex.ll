; Sleeping until a word may have changed from `old`, and waking all that sleep on it. 128: this process only; 129: wake.
declare i64 @syscall(i64, ...)
define internal void @prepare_sleep() {
  ret void
}
define internal void @sleep(ptr %word, i32 %old) {
  %r = call i64 (i64, ...) @syscall(i64 $FUTEX$, ptr %word, i32 128, i32 %old, ptr null)
  ret void
}
define internal void @wake(ptr %word) {
  %r = call i64 (i64, ...) @syscall(i64 $FUTEX$, ptr %word, i32 129, i32 2147483647)
  ret void
}
