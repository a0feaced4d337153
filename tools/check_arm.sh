#!/usr/bin/env bash
# Compiles the kernels and their tests for 64-bit ARM and runs the tests in an emulator, so that a machine without an ARM
# CPU knows that the portable path works there. Not part of the ordinary tests: it needs a cross compiler.
set -euo pipefail

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
OUT=$ROOT/build/arm
GTEST=/usr/src/googletest
CXX=${CXX:-aarch64-linux-gnu-g++}
EMULATOR=${EMULATOR:-qemu-aarch64 -L /usr/aarch64-linux-gnu}
FLAGS=(-std=c++17 -O2 -Wall -Wextra -Werror -I"$ROOT" -isystem "$GTEST/googletest/include" -isystem "$GTEST/googlemock/include")

usage() {
  cat <<'USAGE'
usage: tools/check_arm.sh [test ...]

Compiles the kernels for 64-bit ARM and runs the named tests (default: all of tests/custom_calls) in an emulator.
Debian packages: g++-aarch64-linux-gnu qemu-user googletest
USAGE
}

# Flags of single files as in custom_calls/cpu/isa.bzl and BUILD.
flags_of() {
  case $1 in
  */gaussian_isa.cc) echo "-O3 -ffp-contract=off -fno-math-errno -DBK_ISA=baseline -DBK_VECTOR_BYTES=16" ;;
  */baseline.cc | */soft_tiles.cc) echo "-O3 -ffp-contract=fast -fno-math-errno" ;;
  *) echo "-ffp-contract=off" ;;
  esac
}

compile() {
  local source object
  for source in "$@"; do
    object=$OUT/$(basename "$(dirname "$source")")_$(basename "${source%.cc}").o
    # shellcheck disable=SC2046
    "$CXX" "${FLAGS[@]}" $(flags_of "$source") -c "$source" -o "$object"
  done
}

googletest() {
  [ -f "$OUT/gtest-all.o" ] && return
  "$CXX" -std=c++17 -O1 -isystem "$GTEST/googletest/include" -I"$GTEST/googletest" \
    -c "$GTEST/googletest/src/gtest-all.cc" -o "$OUT/gtest-all.o"
  "$CXX" -std=c++17 -O1 -isystem "$GTEST/googletest/include" \
    -c "$GTEST/googletest/src/gtest_main.cc" -o "$OUT/gtest_main.o"
}

run_test() {
  local name=$1
  "$CXX" "${FLAGS[@]}" "$ROOT/tests/custom_calls/$name.cc" "$OUT"/*.o -pthread -o "$OUT/$name"
  # shellcheck disable=SC2086
  $EMULATOR "$OUT/$name" --gtest_brief=1
}

main() {
  case ${1:-} in -h | --help) usage && exit 0 ;; esac
  mkdir -p "$OUT"
  googletest
  mapfile -t sources < <(find "$ROOT"/custom_calls/{cpu,reference} -name '*.cc' ! -name 'avx*' ! -name 'amx.cc')
  compile "${sources[@]}"
  local tests=("$@") name
  [ $# -gt 0 ] || mapfile -t tests < <(find "$ROOT/tests/custom_calls" -maxdepth 1 -name '*_test.cc' ! -name 'amx_*' -exec basename {} .cc \;)
  for name in "${tests[@]}"; do
    echo "$name"
    run_test "$name"
  done
}

main "$@"
