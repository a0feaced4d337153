// The bodies of AMX with tiles in memory, for any CPU: what tests run where
// there are no tile registers.
#include <cstdint>

#define BK_JAX_SOFT_TILES
#define BK_ISA soft_tiles
#define BK_VECTOR_BYTES 16

namespace bk::BK_ISA {
inline constexpr int64_t kDotRows = 3;
inline constexpr int64_t kDotColumns = 4;
inline constexpr int64_t kOuterRows = 6;
inline constexpr int64_t kOuterVectors = 2;
}  // namespace bk::BK_ISA

#include "custom_calls/cpu/tile_table-inl.h"

namespace bk {
const TileKernels kSoftTileKernels = BK_ISA::kTileKernels;
}  // namespace bk
