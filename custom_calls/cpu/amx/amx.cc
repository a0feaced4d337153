// AMX (TILE, BF16) beside AVX-512, for bfloat16.
#define BK_ISA amx
#define BK_VECTOR_BYTES 64

#include "custom_calls/cpu/amx/tile_table-inl.h"

namespace bk {
const TileKernels kAmxKernels = BK_ISA::kTileKernels;
}  // namespace bk
