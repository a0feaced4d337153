// Packing for convolutions: one block of output pixels, with the pixels of the
// image that kernel rows meet there.
//
//   image     [channel vector][kernel row][pixel row][column][lane]
//   gradient  [panel of kConvPanel channels][pixel][kConvPanel]
#ifndef BK_JAX_CUSTOM_CALLS_CPU_CONV_CONV_PACK_INL_H_
#define BK_JAX_CUSTOM_CALLS_CPU_CONV_CONV_PACK_INL_H_

#include "custom_calls/cpu/conv/conv_kernels.h"
#include "custom_calls/cpu/isa/wide-inl.h"

namespace bk::BK_ISA {

// As many sums as the gemm's micro-tile has, in two vectors of columns:
// channels come in multiples of 32 more often than of 48.
inline constexpr int64_t kConvTileVectors = 2;
inline constexpr int64_t kConvTileRows =
    kOuterRows * kOuterVectors / kConvTileVectors;
template <class Acc>
inline constexpr int64_t kConvPanel = kConvTileVectors* kLanes<Acc>;
static_assert(kConvColumns % kConvPanel<float> == 0);

// Elements of one example.
BK_INLINE int64_t ImageSize(const ConvShape& s) {
  return s.images * s.in[0] * s.in[1] * s.in[2] * s.groups * s.cin;
}
BK_INLINE int64_t GradientSize(const ConvShape& s) {
  return s.images * s.out[0] * s.out[1] * s.out[2] * s.groups * s.cout;
}

// One block of output pixels and where it is in the packed arrays.
struct PixelBlock {
  int64_t row0, rows;  // of the flattened (image, D', H')
  int64_t column0, columns;
  int64_t width;  // columns of the packed image
};

// The column of the packed image that pixel column 0 of the block starts at, in
// the coordinates of the padded and dilated input.
BK_INLINE int64_t FirstColumn(const ConvShape& s, const ConvBlock& b,
                              const PixelBlock& pixels) {
  return pixels.column0 * s.stride[2] + b.kw0 * s.dilation[2] - s.low[2];
}

// Position `padded` of a dilated axis of `size`, or -1 where it is zero.
BK_INLINE int64_t Source(int64_t padded, int64_t dilation, int64_t size) {
  if (padded < 0 || padded % dilation != 0) return -1;
  const int64_t at = padded / dilation;
  return at < size ? at : -1;
}

// The input row that kernel row q meets at flattened output row `row`, counted
// over (image, D, H), or -1 outside.
inline int64_t SourceRow(const ConvShape& s, int64_t row, int64_t q) {
  const int64_t h = row % s.out[1];
  const int64_t d = row / s.out[1] % s.out[0];
  const int64_t image = row / s.out[1] / s.out[0];
  const int64_t kd = q / s.kernel[1];
  const int64_t kh = q % s.kernel[1];
  const int64_t at_d = Source(d * s.stride[0] + kd * s.dilation[0] - s.low[0],
                              s.input_dilation[0], s.in[0]);
  const int64_t at_h = Source(h * s.stride[1] + kh * s.dilation[1] - s.low[1],
                              s.input_dilation[1], s.in[1]);
  if (at_d < 0 || at_h < 0) return -1;
  return (image * s.in[0] + at_d) * s.in[1] + at_h;
}

// What is learned about values while they are packed.
template <class Acc>
struct PackedSquares {
  Vec<Acc> squares = {};
  Words bits = {};  // all bits that are set anywhere

