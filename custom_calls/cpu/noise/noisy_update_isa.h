// The update body of one instruction set. It is compiled like the noise bodies,
// without contraction of a * b + c: the same bits everywhere.
#ifndef BK_ISA
#error "include from an instruction-set file that defines BK_ISA"
#endif
#ifndef BK_JAX_CUSTOM_CALLS_CPU_NOISE_NOISY_UPDATE_ISA_H_
#define BK_JAX_CUSTOM_CALLS_CPU_NOISE_NOISY_UPDATE_ISA_H_

#include "custom_calls/cpu/isa/kernels.h"

namespace bk::BK_ISA {

void UpdateRange(const UpdateTask& task);

}  // namespace bk::BK_ISA

#endif  // BK_JAX_CUSTOM_CALLS_CPU_NOISE_NOISY_UPDATE_ISA_H_
