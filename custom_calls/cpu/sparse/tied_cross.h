// The cross term of a table that is both multiplied by and looked up.
#ifndef BK_JAX_CUSTOM_CALLS_CPU_SPARSE_TIED_CROSS_H_
#define BK_JAX_CUSTOM_CALLS_CPU_SPARSE_TIED_CROSS_H_

#include <cstdint>

#include "custom_calls/cpu/isa/kernels.h"
#include "custom_calls/element.h"
#include "custom_calls/parallel.h"
#include "custom_calls/shapes.h"

namespace bk {

// With the gradient D = left^T right of the product and E of the lookup (row
// ids[s] gets g[s]),
//
//   |D + E|^2 = |D|^2 + |E|^2 + 2 <D, E>
//   <D, E> = sum_ts left[t, ids[s]] (right_t . g_s)
//
// cross[i] ~ <D, E> of example i, of either sign, and cross_upper[i], which is
// not below the exact value.
//
//   id < 0 or id >= rows                          | the token is not read
//   a NaN or an infinity in right, a token that   |
//   is read, or an entry of left that is gathered | both results not finite
//   D or E is zero                                | cross 0
//   an empty dimension                            | both results 0
//
// Cost: 2 T S p flop per example; nothing of size T x S is stored.
template <class T>
void TiedCross(const CpuKernels& kernels, Parallel& parallel,
               const TiedCrossShape& shape, const T* left, const T* right,
               const int32_t* ids, const T* g, Accumulator<T>* cross,
               Accumulator<T>* cross_upper);

}  // namespace bk

#endif  // BK_JAX_CUSTOM_CALLS_CPU_SPARSE_TIED_CROSS_H_
