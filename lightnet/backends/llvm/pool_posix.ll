; How many processors this process may run on; very many if unknown. 58 is _SC_NPROCESSORS_ONLN of macOS and the BSDs.
declare i64 @sysconf(i32)
define i64 @ln_pool_processors() {
  %n = call i64 @sysconf(i32 58)
  ret i64 %n
}
