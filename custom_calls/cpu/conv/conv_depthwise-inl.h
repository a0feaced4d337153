// Depthwise convolutions, see conv_kernels.h: channel c of the gradient is made
// from channel c of the image and of the output gradient alone, so vectors hold
// channels, and nothing is packed.
#ifndef BK_JAX_CUSTOM_CALLS_CPU_CONV_CONV_DEPTHWISE_INL_H_
#define BK_JAX_CUSTOM_CALLS_CPU_CONV_CONV_DEPTHWISE_INL_H_

#include "custom_calls/cpu/conv/conv-inl.h"
#include "custom_calls/cpu/conv/conv_kernels.h"
#include "custom_calls/cpu/conv/conv_pack-inl.h"
#include "custom_calls/cpu/isa/wide-inl.h"

namespace bk::BK_ISA {

// Kernel columns that are made together, so that a pixel is fetched once for
// all of them; most kernels have three. 12 sums on the way.
inline constexpr int64_t kDepthwiseTile = 3;

template <class Acc>
using Channels = Vec<Acc>[kDepthwiseVectors];

// Vector v of the block's `count` channels at a pixel.
template <bool kWhole, class T>
BK_INLINE Vec<Accumulator<T>> LoadVector(const T* pixel, int64_t v,
                                         int64_t count) {
  using Acc = Accumulator<T>;
  const int64_t at = v * kLanes<Acc>;
  if constexpr (kWhole) return Load(pixel + at);
  return at < count ? LoadUpTo(pixel, at, count) : Vec<Acc>{};
}

// sums[channel] += x, in double, up to `stride` channels.
template <class Acc>
BK_INLINE void AddChannels(const Channels<Acc>& x, int64_t stride,
                           double* sums) {
#pragma GCC unroll 4
  for (int64_t v = 0; v < kDepthwiseVectors; ++v) {
    if (v * kLanes<Acc> >= stride) break;
    Vec<double> parts[kParts<Acc>];
    Widen(x[v], parts);
#pragma GCC unroll 2
    for (int k = 0; k < kParts<Acc>; ++k) {
      double* to = sums + v * kLanes<Acc> + k * kLanes<double>;
      Store(Load(to) + parts[k], to);
    }
  }
}

// The input column that each kernel column of a tile meets at an output column,
// in elements, or -1 outside.
using SourceColumns = int64_t[kDepthwiseTile];

inline void FindColumns(const ConvShape& s, int64_t kw,
                        const PixelBlock& pixels, SourceColumns* columns) {
  for (int64_t column = 0; column < pixels.columns; ++column) {
    for (int64_t i = 0; i < kDepthwiseTile; ++i) {
      const int64_t at = (pixels.column0 + column) * s.stride[2] +
                         Min(kw + i, s.kernel[2] - 1) * s.dilation[2] -
                         s.low[2];
      const int64_t source = Source(at, s.input_dilation[2], s.in[2]);
      columns[column][i] = source < 0 ? -1 : source * s.groups;
    }
  }
}

// tile[i] = the sum over the block of pixels of kernel row q and column i of
// the tile; x and g begin at the block's first channel, `zeros` is a pixel.
template <bool kWhole, class T>
void DepthwiseProducts(const ConvTask<T>& task, const PixelBlock& pixels,
                       int64_t q, const SourceColumns* columns, const T* x,
                       const T* g, const T* zeros,
                       Channels<Accumulator<T>> (&tile)[kDepthwiseTile]) {
  using Acc = Accumulator<T>;
  const ConvShape& s = task.shape;
  const int64_t count = task.block.o1 - task.block.o0;
  Channels<Acc> sums[kDepthwiseTile] = {};
  for (int64_t r = pixels.row0; r < pixels.row0 + pixels.rows; ++r) {
    const int64_t source = SourceRow(s, r, q);
    if (source < 0) continue;
    const T* x_row = x + source * s.in[2] * s.groups;
    const T* g_pixel = g + (r * s.out[2] + pixels.column0) * s.groups;
    for (int64_t k = 0; k < pixels.columns; ++k, g_pixel += s.groups) {
      const T* x_pixel[kDepthwiseTile];
#pragma GCC unroll 4
      for (int64_t i = 0; i < kDepthwiseTile; ++i) {
        x_pixel[i] = columns[k][i] < 0 ? zeros : x_row + columns[k][i];
      }
#pragma GCC unroll 4
      for (int64_t v = 0; v < kDepthwiseVectors; ++v) {
        const Vec<Acc> gradient = LoadVector<kWhole>(g_pixel, v, count);
#pragma GCC unroll 4
        for (int64_t i = 0; i < kDepthwiseTile; ++i) {
          sums[i][v] += LoadVector<kWhole>(x_pixel[i], v, count) * gradient;
        }
      }
    }
  }
  __builtin_memcpy(tile, sums, sizeof sums);
}

// squares[channel] = the sum of the squares of `pixels` pixels, and as much for
// each as squares below the smallest normal number can hide. Returns whether
// all is zero; -0 is not, which errs on the safe side.
template <bool kWhole, class T>
bool ChannelSquares(const ConvTask<T>& task, const T* from, int64_t pixels,
                    int64_t stride, double* squares) {
  using Acc = Accumulator<T>;
  const int64_t count = task.block.o1 - task.block.o0;
  PackedSquares<Acc> all;
  for (int64_t c = 0; c < stride; ++c) {
    squares[c] = static_cast<double>(pixels) * kSmallestNormal<Acc>;
  }
  for (int64_t first = 0; first < pixels; first += kConvPixels) {
    Channels<Acc> sums = {};
    for (int64_t k = first; k < Min(first + kConvPixels, pixels); ++k) {
#pragma GCC unroll 4
      for (int64_t v = 0; v < kDepthwiseVectors; ++v) {
        const Vec<Acc> x =
            LoadVector<kWhole>(from + k * task.shape.groups, v, count);
        sums[v] += x * x;
        all.bits |= BitCast<Words>(x);
      }
    }
    AddChannels<Acc>(sums, stride, squares);
  }
  return all.IsZero();
}

// Adds one example to the block's sums. Returns the sum over kernel offsets and
// channels of |x_c|^2 |g_c|^2, and whether one of both is zero.
template <bool kWhole, class T>
ConvPartial DepthwiseExample(const ConvTask<T>& task,
                             const LiveExample<Accumulator<T>>& example,
                             int64_t stride, double* sums) {
  using Acc = Accumulator<T>;
  const ConvShape& s = task.shape;
  const ConvBlock& b = task.block;
  const T* x = task.x + example.index * ImageSize(s) + b.group;
  const T* g = task.g + example.index * GradientSize(s) + b.group;
  const T zeros[kDepthwiseVectors * kLanes<Acc>] = {};
  ForEachPixelBlock(s, b, [&](const PixelBlock& pixels) {
    SourceColumns columns[kConvPixels];
    for (int64_t kw = b.kw0; kw < b.kw1; kw += kDepthwiseTile) {
      FindColumns(s, kw, pixels, columns);
      for (int64_t q = b.q0; q < b.q1; ++q) {
        Channels<Acc> tile[kDepthwiseTile];
        DepthwiseProducts<kWhole>(task, pixels, q, columns, x, g, zeros, tile);
        const int64_t row = (q - b.q0) * (b.kw1 - b.kw0) + kw - b.kw0;
        for (int64_t i = 0; i < Min(kDepthwiseTile, b.kw1 - kw); ++i) {
          for (auto& v : tile[i]) v *= example.factor;
          AddChannels<Acc>(tile[i], stride, sums + (row + i) * stride);
        }
      }
    }
  });
  double x_squares[kConvColumns];
  double g_squares[kConvColumns];
  const bool x_zero = ChannelSquares<kWhole>(task, x, ImageSize(s) / s.groups,
                                             stride, x_squares);
  const bool g_zero = ChannelSquares<kWhole>(
      task, g, GradientSize(s) / s.groups, stride, g_squares);
  double bound = 0;
  for (int64_t c = 0; c < stride; ++c) bound += x_squares[c] * g_squares[c];
  return {0, static_cast<double>(BlockRows(b)) * bound, x_zero || g_zero};
}

template <class T>
ConvPartial DepthwiseBlockSum(const ConvTask<T>& task, double* sums,
                              Accumulator<T>* /*scratch*/) {
  using Acc = Accumulator<T>;
  const int64_t count = task.block.o1 - task.block.o0;
  const int64_t stride = PadTo(count, kConvPanel<Acc>);
  const auto add = count == kDepthwiseVectors * kLanes<Acc>
                       ? DepthwiseExample<true, T>
                       : DepthwiseExample<false, T>;
  __builtin_memset(
      sums, 0,
      static_cast<uint64_t>(BlockRows(task.block) * stride) * sizeof(double));
  ConvPartial result = {0, 0, true};
  for (int64_t i = 0; i < task.example_count; ++i) {
    const ConvPartial part = add(task, task.examples[i], stride, sums);
    result.bound += part.bound;
    result.zero = result.zero && part.zero;
  }
  result.squares = FinishBlock(task, sums);
  return result;
}

}  // namespace bk::BK_ISA

#endif  // BK_JAX_CUSTOM_CALLS_CPU_CONV_CONV_DEPTHWISE_INL_H_
