// Operands of products over rows, in the order that micro-tiles want them.
//
// The rows of both operands are the reduction. Packing lines up columns: a
// group of kOuterRows columns of lhs or kOuterColumns columns of rhs makes a
// panel, row after row. It also converts to the accumulator type and may scale.
#ifndef BK_JAX_CUSTOM_CALLS_CPU_DENSE_PANELS_INL_H_
#define BK_JAX_CUSTOM_CALLS_CPU_DENSE_PANELS_INL_H_

#include "custom_calls/cpu/isa/kernels.h"
#include "custom_calls/cpu/isa/vector-inl.h"

namespace bk::BK_ISA {

template <class Acc>
inline constexpr int64_t kOuterColumns = kOuterVectors* kLanes<Acc>;

// The rows of one operand [B, N, T, width] from row k of the reduction on: that
// is position k % T of live example k / T.
template <class T>
class Rows {
 public:
  Rows(const GemmTask<T>& task, const T* x, int64_t width, int64_t k)
      : x_(x),
        width_(width),
        positions_(task.positions),
        weights_(task.weights),
        weight_(task.weight),
        live_(task.live + k / task.positions),
        position_(k % task.positions) {}

  BK_INLINE const T* Row() const {
    const int64_t pair = live_->index * weights_ + weight_;
    return x_ + (pair * positions_ + position_) * width_;
  }
  BK_INLINE Accumulator<T> Factor() const { return live_->factor; }
  BK_INLINE void Next() {
    if (++position_ < positions_) return;
    position_ = 0;
    ++live_;
  }

 private:
  const T* x_;
  int64_t width_, positions_, weights_, weight_;
  const LiveExample<Accumulator<T>>* live_;
  int64_t position_;
};

// Elements from one panel of `group` columns to the next. An odd number of
// cache lines: a row is written to all panels in turn, and lines a multiple of
// 4 KB apart would fight for the same few places of L1.
template <class Acc>
BK_INLINE int64_t PanelStride(int64_t group, int64_t depth) {
  constexpr int64_t kLine = 64 / sizeof(Acc);
  return (PadTo(group * depth, kLine) / kLine | 1) * kLine;
}

// to[0:kGroup] = scale * from[0:kGroup], of which `count` exist and the others
// are zeros. Whole vectors are written, over the end of `to` if kGroup is not
// a multiple of a vector, unless `exact`.
template <int64_t kGroup, class T>
BK_INLINE void PackGroup(const T* from, int64_t count, Accumulator<T> scale,
                         bool exact, Accumulator<T>* to) {
  using Acc = Accumulator<T>;
  constexpr int64_t kVectors = (kGroup + kLanes<Acc> - 1) / kLanes<Acc>;
  Vec<Acc> row[kVectors];
#pragma GCC unroll 8
  for (int v = 0; v < kVectors; ++v) {
    const int64_t left = count - v * kLanes<Acc>;
    row[v] = left >= kLanes<Acc> ? Load(from + v * kLanes<Acc>) * scale
             : left > 0 ? LoadPartial(from + v * kLanes<Acc>, left) * scale
                        : Vec<Acc>{};
  }
  if (exact && kVectors * kLanes<Acc> != kGroup) {
    __builtin_memcpy(to, row, kGroup * sizeof(Acc));
    return;
  }
#pragma GCC unroll 8
  for (int v = 0; v < kVectors; ++v) Store(row[v], to + v * kLanes<Acc>);
}

// Row k of all panels of `columns` columns. A vector may read columns beyond
// the last one as long as they exist: `available` of them follow `from`. What
// it writes over the end of a row is overwritten by the next row of the panel;
// the last row is written exactly.
template <int64_t kGroup, class T>
BK_INLINE void PackRow(const T* from, int64_t columns, int64_t available,
                       Accumulator<T> scale, int64_t k, int64_t depth,
                       Accumulator<T>* packed) {
  using Acc = Accumulator<T>;
  constexpr int64_t kWhole = PadTo(kGroup, kLanes<Acc>);
  const int64_t stride = PanelStride<Acc>(kGroup, depth);
  Acc* to = packed + k * kGroup;
  int64_t column = 0;
  if (k + 1 < depth) {
    const int64_t safe = Min(columns - kGroup, available - kWhole);
    for (; column <= safe; column += kGroup, to += stride) {
      PackGroup<kGroup>(from + column, kWhole, scale, false, to);
    }
  }
  for (; column < columns; column += kGroup, to += stride) {
    PackGroup<kGroup>(from + column, Min(columns - column, kGroup), scale, true,
                      to);
  }
}

// Columns [c0, c1) of `depth` rows as panels, times the factors of the examples
// if kScale.
template <int64_t kGroup, bool kScale, class T>
void PackPanels(Rows<T> rows, int64_t width, int64_t c0, int64_t c1,
                int64_t depth, Accumulator<T>* packed) {
  for (int64_t k = 0; k < depth; ++k, rows.Next()) {
    PackRow<kGroup>(rows.Row() + c0, c1 - c0, width - c0,
                    kScale ? rows.Factor() : Accumulator<T>{1}, k, depth,
                    packed);
  }
}

}  // namespace bk::BK_ISA

#endif  // BK_JAX_CUSTOM_CALLS_CPU_DENSE_PANELS_INL_H_
