// Embedding norm body: tokens of one id are added up column by column in
// double and squared at once, so a row of the table's gradient exists only in
// registers.
#ifndef BK_JAX_CUSTOM_CALLS_CPU_EMBEDDING_NORM_INL_H_
#define BK_JAX_CUSTOM_CALLS_CPU_EMBEDDING_NORM_INL_H_

#include "custom_calls/cpu/sparse_kernels.h"
#include "custom_calls/cpu/wide-inl.h"

namespace bk::BK_ISA {

// kVectors vectors of columns from `column` on; the last one may be partial.
template <int kVectors, class T>
BK_INLINE void AddSegmentBlock(const Segment<T>& segment, int64_t column,
                               Vec<double>& sum_squares,
                               Vec<double> (&token_squares)[4]) {
  using Acc = Accumulator<T>;
  Vec<double> sums[kVectors][kParts<Acc>] = {};
  for (int64_t k = 0; k < segment.count; ++k) {
    const auto token = static_cast<int64_t>(segment.keys[k] & kTokenMask);
    const T* row = segment.g + token * segment.p;
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      const int64_t from = column + v * kLanes<Acc>;
      Vec<double> parts[kParts<Acc>];
      Widen(kVectors == 1 ? LoadUpTo(row, from, segment.column1)
                          : Load(row + from),
            parts);
#pragma GCC unroll 2
      for (int i = 0; i < kParts<Acc>; ++i) {
        sums[v][i] += parts[i];
        token_squares[v] += parts[i] * parts[i];
      }
    }
  }
#pragma GCC unroll 4
  for (int v = 0; v < kVectors; ++v) {
#pragma GCC unroll 2
    for (int i = 0; i < kParts<Acc>; ++i) {
      sum_squares += sums[v][i] * sums[v][i];
    }
  }
}

// A single token is its own sum.
template <class T>
double SingleToken(const Segment<T>& segment) {
  const auto token = static_cast<int64_t>(segment.keys[0] & kTokenMask);
  return WideSquares(segment.g + token * segment.p + segment.column0,
                     segment.column1 - segment.column0);
}

template <class T>
SegmentSquares SegmentSum(const Segment<T>& segment) {
  constexpr int kVectors = 4;
  constexpr int64_t kLane = kLanes<Accumulator<T>>;
  if (segment.count == 1) return {SingleToken(segment), 0};
  Vec<double> sum_squares = {};
  Vec<double> token_squares[kVectors] = {};  // four hide the latency
  int64_t column = segment.column0;
  for (; column + kVectors * kLane <= segment.column1;
       column += kVectors * kLane) {
    AddSegmentBlock<kVectors>(segment, column, sum_squares, token_squares);
  }
  for (; column < segment.column1; column += kLane) {
    AddSegmentBlock<1>(segment, column, sum_squares, token_squares);
  }
  const Vec<double> tokens = (token_squares[0] + token_squares[1]) +
                             (token_squares[2] + token_squares[3]);
  return {Sum<double>(sum_squares), Sum<double>(tokens)};
}

}  // namespace bk::BK_ISA

#endif  // BK_JAX_CUSTOM_CALLS_CPU_EMBEDDING_NORM_INL_H_
