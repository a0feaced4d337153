// Lines of pixels and the inner products of their pixels, for the pixel Gram
// body: dot tiles over channels, where a line may be converted or packed first.
#ifndef BK_JAX_CUSTOM_CALLS_CPU_CONV_PIXEL_LINES_INL_H_
#define BK_JAX_CUSTOM_CALLS_CPU_CONV_PIXEL_LINES_INL_H_

#include "custom_calls/cpu/conv/conv_kernels.h"
#include "custom_calls/cpu/conv/conv_pack-inl.h"
#include "custom_calls/cpu/isa/lane_sums-inl.h"

namespace bk::BK_ISA {

// The pixels of a tile's columns that exist: every `step`-th column from
// `first` on. Pixel 0 is `source` elements after the beginning of its line, the
// others follow `stride` elements apart.
struct LineColumns {
  int64_t first, step, count;
  int64_t source, stride;
};

// Those of one line, or none if data is null.
template <class T>
struct PixelLine {
  const T* data;
  LineColumns columns;
};

// The columns of a phase that the tile from output column `column0` on meets.
inline LineColumns PhaseColumns(const ConvShape& s, const GramPlan& plan,
                                const GramPhase& phase, int64_t column0) {
  const int64_t channels = s.groups * s.cin;
  LineColumns found = {0, 1, 0, 0, 0};
  for (int64_t m = 0; m < plan.tile + plan.span; ++m) {
    const int64_t at = (column0 + m) * s.stride[2] + phase.at[2] - s.low[2];
    const int64_t source = Source(at, s.input_dilation[2], s.in[2]);
    if (source < 0) continue;
    if (found.count == 0) {
      found.first = m;
      found.source = source * channels;
    } else if (found.count == 1) {
      found.step = m - found.first;
      found.stride = source * channels - found.source;
    }
    ++found.count;
  }
  return found;
}

// Line number `line` of a phase.
template <class T>
PixelLine<T> ImageLine(const GramTask<T>& task, const GramPhase& phase,
                       const LineColumns& columns, int64_t line) {
  const ConvShape& s = *task.shape;
  const GramPlan& plan = *task.plan;
  if (line >= plan.lines) return {nullptr, columns};
  const int64_t at[2] = {line / plan.height % plan.depth, line % plan.height};
  int64_t row = line / plan.height / plan.depth;
  for (int axis = 0; axis < 2; ++axis) {
    const int64_t source =
        Source(at[axis] * s.stride[axis] + phase.at[axis] - s.low[axis],
               s.input_dilation[axis], s.in[axis]);
    if (source < 0) return {nullptr, columns};
    row = row * s.in[axis] + source;
  }
  return {task.x + row * s.in[2] * s.groups * s.cin + columns.source, columns};
}

// The output gradient at padded line `line`.
template <class T>
PixelLine<T> GradientLine(const GramTask<T>& task, int64_t column0,
                          int64_t line) {
  const ConvShape& s = *task.shape;
  const GramPlan& plan = *task.plan;
  const int64_t channels = s.groups * s.cout;
  const LineColumns columns = {0, 1, Min(plan.tile, s.out[2] - column0),
                               column0 * channels, channels};
  const int64_t h = line % plan.height;
  const int64_t d = line / plan.height % plan.depth;
  const int64_t image = line / plan.height / plan.depth;
  if (line >= plan.lines || h >= s.out[1] || d >= s.out[0]) {
    return {nullptr, columns};
  }
  const int64_t row = (image * s.out[0] + d) * s.out[1] + h;
  return {task.g + row * s.out[2] * channels + columns.source, columns};
}

// Channels [k0, k1) of the pixels of a line in the accumulator type, with zeros
// up to whole vectors.
template <class Acc>
struct LineData {
  const Acc* data;
  int64_t stride, count, steps;

