// Embedding norm body: tokens of one id are added up in double, kSegmentColumns
// columns at a time, and squared; no row of the table's gradient leaves L1.
#ifndef BK_JAX_CUSTOM_CALLS_CPU_SPARSE_EMBEDDING_NORM_INL_H_
#define BK_JAX_CUSTOM_CALLS_CPU_SPARSE_EMBEDDING_NORM_INL_H_

#include "custom_calls/cpu/isa/wide-inl.h"
#include "custom_calls/cpu/sparse/sparse_kernels.h"

namespace bk::BK_ISA {

// Adds one token to the sums and returns its squares. Tokens are read from one
// end to the other: column by column over all tokens would jump from page to
// page.
template <class T>
BK_INLINE void AddToken(const T* row, int64_t width, double* sums,
                        Vec<double> (&squares)[2]) {
  using Acc = Accumulator<T>;
  for (int64_t k = 0; k < width; k += kLanes<Acc>) {
    Vec<double> parts[kParts<Acc>];
    Widen(LoadUpTo(row, k, width), parts);
#pragma GCC unroll 2
    for (int i = 0; i < kParts<Acc>; ++i) {
      double* sum = sums + k + i * kLanes<double>;
      Store(Load(sum) + parts[i], sum);
      squares[i] += parts[i] * parts[i];
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
  if (segment.count == 1) return {SingleToken(segment), 0};
  const int64_t width = segment.column1 - segment.column0;
  double sums[kSegmentColumns + kLanes<Accumulator<T>>];
  __builtin_memset(sums, 0, sizeof sums);
  Vec<double> squares[2] = {};
  for (int64_t k = 0; k < segment.count; ++k) {
    const auto token = static_cast<int64_t>(segment.keys[k] & kTokenMask);
    AddToken(segment.g + token * segment.p + segment.column0, width, sums,
             squares);
  }
  return {WideSquares(sums, width), Sum<double>(squares[0] + squares[1])};
}

}  // namespace bk::BK_ISA

#endif  // BK_JAX_CUSTOM_CALLS_CPU_SPARSE_EMBEDDING_NORM_INL_H_
