// The kernels of AMX with its real instructions, but with vectors that every
// x86-64 CPU has: on a CPU without AMX, the emulator has to do tiles only.
#define BK_ISA amx_instructions
#define BK_VECTOR_BYTES 16

#include "custom_calls/cpu/amx/tile_table-inl.h"

namespace bk {
extern const TileKernels kAmxInstructions;
const TileKernels kAmxInstructions = BK_ISA::kTileKernels;
}  // namespace bk
