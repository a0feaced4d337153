// Convolutions: what their drivers and their bodies share. See kernels.h.
//
// The gradient of a kernel [kD, kH, kW, cin, cout] is a sum over pixels of
// outer products x[pixel * stride + offset] g[pixel]^T. A task makes a block of
// it, rows (kernel row q = (kD, kH), kernel column, input channel) by columns
// (output channel), from blocks of pixels that are packed once for all offsets:
// nothing of the size of the patches exists.
#ifndef BK_JAX_CUSTOM_CALLS_CPU_CONV_CONV_KERNELS_H_
#define BK_JAX_CUSTOM_CALLS_CPU_CONV_CONV_KERNELS_H_

#include <cstdint>

#include "custom_calls/cpu/dense/dense_kernels.h"
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

// A block of a depthwise convolution (cin = cout = 1) has this many vectors of
// channels, o0 to o1 after channel `group`.
inline constexpr int64_t kDepthwiseVectors = 4;

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
  const LiveExample<Accumulator<T>>* examples;
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

// Pixel Gram form of the norm, see conv_gram.cc. A phase of the input is every
// stride-th pixel of it: output pixel t meets kernel offset k at pixel t +
// shift of one phase. Lines of a phase are counted over (image, D, H), padded
// so that a shift of a line is a constant.
struct GramPhase {
  int64_t at[3];
};
struct GramOffset {
  int64_t phase;   // index
  int64_t line;    // shift
  int64_t column;  // shift
};

// At most kLinePixels pixels of two lines make a block of the Gram matrix; the
// blocks that are kept have at most kLineBlocks elements. Together with packed
// pixels and blocks of output gradients: 825 KB of floats.
inline constexpr int64_t kLinePixels = 80;
inline constexpr int64_t kLineDepth = 512;
inline constexpr int64_t kLineBlocks = 96 << 10;
inline constexpr int64_t kLineDeltas = 4;
inline constexpr int64_t kLineOffsets = 256;
inline constexpr int64_t kLinePack = kLinePixels * (kLineDepth + 16);
inline constexpr int64_t kLineGradient =
    kLineDeltas * kLinePixels * kLinePixels;
inline constexpr int64_t kLineScratch =
    kLineBlocks + kLineGradient + 2 * kLinePack;

struct GramPlan {
  const GramPhase* phases;
  int64_t phase_count;
  const GramOffset* offsets;
  int64_t offset_count;
  int64_t depth, height;  // padded lines of one image
  int64_t lines;          // of all images
  int64_t window;         // lines that an output line meets, first to last
  int64_t span;           // largest shift of a column
  int64_t tile;           // output columns of a block
  int64_t stride;         // elements from one row of a block to the next
  int64_t deltas;         // line distances of a task
};

// Pairs of output lines [delta0, delta1) apart, and in them output columns from
// row_column and from column_column on.
template <class T>
struct GramTask {
  const ConvShape* shape;
  const GramPlan* plan;
  const T* x;  // one group of one example
  const T* g;
  int64_t delta0, delta1;
  int64_t row_column, column_column;
};

template <class T>
struct ConvKernels {
  ConvPartial (*block)(const ConvTask<T>& task, double* sums,
                       Accumulator<T>* scratch);
  // The same for depthwise convolutions.
  ConvPartial (*depthwise)(const ConvTask<T>& task, double* sums,
                           Accumulator<T>* scratch);
  GramPartial (*gram)(const GramTask<T>& task, Accumulator<T>* scratch);
};

}  // namespace bk

#endif  // BK_JAX_CUSTOM_CALLS_CPU_CONV_CONV_KERNELS_H_
