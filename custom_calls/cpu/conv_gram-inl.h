// Pixel Gram body, see conv_gram.cc: blocks of the Gram matrices of two lines
// of pixels, from dot tiles over channels, and sums of their entries.
#ifndef BK_JAX_CUSTOM_CALLS_CPU_CONV_GRAM_INL_H_
#define BK_JAX_CUSTOM_CALLS_CPU_CONV_GRAM_INL_H_

#include "custom_calls/cpu/conv_kernels.h"
#include "custom_calls/cpu/conv_pack-inl.h"
#include "custom_calls/cpu/gram_tile-inl.h"
#include "custom_calls/cpu/row_norms-inl.h"
#include "custom_calls/cpu/wide-inl.h"

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
      const int64_t width = Min(kDotColumns, columns.count - j0);
#pragma GCC unroll 8
      for (int i = 0; i < kDotRows; ++i) {
        if (i0 + i >= rows.count) break;
        Acc totals[kDotColumns];
        SumColumns<Acc>(sums[i], totals);
        Acc* to = place.data + (i0 + i) * place.row + j0 * place.column;
        for (int64_t j = 0; j < width; ++j, to += place.column) {
          *to = add ? *to + totals[j] : totals[j];
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
  const int64_t depth = RoundUp((width + parts - 1) / parts, kLanes<Acc>);
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

// The pairs of output pixels of one pair of lines. entries[k] points to the
// block that kernel offset k meets, shifted.
template <class Acc>
double PairSum(const Acc* const* entries, int64_t count, int64_t rows,
               int64_t columns, int64_t stride, const Acc* gradient,
               int64_t gradient_stride) {
  Vec<double> sums[kParts<Acc>] = {};
  for (int64_t c = 0; c < rows; ++c) {
    for (int64_t e = 0; e < columns; e += kLanes<Acc>) {
      Vec<double> patches[kParts<Acc>] = {};
      for (int64_t k = 0; k < count; ++k) {
        Vec<double> parts[kParts<Acc>];
        Widen(Load(entries[k] + c * stride + e), parts);
#pragma GCC unroll 2
        for (int i = 0; i < kParts<Acc>; ++i) patches[i] += parts[i];
      }
      Vec<double> parts[kParts<Acc>];
      Widen(Load(gradient + c * gradient_stride + e), parts);
#pragma GCC unroll 2
      for (int i = 0; i < kParts<Acc>; ++i) sums[i] += patches[i] * parts[i];
    }
  }
  Vec<double> total = {};
#pragma GCC unroll 2
  for (int i = 0; i < kParts<Acc>; ++i) total += sums[i];
  return Sum<double>(total);
}

// Sum over the pixels t of a line of a bound of |patch_t| |g_t|, from the
// diagonals of both Gram matrices. A patch counts as if it were not zero, see
// conv_gram.cc.
template <class T>
double LineBound(const GramTask<T>& task, const PixelLine<T>& line,
                 const Accumulator<T>* const* entries,
                 const Accumulator<T>* gradient, int64_t gradient_stride) {
  using Acc = Accumulator<T>;
  const ConvShape& s = *task.shape;
  const GramPlan& plan = *task.plan;
  const auto d = static_cast<double>(plan.offset_count * s.cin);
  double bound = 0;
  for (int64_t c = 0; c < line.columns.count; ++c) {
    double patch = d * kMinNormal<Acc>;
    for (int64_t k = 0; k < plan.offset_count; ++k) {
      patch += static_cast<double>(entries[k][c * (plan.stride + 1)]);
    }
    const auto g = static_cast<double>(gradient[c * (gradient_stride + 1)]);
    bound += __builtin_sqrt(patch) *
             RowBound(line.data + c * line.columns.stride, s.cout, g);
  }
  return bound;
}

// The blocks of one task: kept[line % window][delta][phase].
template <class T>
struct GramWalk {
  using Acc = Accumulator<T>;
  const GramTask<T>& task;
  const LineColumns* row_columns;     // of each phase
  const LineColumns* column_columns;  // of each phase
  Acc* kept;
  Acc* gradients;
  Acc* packed;

  int64_t Height() const { return task.plan->tile + task.plan->span; }
  int64_t BlockSize() const { return Height() * task.plan->stride; }
  int64_t GradientStride() const {
    return RoundUp(task.plan->tile, kLanes<Acc>);
  }
  Acc* Kept(int64_t line, int64_t n, int64_t phase) const {
    const GramPlan& plan = *task.plan;
    return kept +
           ((line % plan.window * plan.deltas + n) * plan.phase_count + phase) *
               BlockSize();
  }
  Acc* Gradient(int64_t n) const {
    return gradients + n * task.plan->tile * GradientStride();
  }

  // Columns that no pixel writes stay zero.
  void Clear() const {
    const GramPlan& plan = *task.plan;
    const int64_t blocks = plan.window * plan.deltas * plan.phase_count;
    const int64_t gradients_size = plan.deltas * plan.tile * GradientStride();
    __builtin_memset(kept, 0,
                     static_cast<uint64_t>(blocks * BlockSize()) * sizeof(Acc));
    __builtin_memset(gradients, 0,
                     static_cast<uint64_t>(gradients_size) * sizeof(Acc));
  }

  // Blocks of pixel line `line` with the lines of all distances.
  void AddLine(int64_t line) const {
    const GramPlan& plan = *task.plan;
    const int64_t count = task.delta1 - task.delta0;
    for (int64_t phase = 0; phase < plan.phase_count; ++phase) {
      const GramPhase& at = plan.phases[phase];
      PixelLine<T> others[kLineDeltas] = {};
      Acc* blocks[kLineDeltas] = {};
      for (int64_t n = 0; n < count; ++n) {
        others[n] =
            ImageLine(task, at, column_columns[phase], line + task.delta0 + n);
        blocks[n] = Kept(line, n, phase);
      }
      GramBlocks(ImageLine(task, at, row_columns[phase], line), others, count,
                 task.shape->cin, plan.stride, blocks, Height(), packed);
    }
  }

  // All pairs of output line `line`, whose pixel lines are there.
  GramPartial Finish(int64_t line) const {
    const GramPlan& plan = *task.plan;
    const int64_t count = task.delta1 - task.delta0;
    const auto rows = GradientLine(task, task.row_column, line);
    if (rows.data == nullptr) return {0, 0};
    PixelLine<T> others[kLineDeltas] = {};
    Acc* blocks[kLineDeltas] = {};
    for (int64_t n = 0; n < count; ++n) {
      others[n] =
          GradientLine(task, task.column_column, line + task.delta0 + n);
      blocks[n] = Gradient(n);
    }
    GramBlocks(rows, others, count, task.shape->cout, GradientStride(), blocks,
               plan.tile, packed);
    GramPartial sum = {0, 0};
    for (int64_t n = 0; n < count; ++n) {
      if (others[n].data == nullptr || Weight(n) == 0) continue;
      const Acc* entries[kLineOffsets];
      for (int64_t k = 0; k < plan.offset_count; ++k) {
        const GramOffset& offset = plan.offsets[k];
        entries[k] = Kept(line + offset.line, n, offset.phase) +
                     offset.column * (plan.stride + 1);
      }
      sum.inner +=
          Weight(n) * PairSum(entries, plan.offset_count, rows.columns.count,
                              others[n].columns.count, plan.stride, Gradient(n),
                              GradientStride());
      if (Weight(n) == 1) {
        sum.bound +=
            LineBound(task, rows, entries, Gradient(n), GradientStride());
      }
    }
    return sum;
  }

  // How often a pair of tiles counts: only the upper triangle is made. The
  // tile on the diagonal is whole.
  double Weight(int64_t n) const {
    if (task.delta0 + n > 0) return 2;
    if (task.row_column == task.column_column) return 1;
    return task.row_column < task.column_column ? 2 : 0;
  }
};

template <class T>
GramPartial ConvGramLines(const GramTask<T>& task, Accumulator<T>* scratch) {
  const GramPlan& plan = *task.plan;
  LineColumns rows[kLineOffsets];
  LineColumns columns[kLineOffsets];
  for (int64_t phase = 0; phase < plan.phase_count; ++phase) {
    const GramPhase& at = plan.phases[phase];
    rows[phase] = PhaseColumns(*task.shape, plan, at, task.row_column);
    columns[phase] = PhaseColumns(*task.shape, plan, at, task.column_column);
  }
  const GramWalk<T> walk = {task,
                            rows,
                            columns,
                            scratch,
                            scratch + kLineBlocks,
                            scratch + kLineBlocks + kLineGradient};
  walk.Clear();
  GramPartial sum = {0, 0};
  for (int64_t line = 0; line + task.delta0 < plan.lines; ++line) {
    walk.AddLine(line);
    const int64_t output = line - plan.window + 1;
    if (output < 0) continue;
    const GramPartial part = walk.Finish(output);
    sum.inner += part.inner;
    sum.bound += part.bound;
  }
  return sum;
}

}  // namespace bk::BK_ISA

#endif  // BK_JAX_CUSTOM_CALLS_CPU_CONV_GRAM_INL_H_