  BK_INLINE void Add(const Vec<Acc>& v) {
    squares += v * v;
    bits |= BitCast<Words>(v);
  }
  // -0 counts as a number that is not zero, which errs on the safe side.
  bool IsZero() const {
    uint32_t any = 0;
    for (int64_t lane = 0; lane < kLanes<float>; ++lane) any |= bits[lane];
    return any == 0;
  }
};

// A bound of |x| of `count` packed elements. Squares below the smallest normal
// number are lost; so much is added for each element, which also covers
// underflow of products, see conv_grad.cc.
template <class Acc>
double PackedLength(const PackedSquares<Acc>& packed, int64_t count) {
  return __builtin_sqrt(static_cast<double>(Sum<Acc>(packed.squares)) +
                        static_cast<double>(count) * kSmallestNormal<Acc>);
}

// Ones in the bits of the first `count` lanes.
template <class Acc>
BK_INLINE Words LaneMask(int64_t count) {
  constexpr int64_t kWords = sizeof(Acc) / sizeof(uint32_t);
  Words mask = {};
  for (int64_t word = 0; word < kLanes<float>; ++word) {
    mask[word] = word < count * kWords ? ~uint32_t{0} : 0;
  }
  return mask;
}

// The first `count` elements, then zeros, for `mask` of that many lanes. Reads
// a whole vector unless that would go beyond `limit`.
template <class T>
BK_INLINE Vec<Accumulator<T>> LoadMasked(const T* from, int64_t count,
                                         const Words& mask, const T* limit) {
  using Acc = Accumulator<T>;
  if (limit - from < kLanes<Acc>) return LoadPartial(from, count);
  return BitCast<Vec<Acc>>(BitCast<Words>(Load(from)) & mask);
}

// Packs channels of columns [begin, end) of a row of the image; column j is
// input pixel `first` + j. Vectors of channels are `plane` elements apart.
template <class T>
BK_INLINE void PackColumns(const ConvTask<T>& task, const T* row, int64_t first,
                           int64_t begin, int64_t end, int64_t plane,
                           Accumulator<T>* to,
                           PackedSquares<Accumulator<T>>* packed) {
  using Acc = Accumulator<T>;
  const ConvShape& s = task.shape;
  const ConvBlock& b = task.block;
  const int64_t channels = s.groups * s.cin;
  const int64_t count = b.c1 - b.c0;
  const int64_t rest = count % kLanes<Acc>;
  const Words mask = LaneMask<Acc>(rest);
  const T* limit = task.x + s.batch * ImageSize(s);
  const T* from = row + (first + begin) * channels + b.group * s.cin + b.c0;
  PackedSquares<Acc> sum = *packed;
  for (int64_t j = begin; j < end; ++j, from += channels) {
    Acc* entry = to + j * kLanes<Acc>;
    for (int64_t c = 0; c + kLanes<Acc> <= count; c += kLanes<Acc>) {
      const Vec<Acc> v = Load(from + c);
      sum.Add(v);
      Store(v, entry);
      entry += plane;
    }
    if (rest != 0) {
      const Vec<Acc> v = LoadMasked(from + count - rest, rest, mask, limit);
      sum.Add(v);
      Store(v, entry);
    }
  }
  *packed = sum;
}

template <class T>
void PackZeros(const ConvTask<T>& task, int64_t begin, int64_t end,
               int64_t plane, Accumulator<T>* to) {
  using Acc = Accumulator<T>;
  if (begin >= end) return;
  for (int64_t c = task.block.c0; c < task.block.c1; c += kLanes<Acc>) {
    __builtin_memset(to + begin * kLanes<Acc>, 0,
                     static_cast<uint64_t>(end - begin) * sizeof(Vec<Acc>));
    to += plane;
  }
}

// Packs one row of the image, or zeros where `row` is null.
template <class T>
void PackImageRow(const ConvTask<T>& task, const PixelBlock& pixels,
                  const T* row, int64_t plane, Accumulator<T>* to,
                  PackedSquares<Accumulator<T>>* packed) {
  const ConvShape& s = task.shape;
  const int64_t first = FirstColumn(s, task.block, pixels);
  const int64_t spread = s.input_dilation[2];
  if (row == nullptr || spread > 1) {
    PackZeros(task, 0, pixels.width, plane, to);
    if (row == nullptr) return;
    for (int64_t j = 0; j < pixels.width; ++j) {
      const int64_t at = Source(first + j, spread, s.in[2]);
      if (at >= 0) PackColumns(task, row, at - j, j, j + 1, plane, to, packed);
    }
    return;
  }
  const int64_t begin = Min(first < 0 ? -first : 0, pixels.width);
  const int64_t inside = Min(s.in[2] - first, pixels.width);
  const int64_t end = inside < begin ? begin : inside;
  PackZeros(task, 0, begin, plane, to);
  PackColumns(task, row, first, begin, end, plane, to, packed);
  PackZeros(task, end, pixels.width, plane, to);
}

// Packs the image for all kernel rows; packed[q - q0] is about each.
template <class T>
void PackImage(const ConvTask<T>& task, const PixelBlock& pixels, const T* x,
               Accumulator<T>* to, PackedSquares<Accumulator<T>>* packed) {
  const ConvShape& s = task.shape;
  const ConvBlock& b = task.block;
  const int64_t row_size = s.in[2] * s.groups * s.cin;
  const int64_t line = pixels.width * kLanes<Accumulator<T>>;
  const int64_t plane = (b.q1 - b.q0) * pixels.rows * line;
  for (int64_t q = b.q0; q < b.q1; ++q, ++packed) {
    *packed = {};
    for (int64_t r = 0; r < pixels.rows; ++r, to += line) {
      const int64_t source = SourceRow(s, pixels.row0 + r, q);
      const T* row = source < 0 ? nullptr : x + source * row_size;
      PackImageRow(task, pixels, row, plane, to, packed);
    }
  }
}

// Packs factor * gradient in panels.
template <class T>
PackedSquares<Accumulator<T>> PackGradient(const ConvTask<T>& task,
                                           const PixelBlock& pixels, const T* g,
                                           Accumulator<T> factor,
                                           Accumulator<T>* to) {
  using Acc = Accumulator<T>;
  const ConvShape& s = task.shape;
  const ConvBlock& b = task.block;
  const int64_t channels = s.groups * s.cout;
  const int64_t panel = pixels.rows * pixels.columns * kConvPanel<Acc>;
  PackedSquares<Acc> packed;
  for (int64_t r = pixels.row0; r < pixels.row0 + pixels.rows; ++r) {
    const T* from =
        g + (r * s.out[2] + pixels.column0) * channels + b.group * s.cout;
    for (int64_t column = 0; column < pixels.columns; ++column) {
      Acc* entry = to;
      for (int64_t o = b.o0; o < b.o1; o += kConvPanel<Acc>, entry += panel) {
#pragma GCC unroll 4
        for (int64_t v = 0; v < kConvTileVectors; ++v) {
          const int64_t at = o + v * kLanes<Acc>;
          const Vec<Acc> value =
              at < b.o1 ? LoadUpTo(from, at, b.o1) : Vec<Acc>{};
          packed.Add(value);
          Store(value * factor, entry + v * kLanes<Acc>);
        }
      }
      from += channels;
      to += kConvPanel<Acc>;
    }
  }
  return packed;
}

}  // namespace bk::BK_ISA

#endif  // BK_JAX_CUSTOM_CALLS_CPU_CONV_CONV_PACK_INL_H_
