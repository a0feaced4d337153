#!/bin/sh
# Looks at the products of pairs in the compiled kernels: a block has 8 rows of one or two vectors of sums, so products come
# in groups of 24, and each reads its pair from memory by itself; a broadcast of its own would cost a register and a turn.
# usage: pairs_code_test.sh present|absent archive...
expected=$1
shift
code=$(objdump --disassemble --no-show-raw-insn "$@") || exit 1
products=$(echo "$code" | grep -c '[[:space:]]vdpbf16ps')
folded=$(echo "$code" | grep -c '[[:space:]]vdpbf16ps.*{1to16}')
echo "$products products, $folded of them with their pair"
if [ "$expected" = absent ]; then
  [ "$products" -eq 0 ]
  exit
fi
[ "$products" -ge 24 ] && [ $((products % 24)) -eq 0 ] && [ "$folded" -eq "$products" ]
