// Gradients of convolution kernels: norms of every example's, the gradients
// themselves, and their clipped sum. None forms patches of the image.
#ifndef BK_JAX_CUSTOM_CALLS_CPU_CONV_CONV_GRAD_H_
#define BK_JAX_CUSTOM_CALLS_CPU_CONV_CONV_GRAD_H_

#include <cstdint>
#include <vector>

#include "custom_calls/cpu/isa/kernels.h"
#include "custom_calls/element.h"
#include "custom_calls/parallel.h"
#include "custom_calls/shapes.h"

namespace bk {

// Whether there is nothing to add up, so that all gradients are zero.
bool IsEmpty(const ConvShape& s);

// With the gradient G_i of the kernel for example i,
//
//   ConvNorm   sq_norm[i] ~ |G_i|^2, and a bound that is not below the exact
//              value; G_i is not kept
//   ConvGrad   grad[i] = G_i [kD, kH, kW, cin, groups * cout]; sq_norm[i] and
//              its bound are those of grad[i] as it was stored
//   ConvSum    sum = sum_i factor[i] * G_i; an example whose factor is 0 is not
//              read
//
//   example i contains a NaN or an infinity | both results not finite, if a
//                                           | pixel of the result reads it
//   a sum overflows                         | both results not finite
//   all of x[i] or all of g[i] is zero      | results 0 (f64: bound min normal)
//   an empty dimension                      | results 0
//
// Every sum runs over at most kConvPixels pixels in the accumulator type and
// over blocks of pixels in double. Results do not depend on threads. Scratch:
// less than 1 MB per thread (f32).
template <class T>
void ConvNorm(const CpuKernels& kernels, Parallel& parallel,
              const ConvShape& shape, const T* x, const T* g,
              Accumulator<T>* sq_norm, Accumulator<T>* sq_norm_upper);

template <class T>
void ConvGrad(const CpuKernels& kernels, Parallel& parallel,
              const ConvShape& shape, const T* x, const T* g,
              Accumulator<T>* grad, Accumulator<T>* sq_norm,
              Accumulator<T>* sq_norm_upper);

template <class T>
void ConvSum(const CpuKernels& kernels, Parallel& parallel,
             const ConvShape& shape, const T* x, const Accumulator<T>* factor,
             const T* g, Accumulator<T>* sum);

// The blocks of the gradient that tasks make (of a depthwise convolution:
// blocks of channels): at least `wanted` if channels
// allow it. `lanes` of a vector: channels are packed in multiples of it.
std::vector<ConvBlock> ConvBlocks(const ConvShape& shape, int64_t lanes,
                                  int64_t wanted);

// Bytes of scratch that a task of element type T uses.
template <class T>
int64_t ConvScratchBytes();

}  // namespace bk

#endif  // BK_JAX_CUSTOM_CALLS_CPU_CONV_CONV_GRAD_H_
