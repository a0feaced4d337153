// Pixel Gram body, see conv_gram.cc: sums over pairs of output pixels of the
// products of entries of two Gram matrices, line by line.
#ifndef BK_JAX_CUSTOM_CALLS_CPU_CONV_CONV_GRAM_INL_H_
#define BK_JAX_CUSTOM_CALLS_CPU_CONV_CONV_GRAM_INL_H_

#include "custom_calls/cpu/conv/conv_kernels.h"
#include "custom_calls/cpu/conv/pixel_lines-inl.h"
#include "custom_calls/cpu/dense/row_norms-inl.h"
#include "custom_calls/cpu/isa/wide-inl.h"

namespace bk::BK_ISA {

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
    double patch = d * kSmallestNormal<Acc>;
    for (int64_t k = 0; k < plan.offset_count; ++k) {
      patch += static_cast<double>(entries[k][c * (plan.stride + 1)]);
    }
    const auto g = static_cast<double>(gradient[c * (gradient_stride + 1)]);
    bound += __builtin_sqrt(patch) *
             LengthBound(line.data + c * line.columns.stride, s.cout, g);
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
  int64_t GradientStride() const { return PadTo(task.plan->tile, kLanes<Acc>); }
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

#endif  // BK_JAX_CUSTOM_CALLS_CPU_CONV_CONV_GRAM_INL_H_
