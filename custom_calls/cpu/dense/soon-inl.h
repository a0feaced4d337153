// Memory that is needed soon, asked for a few cache lines at a time between the
// multiplications that hide the wait.
#ifndef BK_JAX_CUSTOM_CALLS_CPU_DENSE_SOON_INL_H_
#define BK_JAX_CUSTOM_CALLS_CPU_DENSE_SOON_INL_H_

#include <cstdint>

#include "custom_calls/cpu/isa/vector-inl.h"

namespace bk::BK_ISA {

// Which cache a line is asked into: L1 or L2.
enum class Into { kL1, kL2 };

// The cache lines of `columns` elements of each of `rows` rows, `stride`
// elements apart. Addresses are numbers, since some may not exist.
class Lines {
 public:
  Lines() = default;
  template <class T>
  Lines(const T* first, int64_t stride, int64_t rows, int64_t columns)
      : row_(reinterpret_cast<uintptr_t>(first)),
        stride_(static_cast<uintptr_t>(stride) * sizeof(T)),
        bytes_(static_cast<uintptr_t>(columns) * sizeof(T)),
        rows_(rows) {}

  // Asks for the next kCount lines, which may be more than are left of the row;
  // whether there was one.
  template <Into kInto, int kCount>
  BK_INLINE bool Ask() {
    if (line_ >= end_) {
      if (rows_ <= 0) return false;
      --rows_;
      line_ = row_ / kLine * kLine;
      end_ = row_ + bytes_;
      row_ += stride_;
    }
#pragma GCC unroll 8
    for (int i = 0; i < kCount; ++i, line_ += kLine) {
      // NOLINTNEXTLINE(performance-no-int-to-ptr)
      const void* line = reinterpret_cast<const void*>(line_);
      __builtin_prefetch(line, 0, kInto == Into::kL1 ? 3 : 2);
    }
    return true;
  }

 private:
  static constexpr uintptr_t kLine = 64;
  uintptr_t row_ = 0, stride_ = 0, bytes_ = 0, line_ = 0, end_ = 0;
  int64_t rows_ = 0;
};

}  // namespace bk::BK_ISA

#endif  // BK_JAX_CUSTOM_CALLS_CPU_DENSE_SOON_INL_H_
