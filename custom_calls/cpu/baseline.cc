// Any 64-bit CPU: 128-bit vectors (SSE2, NEON). 16 registers hold 12 sums.
#include <cstdint>

#define BK_ISA baseline
#define BK_VECTOR_BYTES 16

namespace bk::BK_ISA {
inline constexpr int64_t kDotRows = 3;
inline constexpr int64_t kDotColumns = 4;
inline constexpr int64_t kOuterRows = 6;
inline constexpr int64_t kOuterVectors = 2;
}  // namespace bk::BK_ISA

#include "custom_calls/cpu/kernels.h"
#include "custom_calls/cpu/table-inl.h"

namespace bk {
const CpuKernels kBaselineKernels = BK_ISA::Table("baseline");
}  // namespace bk
