// The clipped sum of per-example gradients of a table that is looked up.
#ifndef BK_JAX_CUSTOM_CALLS_CPU_SPARSE_CLIPPED_SCATTER_H_
#define BK_JAX_CUSTOM_CALLS_CPU_SPARSE_CLIPPED_SCATTER_H_

#include <cstdint>

#include "custom_calls/cpu/isa/kernels.h"
#include "custom_calls/element.h"
#include "custom_calls/parallel.h"
#include "custom_calls/shapes.h"

namespace bk {

// sum[ids[i, t]] += factor[i] * g[i, t] for ids [B, T], g [B, T, p] and
// sum [rows, p], in place: rows that no token belongs to are not touched.
//
//   id < 0 or id >= rows | the token is not read
//   factor 0             | the example is not read: its NaN does no harm
//
// A row of the table adds its tokens in the order of the batch, whatever the
// number of threads: tokens are sorted by row, tasks own rows and columns.
// Cost: one read of g, one read and write of the rows that are hit; 16 bytes
// for each token, which is what a gradient of four features needs. B T <
// kMaxTokens.
template <class T>
void ClippedScatter(const CpuKernels& kernels, Parallel& parallel,
                    const LookupShape& shape, const int32_t* ids,
                    const Accumulator<T>* factor, const T* g,
                    Accumulator<T>* sum);

}  // namespace bk

#endif  // BK_JAX_CUSTOM_CALLS_CPU_SPARSE_CLIPPED_SCATTER_H_
