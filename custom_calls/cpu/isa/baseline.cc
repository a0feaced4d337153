// Any 64-bit CPU: 128-bit vectors (SSE2, NEON). 16 registers hold 12 sums.
#define BK_ISA baseline
#define BK_VECTOR_BYTES 16

#include "custom_calls/cpu/isa/kernels.h"
#include "custom_calls/cpu/isa/table-inl.h"

namespace bk {
const CpuKernels kBaselineKernels = BK_ISA::Table("baseline");
}  // namespace bk
