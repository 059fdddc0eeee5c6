; How many processors this process may run on; very many if unknown.
declare i32 @sched_getaffinity(i32, i64, ptr)
define i64 @ln_pool_processors() {
entry:
  %mask = alloca [16 x i64], align 8
  call void @llvm.memset.p0.i64(ptr align 8 %mask, i8 0, i64 128, i1 false)
  %r = call i32 @sched_getaffinity(i32 0, i64 128, ptr %mask)
  %failed = icmp ne i32 %r, 0
  br i1 %failed, label %unknown, label %count
count:
  %i = phi i64 [ 0, %entry ], [ %i1, %count ]
  %n = phi i64 [ 0, %entry ], [ %n1, %count ]
  %p = getelementptr i64, ptr %mask, i64 %i
  %word = load i64, ptr %p, align 8
  %bits = call i64 @llvm.ctpop.i64(i64 %word)
  %n1 = add i64 %n, %bits
  %i1 = add i64 %i, 1
  %more = icmp ult i64 %i1, 16
  br i1 %more, label %count, label %done
done:
  ret i64 %n1
unknown:
  ret i64 -1
}
