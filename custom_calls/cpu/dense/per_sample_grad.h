// Per-example gradients and their squared norms in one pass.
#ifndef BK_JAX_CUSTOM_CALLS_CPU_DENSE_PER_SAMPLE_GRAD_H_
#define BK_JAX_CUSTOM_CALLS_CPU_DENSE_PER_SAMPLE_GRAD_H_

#include "custom_calls/cpu/isa/kernels.h"
#include "custom_calls/element.h"
#include "custom_calls/parallel.h"
#include "custom_calls/shapes.h"

namespace bk {

// grad[i,n] = a[i,n]^T g[i,n], [B, N, d, p]; sq_norm[i] ~ |grad[i]|^2, and
// sq_norm_upper[i], which is not below the exact squared norm of the gradients
// as they were written: those are what is added later, whatever rounding they
// went through. Both are 0 if and only if all written gradients are 0, and not
// finite if the sum of squares is not.
template <class T>
void PerSampleGrad(const CpuKernels& kernels, Parallel& parallel,
                   const DenseShape& shape, const T* a, const T* g,
                   Accumulator<T>* grad, Accumulator<T>* sq_norm,
                   Accumulator<T>* sq_norm_upper);

}  // namespace bk

#endif  // BK_JAX_CUSTOM_CALLS_CPU_DENSE_PER_SAMPLE_GRAD_H_
