// AMX (TILE, BF16) beside AVX-512, for bfloat16.
#include <cstdint>

#define BK_ISA amx
#define BK_VECTOR_BYTES 64

namespace bk::BK_ISA {
inline constexpr int64_t kDotRows = 6;
inline constexpr int64_t kDotColumns = 4;
inline constexpr int64_t kOuterRows = 8;
inline constexpr int64_t kOuterVectors = 3;
}  // namespace bk::BK_ISA

#include "custom_calls/cpu/tile_table-inl.h"

namespace bk {
const TileKernels kAmxKernels = BK_ISA::kTileKernels;
}  // namespace bk
