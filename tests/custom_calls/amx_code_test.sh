#!/bin/sh
# Counts instructions of AMX in the compiled kernels. Blocks have one to four tiles of sums, each zeroed once and stored
# once; over the four kinds of block, nine products need twelve loads. More of either would be tiles that went through memory.
# usage: amx_code_test.sh present|absent archive...
expected=$1
shift
code=$(objdump --disassemble --no-show-raw-insn "$@") || exit 1
count() {
  echo "$code" | grep -c "[[:space:]]$1"
}
dot=$(count tdpbf16ps)
echo "$dot products, $(count tileloadd) loads, $(count tilestored) stores, $(count tilezero) zeros"
if [ "$expected" = absent ]; then
  [ "$dot" -eq 0 ]
  exit
fi
[ "$dot" -ge 9 ] &&
  [ $((dot * 12)) -eq $(($(count tileloadd) * 9)) ] &&
  [ "$(count tilestored)" -eq "$(count tilezero)" ] &&
  [ "$(count tilestored)" -le "$dot" ] &&
  [ "$(count ldtilecfg)" -ge 1 ] &&
  [ "$(count tilerelease)" -ge "$(count ldtilecfg)" ]
