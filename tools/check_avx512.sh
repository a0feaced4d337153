#!/usr/bin/env bash
# Runs the kernels' tests on an emulated CPU with AVX-512, so that a machine without one knows that this path works.
# Bochs emulates such a CPU; a Debian kernel boots in it from a CD image whose memory disk holds the tests.
# Not part of the ordinary tests: the emulator makes some 15 million instructions per second, and needs an hour or more.
set -euo pipefail

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
OUT=$ROOT/build/avx512
DISK=$OUT/disk
CD=$OUT/cd
LIMIT=${LIMIT:-10800} # seconds until the emulator is stopped
# Shortest first. The long random campaigns would take days here.
TESTS=(weighted_sum chacha gaussian direct_norm embedding_norm clipped_scatter per_sample_grad tied_cross clipped_gemm
  ghost_norm conv_gram conv_grad)

usage() {
  cat <<'USAGE'
usage: tools/check_avx512.sh [test ...]

Runs the AVX-512 cases of the named tests (default: one per kernel, see TESTS) on an emulated CPU.
FILTER="*Exact*avx512" selects tests as --gtest_filter does, LIMIT=seconds stops the emulator.
Debian packages: bochs bochs-term bochsbios vgabios busybox-static genisoimage isolinux syslinux-common
USAGE
}

build_tests() {
  bazel build "${@/#///tests/custom_calls:}"
}

fetch_kernel() {
  [ -f "$OUT/vmlinuz" ] && return
  local package
  package=$(apt-cache depends linux-image-cloud-amd64 | awk '/Depends:/ { print $2; exit }')
  (cd "$OUT" && apt-get download "$package" && dpkg -x "$package"_*.deb kernel)
  cp "$OUT"/kernel/boot/vmlinuz-* "$OUT/vmlinuz"
  rm -rf "$OUT/kernel" "$OUT/$package"_*.deb
}

# A test, the shared libraries that it loads, and their loader.
copy_program() {
  cp -L "$1" "$DISK/tests/"
  ldd "$1" | awk '/=> \// { print $3 }' | xargs -I{} cp -nL {} "$DISK/lib/"
  cp -nL /lib64/ld-linux-x86-64.so.2 "$DISK/lib64/"
}

write_init() {
  cat >"$DISK/init" <<INIT
#!/bin/busybox sh
/bin/busybox mount -t proc proc /proc
exec >/dev/ttyS0 2>&1
/bin/busybox grep -o -m1 'avx512f' /proc/cpuinfo
export LD_LIBRARY_PATH=/lib
cd /tests
for test in $*; do
  echo "== \$test"
  ./\$test --gtest_brief=1 --gtest_filter='${FILTER:-*avx512*}'
  echo "== \$test: exit \$?"
done
echo "== end"
/bin/busybox poweroff -f
INIT
  chmod +x "$DISK/init"
}

make_image() {
  local name
  rm -rf "$DISK" "$CD"
  mkdir -p "$DISK"/{bin,lib,lib64,tests,proc,dev} "$CD"
  cp /bin/busybox "$DISK/bin/"
  mknod "$DISK/dev/ttyS0" c 4 64
  mknod "$DISK/dev/console" c 5 1
  for name in "$@"; do copy_program "$ROOT/bazel-bin/tests/custom_calls/$name"; done
  write_init "$@"
  (cd "$DISK" && find . | cpio --quiet -o -H newc) >"$CD/disk.img"
  cp "$OUT/vmlinuz" /usr/lib/ISOLINUX/isolinux.bin /usr/lib/syslinux/modules/bios/ldlinux.c32 "$CD/"
  # Cleared: MSRs of performance counters that the emulator lacks (124), and its compact form of saved registers, whose
  # size the kernel does not agree with (321, 323).
  cat >"$CD/isolinux.cfg" <<'CFG'
DEFAULT linux
LABEL linux
  KERNEL vmlinuz
  APPEND initrd=disk.img console=ttyS0 quiet mitigations=off nokaslr clearcpuid=124,321,323 random.trust_cpu=on lpj=4000000
CFG
  genisoimage -quiet -o "$OUT/cd.iso" -b isolinux.bin -c boot.cat -no-emul-boot -boot-load-size 4 -boot-info-table "$CD"
}

write_machine() {
  cat >"$OUT/bochsrc" <<RC
display_library: term
megs: 1024
cpu: model=corei7_skylake_x, count=1, ips=100000000
romimage: file=/usr/share/bochs/BIOS-bochs-latest
vgaromimage: file=/usr/share/bochs/VGABIOS-lgpl-latest
ata0-master: type=cdrom, path="$OUT/cd.iso", status=inserted
boot: cdrom
com1: enabled=1, mode=file, dev="$OUT/serial.txt"
log: "$OUT/bochs.log"
panic: action=fatal
sound: waveoutdrv=dummy, waveindrv=dummy, midioutdrv=dummy
speaker: enabled=0
RC
}

# Ends when the machine says so; the emulator does not always end by itself.
emulate() {
  : >"$OUT/serial.txt"
  # Its screen needs a terminal, and a debugger in it waits for "c".
  (echo c && sleep "$LIMIT") | TERM=linux timeout "$LIMIT" script -qfc "bochs -q -f $OUT/bochsrc" "$OUT/screen.txt" >/dev/null 2>&1 &
  local shown=0 lines
  while sleep 2; do
    lines=$(wc -l <"$OUT/serial.txt")
    tail -n +$((shown + 1)) "$OUT/serial.txt" | head -n $((lines - shown))
    shown=$lines
    if grep -q '^== end' "$OUT/serial.txt"; then break; fi
    if ! kill -0 $! 2>/dev/null; then echo "the emulator stopped: see $OUT/bochs.log" && exit 1; fi
  done
  pkill -f "$OUT/bochsrc" || true
}

check() {
  grep -q '^avx512f' "$OUT/serial.txt" || { echo "the emulated CPU has no AVX-512" && exit 1; }
  local passed failed
  passed=$(grep -c ': exit 0' "$OUT/serial.txt" || true)
  failed=$(grep ': exit [^0]' "$OUT/serial.txt" || true)
  echo "$passed programs passed"
  [ -z "$failed" ] || { echo "$failed" && exit 1; }
}

main() {
  case ${1:-} in -h | --help) usage && exit 0 ;; esac
  local tests=("$@")
  [ $# -gt 0 ] || tests=("${TESTS[@]/%/_test}")
  mkdir -p "$OUT"
  build_tests "${tests[@]}"
  fetch_kernel
  make_image "${tests[@]}"
  write_machine
  emulate
  check
}

main "$@"
