// The noise bodies of one instruction set. They live in a file of their own,
// gaussian_isa.cc, because they are compiled without contraction of a * b + c.
#ifndef BK_ISA
#error "include from an instruction-set file that defines BK_ISA"
#endif
#ifndef BK_JAX_CUSTOM_CALLS_CPU_NOISE_GAUSSIAN_ISA_H_
#define BK_JAX_CUSTOM_CALLS_CPU_NOISE_GAUSSIAN_ISA_H_

#include "custom_calls/cpu/isa/kernels.h"

namespace bk::BK_ISA {

template <class T>
void GaussianRange(const GaussianTask<T>& task);

void ChachaRange(const ChachaTask& task);

}  // namespace bk::BK_ISA

#endif  // BK_JAX_CUSTOM_CALLS_CPU_NOISE_GAUSSIAN_ISA_H_
