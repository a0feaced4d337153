// Convolution body, see conv_kernels.h: for each packed block of pixels, the
// micro-tile multiplies kConvTileRows entries of the image, each at an offset
// of its own from the pixel, by kConvPanel channels of the gradient.
#ifndef BK_JAX_CUSTOM_CALLS_CPU_CONV_CONV_INL_H_
#define BK_JAX_CUSTOM_CALLS_CPU_CONV_CONV_INL_H_

#include "custom_calls/cpu/conv/conv_kernels.h"
#include "custom_calls/cpu/conv/conv_pack-inl.h"
#include "custom_calls/cpu/isa/wide-inl.h"

namespace bk::BK_ISA {

// sums[kConvTileRows, kConvPanel] of the pixels of the block: image entries at
// x + offsets[i] of each pixel times a panel of the gradient.
template <class Acc>
BK_INLINE void ConvOuter(const Acc* const (&entries)[kConvTileRows],
                         const Acc* panel, const PixelBlock& pixels,
                         int64_t stride,
                         Vec<Acc> (&tile)[kConvTileRows][kConvTileVectors]) {
#pragma GCC unroll 16
  for (int i = 0; i < kConvTileRows; ++i) {
#pragma GCC unroll 8
    for (int v = 0; v < kConvTileVectors; ++v) tile[i][v] = Vec<Acc>{};
  }
  const int64_t step = stride * kLanes<Acc>;
  for (int64_t r = 0; r < pixels.rows; ++r) {
    int64_t at = r * pixels.width * kLanes<Acc>;
    const int64_t end = at + pixels.columns * step;
    for (; at < end; at += step) {
      Vec<Acc> column[kConvTileVectors];
#pragma GCC unroll 8
      for (int v = 0; v < kConvTileVectors; ++v) {
        column[v] = Load(panel + v * kLanes<Acc>);
      }
#pragma GCC unroll 16
      for (int i = 0; i < kConvTileRows; ++i) {
#pragma GCC unroll 8
        for (int v = 0; v < kConvTileVectors; ++v) {
          tile[i][v] += entries[i][at] * column[v];
        }
      }
      panel += kConvPanel<Acc>;
    }
  }
}

// Adds a micro-tile to rows of the block's sums.
template <class Acc>
BK_INLINE void AddMicroTile(
    const Vec<Acc> (&tile)[kConvTileRows][kConvTileVectors], bool add,
    int64_t rows, int64_t stride, double* sums) {
#pragma GCC unroll 16
  for (int i = 0; i < kConvTileRows; ++i) {
    if (i >= rows) break;
#pragma GCC unroll 8
    for (int v = 0; v < kConvTileVectors; ++v) {
      Vec<double> parts[kParts<Acc>];
      Widen(tile[i][v], parts);
#pragma GCC unroll 2
      for (int k = 0; k < kParts<Acc>; ++k) {
        double* to = sums + i * stride + v * kLanes<Acc> + k * kLanes<double>;
        Store(add ? Load(to) + parts[k] : parts[k], to);
      }
    }
  }
}

// Where row m = (q, kernel column, channel) of the block is in the packed
// image.
template <class Acc>
int64_t ImageOffset(const ConvShape& s, const ConvBlock& b,
                    const PixelBlock& pixels, int64_t m) {
  const int64_t channels = b.c1 - b.c0;
  const int64_t c = m % channels;
  const int64_t kw = m / channels % (b.kw1 - b.kw0);
  const int64_t q = m / channels / (b.kw1 - b.kw0);
  const int64_t plane = c / kLanes<Acc> * (b.q1 - b.q0) + q;
  return (plane * pixels.rows * pixels.width + kw * s.dilation[2]) *
             kLanes<Acc> +
         c % kLanes<Acc>;
}

BK_INLINE int64_t BlockRows(const ConvBlock& b) {
  return (b.q1 - b.q0) * (b.kw1 - b.kw0) * (b.c1 - b.c0);
}

// sums[m, o] (+)= products of the packed block of pixels.
template <class Acc>
void MultiplyPixels(const ConvShape& s, const ConvBlock& b,
                    const PixelBlock& pixels, const Acc* image,
                    const Acc* gradient, bool add, double* sums) {
  const int64_t count = pixels.rows * pixels.columns;
  const int64_t rows = BlockRows(b);
  const int64_t columns = PadTo(b.o1 - b.o0, kConvPanel<Acc>);
  for (int64_t m = 0; m < rows; m += kConvTileRows) {
    const Acc* entries[kConvTileRows];
    for (int64_t i = 0; i < kConvTileRows; ++i) {
      entries[i] = image + ImageOffset<Acc>(s, b, pixels, Min(m + i, rows - 1));
    }
    for (int64_t o = 0; o < columns; o += kConvPanel<Acc>) {
      Vec<Acc> tile[kConvTileRows][kConvTileVectors];
      ConvOuter<Acc>(entries, gradient + o * count, pixels, s.stride[2], tile);
      AddMicroTile<Acc>(tile, add, Min(kConvTileRows, rows - m), columns,
                        sums + m * columns + o);
    }
  }
}

// Rounds `count` sums to the accumulator type, stores them at `out`, and
// returns what was stored.
template <class Acc>
BK_INLINE Vec<double> StoreRounded(const Vec<double>& sums, int64_t count,
                                   Acc* out) {
  using Narrow =
      typename VectorOf<Acc,
                        kLanes<double>* static_cast<int>(sizeof(Acc))>::Type;
  const auto rounded = __builtin_convertvector(sums, Narrow);
  __builtin_memcpy(out, &rounded, static_cast<uint64_t>(count) * sizeof(Acc));
  return __builtin_convertvector(rounded, Vec<double>);
}

// Squares of one row of `count` sums, which ends with zeros up to `padded`; it
// is stored at `out` unless that is null.
template <class Acc>
Vec<double> FinishRow(const double* sums, int64_t count, int64_t padded,
                      Acc* out) {
  Vec<double> squares = {};
  for (int64_t k = 0; k < padded; k += kLanes<double>) {
    Vec<double> value = Load(sums + k);
    if (out != nullptr && k < count) {
      value = StoreRounded(value, Min(kLanes<double>, count - k), out + k);
    }
    squares += value * value;
  }
  return squares;
}

// The sum of squares of the block, which is stored if it is to be.
template <class T>
double FinishBlock(const ConvTask<T>& task, const double* sums) {
  const ConvShape& s = task.shape;
  const ConvBlock& b = task.block;
  const int64_t stride = PadTo(b.o1 - b.o0, kConvPanel<Accumulator<T>>);
  const int64_t channels = b.c1 - b.c0;
  const int64_t kernel_columns = b.kw1 - b.kw0;
  Vec<double> squares = {};
  for (int64_t m = 0; m < BlockRows(b); ++m) {
    const int64_t q = b.q0 + m / channels / kernel_columns;
    const int64_t kw = b.kw0 + m / channels % kernel_columns;
    const int64_t c = b.c0 + m % channels;
    Accumulator<T>* out = task.out;
    if (out != nullptr) {
      out += ((q * s.kernel[2] + kw) * s.cin + c) * s.groups * s.cout +
             b.group * s.cout + b.o0;
    }
    squares += FinishRow(sums + m * stride, b.o1 - b.o0, stride, out);
  }
  return Sum<double>(squares);
}

// Calls body(pixels) for every block of pixels of one example.
template <class Body>
BK_INLINE void ForEachPixelBlock(const ConvShape& s, const ConvBlock& b,
                                 Body&& body) {
  const int64_t rows = s.images * s.out[0] * s.out[1];
  for (int64_t row = 0; row < rows; row += b.pixel_rows) {
    for (int64_t column = 0; column < s.out[2]; column += b.pixel_columns) {
      PixelBlock pixels = {row, Min(b.pixel_rows, rows - row), column,
                           Min(b.pixel_columns, s.out[2] - column), 0};
      pixels.width = (pixels.columns - 1) * s.stride[2] +
                     (b.kw1 - b.kw0 - 1) * s.dilation[2] + 1;
      body(pixels);
    }
  }
}

template <class T>
ConvPartial ConvBlockSum(const ConvTask<T>& task, double* sums,
                         Accumulator<T>* scratch) {
  using Acc = Accumulator<T>;
  const ConvShape& s = task.shape;
  const ConvBlock& b = task.block;
  Acc* image = scratch;
  Acc* gradient = scratch + kConvImage;
  PackedSquares<Acc> packed[kConvRows];
  double lengths[kConvRows] = {};
  bool add = false;
  ConvPartial result = {0, 0, true};
  for (int64_t i = 0; i < task.example_count; ++i) {
    const LiveExample<Acc>& example = task.examples[i];
    const T* x = task.x + example.index * ImageSize(s);
    const T* g = task.g + example.index * GradientSize(s);
    ForEachPixelBlock(s, b, [&](const PixelBlock& pixels) {
      PackImage(task, pixels, x, image, packed);
      const PackedSquares<Acc> packed_g =
          PackGradient(task, pixels, g, example.factor, gradient);
      MultiplyPixels(s, b, pixels, image, gradient, add, sums);
      add = true;
      const int64_t count = pixels.rows * pixels.columns;
      const double g_length = PackedLength(packed_g, count * (b.o1 - b.o0));
      for (int64_t q = 0; q < b.q1 - b.q0; ++q) {
        const double length = PackedLength(packed[q], count * (b.c1 - b.c0));
        lengths[q] += length * g_length;
        result.zero = result.zero && (packed[q].IsZero() || packed_g.IsZero());
      }
    });
  }
  for (int64_t q = 0; q < b.q1 - b.q0; ++q) {
    result.bound +=
        static_cast<double>(b.kw1 - b.kw0) * lengths[q] * lengths[q];
  }
  result.squares = FinishBlock(task, sums);
  return result;
}

}  // namespace bk::BK_ISA

#endif  // BK_JAX_CUSTOM_CALLS_CPU_CONV_CONV_INL_H_
