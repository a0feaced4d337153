// Squared norms of per-example gradients, from gradients that are never stored.
#ifndef BK_JAX_CUSTOM_CALLS_CPU_DENSE_DIRECT_NORM_H_
#define BK_JAX_CUSTOM_CALLS_CPU_DENSE_DIRECT_NORM_H_

#include "custom_calls/cpu/isa/kernels.h"
#include "custom_calls/element.h"
#include "custom_calls/parallel.h"
#include "custom_calls/shapes.h"

namespace bk {

// sq_norm[i] ~ sum_n |a[i,n]^T g[i,n]|_F^2, from tiles of a^T g, and
// sq_norm_upper[i], which is not below the exact value.
//
//   example i contains a NaN or an infinity | both results not finite
//   a square or the sum overflows           | both results not finite
//   all of a[i] or all of g[i] is zero      | both results 0
//   any other gradient, however small       | sq_norm_upper >= min normal
//   an empty dimension                      | both results 0
//
// Cost: 2 N T d p flop per example; one tile per thread is stored.
template <class T>
void DirectNorm(const CpuKernels& kernels, Parallel& parallel,
                const DenseShape& shape, const T* a, const T* g,
                Accumulator<T>* sq_norm, Accumulator<T>* sq_norm_upper);

}  // namespace bk

#endif  // BK_JAX_CUSTOM_CALLS_CPU_DENSE_DIRECT_NORM_H_