  // Pixel i, or the last one if there are fewer.
  BK_INLINE const Acc* At(int64_t i) const {
    return data + Min(i, count - 1) * stride;
  }
};

// Leaves pixels where they are if they need no conversion and no zeros.
template <class T>
LineData<Accumulator<T>> FindLine(const PixelLine<T>& line, int64_t k0,
                                  int64_t k1, Accumulator<T>* packed) {
  using Acc = Accumulator<T>;
  const int64_t count = line.columns.count;
  const int64_t steps = (k1 - k0 + kLanes<Acc> - 1) / kLanes<Acc>;
  if constexpr (sizeof(T) == sizeof(Acc)) {
    if ((k1 - k0) % kLanes<Acc> == 0) {
      return {line.data + k0, line.columns.stride, count, steps};
    }
  }
  const int64_t stride = steps * kLanes<Acc>;
  for (int64_t i = 0; i < count; ++i) {
    const T* from = line.data + i * line.columns.stride + k0;
    for (int64_t k = 0; k < k1 - k0; k += kLanes<Acc>) {
      Store(LoadUpTo(from, k, k1 - k0), packed + i * stride + k);
    }
  }
  return {packed, stride, count, steps};
}

// sums[i][j] = lanes of <rows[i], columns[j]> over `steps` vectors.
template <class Acc>
BK_INLINE void LineDots(const Acc* const (&rows)[kDotRows],
                        const Acc* const (&columns)[kDotColumns], int64_t steps,
                        Vec<Acc> (&sums)[kDotRows][kDotColumns]) {
#pragma GCC unroll 8
  for (int i = 0; i < kDotRows; ++i) {
#pragma GCC unroll 8
    for (int j = 0; j < kDotColumns; ++j) sums[i][j] = Vec<Acc>{};
  }
  for (int64_t k = 0; k < steps * kLanes<Acc>; k += kLanes<Acc>) {
    Vec<Acc> row[kDotRows];
#pragma GCC unroll 8
    for (int i = 0; i < kDotRows; ++i) row[i] = Load(rows[i] + k);
#pragma GCC unroll 8
    for (int j = 0; j < kDotColumns; ++j) {
      const Vec<Acc> column = Load(columns[j] + k);
#pragma GCC unroll 8
      for (int i = 0; i < kDotRows; ++i) sums[i][j] += row[i] * column;
    }
  }
}

// Where entries of a block go: entry (i, j) to data[i * row + j * column].
template <class Acc>
struct BlockPlace {
  Acc* data;
  int64_t row, column;
};

// place (+)= the inner products of pixels of two lines.
template <class Acc>
void MultiplyLines(const LineData<Acc>& rows, const LineData<Acc>& columns,
                   bool add, const BlockPlace<Acc>& place) {
  for (int64_t i0 = 0; i0 < rows.count; i0 += kDotRows) {
    const Acc* row[kDotRows];
#pragma GCC unroll 8
    for (int i = 0; i < kDotRows; ++i) row[i] = rows.At(i0 + i);
    for (int64_t j0 = 0; j0 < columns.count; j0 += kDotColumns) {
      const Acc* column[kDotColumns];
#pragma GCC unroll 8
      for (int j = 0; j < kDotColumns; ++j) column[j] = columns.At(j0 + j);
      Vec<Acc> sums[kDotRows][kDotColumns];
      LineDots<Acc>(row, column, rows.steps, sums);
      Acc totals[kDotRows * kDotColumns];
      SumTile<Acc>(sums, totals);
      const int64_t width = Min(kDotColumns, columns.count - j0);
#pragma GCC unroll 8
      for (int i = 0; i < kDotRows; ++i) {
        if (i0 + i >= rows.count) break;
        Acc* to = place.data + (i0 + i) * place.row + j0 * place.column;
        for (int64_t j = 0; j < width; ++j, to += place.column) {
          const Acc total = totals[i * kDotColumns + j];
          *to = add ? *to + total : total;
        }
      }
    }
  }
}

// blocks[n] = inner products of the pixels of `rows` and columns[n], at their
// columns in the tile; all zeros if one of the lines is outside.
template <class T>
void GramBlocks(const PixelLine<T>& rows, const PixelLine<T>* columns,
                int64_t count, int64_t width, int64_t stride,
                Accumulator<T>* const* blocks, int64_t height,
                Accumulator<T>* packed) {
  using Acc = Accumulator<T>;
  bool any = false;
  for (int64_t n = 0; n < count; ++n) {
    if (rows.data == nullptr || columns[n].data == nullptr) {
      __builtin_memset(blocks[n], 0,
                       static_cast<uint64_t>(height * stride) * sizeof(Acc));
    } else {
      any = true;
    }
  }
  if (!any) return;
  const int64_t parts = (width + kLineDepth - 1) / kLineDepth;
  const int64_t depth = PadTo((width + parts - 1) / parts, kLanes<Acc>);
  for (int64_t k0 = 0; k0 < width; k0 += depth) {
    const int64_t k1 = Min(k0 + depth, width);
    const LineData<Acc> row_data = FindLine(rows, k0, k1, packed);
    for (int64_t n = 0; n < count; ++n) {
      if (columns[n].data == nullptr) continue;
      const auto column_data = FindLine(columns[n], k0, k1, packed + kLinePack);
      const LineColumns& r = rows.columns;
      const LineColumns& c = columns[n].columns;
      MultiplyLines<Acc>(
          row_data, column_data, k0 > 0,
          {blocks[n] + r.first * stride + c.first, r.step * stride, c.step});
    }
  }
}

}  // namespace bk::BK_ISA

#endif  // BK_JAX_CUSTOM_CALLS_CPU_CONV_PIXEL_LINES_INL_H_
