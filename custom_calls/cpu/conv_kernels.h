// Convolutions: what their drivers and their bodies share. See kernels.h.
//
// The gradient of a kernel [kD, kH, kW, cin, cout] is a sum over pixels of
// outer products x[pixel * stride + offset] g[pixel]^T. A task makes a block of
// it, rows (kernel row q = (kD, kH), kernel column, input channel) by columns
// (output channel), from blocks of pixels that are packed once for all offsets:
// nothing of the size of the patches exists.
#ifndef BK_JAX_CUSTOM_CALLS_CPU_CONV_KERNELS_H_
#define BK_JAX_CUSTOM_CALLS_CPU_CONV_KERNELS_H_

#include <cstdint>

#include "custom_calls/element.h"
#include "custom_calls/shapes.h"

namespace bk {

// The block of the gradient that one task makes is at most kConvRows x
// kConvColumns doubles (147 KB: 3 x 3 x 32 by 64). One block of pixels is at
// most kConvPixels, which bounds the accumulation chain in float and therefore
// the certified error; packed, it has at most kConvImage + kConvGradient
// elements (384 + 64 KB of floats). Together they stay near L2.
inline constexpr int64_t kConvRows = 288;
inline constexpr int64_t kConvColumns = 64;
inline constexpr int64_t kConvPixels = 256;
inline constexpr int64_t kConvImage = 96 << 10;
inline constexpr int64_t kConvGradient = kConvPixels * kConvColumns;
// Kernel columns of one task, and how far they may be apart.
inline constexpr int64_t kConvKernelColumns = 16;
inline constexpr int64_t kConvKernelSpan = 256;

// An example that is added to the block.
template <class Acc>
struct ConvExample {
  int64_t index;
  Acc factor;
};

// Half-open ranges of the block: kernel rows, kernel columns, input channels
// and output channels of one group; and how pixels are blocked.
struct ConvBlock {
  int64_t group;
  int64_t q0, q1;
  int64_t kw0, kw1;
  int64_t c0, c1;
  int64_t o0, o1;
  int64_t pixel_rows;     // rows of output pixels in one block
  int64_t pixel_columns;  // columns of them
};

template <class T>
struct ConvTask {
  ConvShape shape;
  ConvBlock block;
  const T* x;  // [B, images, D, H, W, groups * cin]
  const T* g;  // [B, images, D', H', W', groups * cout]
  const ConvExample<Accumulator<T>>* examples;
  int64_t example_count;
  Accumulator<T>* out;  // the whole gradient [.., cin, groups * cout], or null
};

// Squares of the block as it was stored, or in double if it was not; the sum
// over kernel offsets of S^2, S = sum over blocks of pixels of |x| |g|; whether
// the operands rule out that the block is exactly zero.
struct ConvPartial {
  double squares;
  double bound;
  bool zero;
};

template <class T>
struct ConvKernels {
  ConvPartial (*block)(const ConvTask<T>& task, double* sums,
                       Accumulator<T>* scratch);
};

}  // namespace bk

#endif  // BK_JAX_CUSTOM_CALLS_CPU_CONV_KERNELS_H_
