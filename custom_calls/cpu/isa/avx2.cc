// AVX2 and FMA: 256-bit vectors. 16 registers hold 12 sums.
#define BK_ISA avx2
#define BK_VECTOR_BYTES 32

#include "custom_calls/cpu/isa/kernels.h"
#include "custom_calls/cpu/isa/table-inl.h"

namespace bk {
const CpuKernels kAvx2Kernels = BK_ISA::Table("avx2");
}  // namespace bk
