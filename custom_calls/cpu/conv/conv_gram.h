// Squared norms of kernel gradients from Gram matrices of pixels.
#ifndef BK_JAX_CUSTOM_CALLS_CPU_CONV_CONV_GRAM_H_
#define BK_JAX_CUSTOM_CALLS_CPU_CONV_CONV_GRAM_H_

#include <cstdint>
#include <vector>

#include "custom_calls/cpu/isa/kernels.h"
#include "custom_calls/element.h"
#include "custom_calls/parallel.h"
#include "custom_calls/shapes.h"

namespace bk {

// As ConvNorm (conv_grad.h), from inner products of pixels instead of from the
// gradient:
//
//   |G_i|^2 = sum over output pixels t, s of <patch_t, patch_s> <g_t, g_s>
//   <patch_t, patch_s> = sum over kernel offsets k of <x[t + k], x[s + k]>
//
// One inner product of two input pixels serves all offsets: about
// T (T + 1) (cin + cout) flop per example and group, for stride 1. Where the
// bound would exceed the norm by more than 1 %, ConvNorm is asked.
//
//   a Gram matrix or the sum overflows | both results not finite
//   all else                           | as ConvNorm
//
// Falls back to ConvNorm for kernels of more than kLineOffsets pixels or so
// dilated that their lines do not fit the scratch. Results do not depend on
// threads. Scratch: less than 1 MB per thread (f32).
template <class T>
void ConvGramNorm(const CpuKernels& kernels, Parallel& parallel,
                  const ConvShape& shape, const T* x, const T* g,
                  Accumulator<T>* sq_norm, Accumulator<T>* sq_norm_upper);

// How a convolution is walked, `plan` with pointers into both vectors; tile 0
// if it does not fit. `lanes` of a vector.
struct GramLayout {
  std::vector<GramPhase> phases;
  std::vector<GramOffset> offsets;
  GramPlan plan;
};
GramLayout MakeGramLayout(const ConvShape& shape, int64_t lanes);

}  // namespace bk

#endif  // BK_JAX_CUSTOM_CALLS_CPU_CONV_CONV_GRAM_H_
