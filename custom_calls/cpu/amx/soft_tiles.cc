// The bodies of AMX with tiles in memory, for any CPU: what tests run where
// there are no tile registers.
#define BK_JAX_SOFT_TILES
#define BK_ISA soft_tiles
#define BK_VECTOR_BYTES 16

#include "custom_calls/cpu/amx/tile_table-inl.h"

namespace bk {
const TileKernels kSoftTileKernels = BK_ISA::kTileKernels;
}  // namespace bk
