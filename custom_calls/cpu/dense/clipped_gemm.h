// The clipped sum of per-example gradients as one gemm.
#ifndef BK_JAX_CUSTOM_CALLS_CPU_DENSE_CLIPPED_GEMM_H_
#define BK_JAX_CUSTOM_CALLS_CPU_DENSE_CLIPPED_GEMM_H_

#include "custom_calls/cpu/isa/kernels.h"
#include "custom_calls/element.h"
#include "custom_calls/parallel.h"
#include "custom_calls/shapes.h"

namespace bk {

// Whether the sum replaces what is in `out` or is added to it.
enum class GemmOutput { kOverwrite, kAccumulate };

// out[n] = sum_i factor[i] * lhs[i,n]^T rhs[i,n], for lhs [B, N, T, m],
// rhs [B, N, T, n], out [N, m, n].
//
// An example whose factor is 0 is not read, so a NaN or an infinity in it does
// no harm. An empty sum is zero. Products are scaled and accumulated in the
// accumulator type; their order depends on the shape and on which factors are
// zero, never on threads.
template <class T>
void ClippedGemm(const CpuKernels& kernels, Parallel& parallel,
                 const ClippedGemmShape& shape, const T* lhs,
                 const Accumulator<T>* factor, const T* rhs,
                 Accumulator<T>* out,
                 GemmOutput output = GemmOutput::kOverwrite);

}  // namespace bk

#endif  // BK_JAX_CUSTOM_CALLS_CPU_DENSE_CLIPPED_GEMM_H_
