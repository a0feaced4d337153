// The kernels of AMX with its real instructions, but with vectors that every
// x86-64 CPU has: on a CPU without AMX, the emulator has to do tiles only.
#include <cstdint>

#define BK_ISA amx_instructions
#define BK_VECTOR_BYTES 16

namespace bk::BK_ISA {
inline constexpr int64_t kDotRows = 3;
inline constexpr int64_t kDotColumns = 4;
inline constexpr int64_t kOuterRows = 6;
inline constexpr int64_t kOuterVectors = 2;
}  // namespace bk::BK_ISA

#include "custom_calls/cpu/tile_table-inl.h"

namespace bk {
extern const TileKernels kAmxInstructions;
const TileKernels kAmxInstructions = BK_ISA::kTileKernels;
}  // namespace bk
