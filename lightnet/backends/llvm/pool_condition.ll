; Sleeping until a word may have changed from `old`, and waking all that sleep on it.
; The word is looked at again under the mutex, which whoever changed it takes before it signals: no wake is lost.
@mutex = internal global [128 x i8] zeroinitializer, align 64
@condition = internal global [128 x i8] zeroinitializer, align 64
declare i32 @pthread_mutex_init(ptr, ptr)
declare i32 @pthread_cond_init(ptr, ptr)
declare i32 @pthread_mutex_lock(ptr)
declare i32 @pthread_mutex_unlock(ptr)
declare i32 @pthread_cond_wait(ptr, ptr)
declare i32 @pthread_cond_broadcast(ptr)
define internal void @prepare_sleep() {
  %m = call i32 @pthread_mutex_init(ptr @mutex, ptr null)
  %c = call i32 @pthread_cond_init(ptr @condition, ptr null)
  ret void
}
define internal void @sleep(ptr %word, i32 %old) {
  %l = call i32 @pthread_mutex_lock(ptr @mutex)
  %now = load atomic i32, ptr %word acquire, align 4
  %same = icmp eq i32 %now, %old
  br i1 %same, label %wait, label %done
wait:
  %w = call i32 @pthread_cond_wait(ptr @condition, ptr @mutex)
  br label %done
done:
  %u = call i32 @pthread_mutex_unlock(ptr @mutex)
  ret void
}
define internal void @wake(ptr %word) {
  %l = call i32 @pthread_mutex_lock(ptr @mutex)
  %u = call i32 @pthread_mutex_unlock(ptr @mutex)
  %b = call i32 @pthread_cond_broadcast(ptr @condition)
  ret void
}
