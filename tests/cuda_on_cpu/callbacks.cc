// What -fsanitize=thread calls before loads and stores of device code. The
// names and signatures are those of the compiler's pass.
#include <cstddef>

#include "tests/cuda_on_cpu/emulator.h"

using bk::emulator::Access;
using bk::emulator::CheckAccess;
using bk::emulator::CheckAligned;

// NOLINTBEGIN
#define BK_CODE __builtin_return_address(0)
#define BK_CALLBACKS(bytes)                               \
  void __tsan_read##bytes(void* address) {                \
    CheckAligned(address, bytes, "a load");               \
    CheckAccess(address, bytes, Access::kRead, BK_CODE);  \
  }                                                       \
  void __tsan_write##bytes(void* address) {               \
    CheckAligned(address, bytes, "a store");              \
    CheckAccess(address, bytes, Access::kWrite, BK_CODE); \
  }                                                       \
  void __tsan_unaligned_read##bytes(void* address) {      \
    CheckAccess(address, bytes, Access::kRead, BK_CODE);  \
  }                                                       \
  void __tsan_unaligned_write##bytes(void* address) {     \
    CheckAccess(address, bytes, Access::kWrite, BK_CODE); \
  }

extern "C" {
BK_CALLBACKS(1)
BK_CALLBACKS(2)
BK_CALLBACKS(4)
BK_CALLBACKS(8)
BK_CALLBACKS(16)
void __tsan_read_range(void* address, size_t bytes) {
  CheckAccess(address, bytes, Access::kRead);
}
void __tsan_write_range(void* address, size_t bytes) {
  CheckAccess(address, bytes, Access::kWrite);
}
void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit(void*) {}
void __tsan_vptr_update(void**, void*) {}
}
// NOLINTEND
