// Squared norms of per-example gradients of a table that is looked up.
#ifndef BK_JAX_CUSTOM_CALLS_CPU_SPARSE_EMBEDDING_NORM_H_
#define BK_JAX_CUSTOM_CALLS_CPU_SPARSE_EMBEDDING_NORM_H_

#include <cstdint>

#include "custom_calls/cpu/isa/kernels.h"
#include "custom_calls/element.h"
#include "custom_calls/parallel.h"
#include "custom_calls/shapes.h"

namespace bk {

// sq_norm[i] = sum over ids v of |sum of g[i, t] with ids[i, t] = v|^2 for
// ids [B, T] and g [B, T, p], and sq_norm_upper[i], which is not below the
// exact value. shape.rows is not used: no table is touched.
//
//   a negative id                           | the token is not read
//   example i contains a NaN or an infinity | both results not finite
//   a sum overflows                         | both results not finite
//   all tokens that are read are zero       | both results 0
//   any other gradient, however small       | sq_norm_upper >= min normal
//   no tokens or p = 0                      | both results 0
//
// Cost: one read of g; 16 T bytes of scratch. T < kMaxTokens.
template <class T>
void EmbeddingNorm(const CpuKernels& kernels, Parallel& parallel,
                   const LookupShape& shape, const int32_t* ids, const T* g,
                   Accumulator<T>* sq_norm, Accumulator<T>* sq_norm_upper);

}  // namespace bk

#endif  // BK_JAX_CUSTOM_CALLS_CPU_SPARSE_EMBEDDING_NORM_H_
