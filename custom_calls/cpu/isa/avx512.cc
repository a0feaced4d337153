// AVX-512 (F, BW, DQ, VL): 512-bit vectors. 32 registers hold 24 sums.
#define BK_ISA avx512
#define BK_VECTOR_BYTES 64

#include "custom_calls/cpu/isa/kernels.h"
#include "custom_calls/cpu/isa/table-inl.h"

namespace bk {
const CpuKernels kAvx512Kernels = BK_ISA::Table("avx512");
}  // namespace bk
