#!/bin/sh
# An instruction-set library may define nothing but its own namespace and its
# table: an inline function of another namespace, compiled with AVX, could be
# picked by the linker for code that runs on every CPU.
status=0
for archive in "$@"; do
  isa=$(basename "$archive" .a)
  isa=${isa#lib}
  isa=${isa%.pic}
  isa=${isa%_noise}
  foreign=$(nm --demangle --defined-only --extern-only "$archive" |
    grep -E '^[0-9a-f]+ ' |
    grep -v -i -E "bk::$isa::|bk::k${isa}Kernels")
  if [ -n "$foreign" ]; then
    echo "$archive defines symbols outside of bk::$isa:"
    echo "$foreign"
    status=1
  fi
done
exit $status
