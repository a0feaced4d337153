// AVX512_BF16 beside AVX-512, for bfloat16.
#define BK_JAX_PAIRS
#define BK_ISA avx512bf16
#define BK_VECTOR_BYTES 64

#include "custom_calls/cpu/amx/tile_table-inl.h"

namespace bk {
const TileKernels kAvx512Bf16Kernels = BK_ISA::kTileKernels;
}  // namespace bk
