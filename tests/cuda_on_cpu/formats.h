// Operands of tensor cores, from the bits in a register or in memory.
#ifndef BK_JAX_TESTS_CUDA_ON_CPU_FORMATS_H_
#define BK_JAX_TESTS_CUDA_ON_CPU_FORMATS_H_

#include <cstdint>
#include <cstring>

#include "tests/cuda_on_cpu/half.h"

namespace bk::emulator {

enum class Format { kBFloat16, kFloat16, kTf32 };

inline double Element(Format format, uint32_t bits) {
  switch (format) {
    case Format::kBFloat16:
      return ToFloat(__nv_bfloat16{static_cast<uint16_t>(bits)});
    case Format::kFloat16:
      return ToFloat(__half{static_cast<uint16_t>(bits)});
    default: {
      // The tensor core drops 13 bits of a float.
      const uint32_t kept = bits & ~uint32_t{0x1fff};
      float x;
      std::memcpy(&x, &kept, sizeof(x));
      return x;
    }
  }
}

}  // namespace bk::emulator

#endif  // BK_JAX_TESTS_CUDA_ON_CPU_FORMATS_H_
