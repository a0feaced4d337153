// AVX-512 (F, BW, DQ, VL): 512-bit vectors. 32 registers hold 24 sums.
#include <cstdint>

#define BK_ISA avx512
#define BK_VECTOR_BYTES 64

namespace bk::BK_ISA {
inline constexpr int64_t kDotRows = 6;
inline constexpr int64_t kDotColumns = 4;
inline constexpr int64_t kOuterRows = 8;
inline constexpr int64_t kOuterVectors = 3;
}  // namespace bk::BK_ISA

#include "custom_calls/cpu/kernels.h"
#include "custom_calls/cpu/table-inl.h"

namespace bk {
const CpuKernels kAvx512Kernels = BK_ISA::Table("avx512");
}  // namespace bk
