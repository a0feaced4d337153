// Sums over the lanes of many vectors at once. Each is the tree of Sum: halves
// are added until one lane is left. But while a vector that is halved alone
// wastes the other half of each addition, two vectors share one here.
#ifndef BK_JAX_CUSTOM_CALLS_CPU_ISA_LANE_SUMS_INL_H_
#define BK_JAX_CUSTOM_CALLS_CPU_ISA_LANE_SUMS_INL_H_

#include <utility>

#include "custom_calls/cpu/isa/vector-inl.h"

namespace bk::BK_ISA {

template <class Acc>
using LaneNumbers = std::make_integer_sequence<int, kLanes<Acc>>;

// Lanes whose number has the bit kStep are those of b, the others those of a;
// each has added the lane kStep away.
template <int kStep, class V, int... kLane>
BK_INLINE V AddHalves(const V& a, const V& b,
                      std::integer_sequence<int, kLane...> /*lanes*/) {
  constexpr int kCount = sizeof...(kLane);
  const V own = __builtin_shufflevector(
      a, b, ((kLane & kStep) != 0 ? kCount + kLane : kLane)...);
  const V other = __builtin_shufflevector(
      a, b, ((kLane & kStep) != 0 ? kCount + kLane - kStep : kLane + kStep)...);
  return own + other;
}

// Lane i of the result is the sum of the lanes of vector i * kCount / lanes.
// kCount is a power of two, at most the number of lanes.
template <class Acc, int kCount, int kStep = kLanes<Acc> / 2>
BK_INLINE Vec<Acc> SumEach(const Vec<Acc> (&v)[kCount]) {
  if constexpr (kStep == 0) {
    return v[0];
  } else {
    constexpr int kHalf = kCount == 1 ? 1 : kCount / 2;
    Vec<Acc> merged[kHalf];
#pragma GCC unroll 8
    for (int i = 0; i < kHalf; ++i) {
      merged[i] =
          AddHalves<kStep>(v[i], v[kCount - kHalf + i], LaneNumbers<Acc>());
    }
    return SumEach<Acc, kHalf, kStep / 2>(merged);
  }
}

// to[i] = lane i * kEvery of v.
template <int kEvery, class Acc, int... kLane>
BK_INLINE void StoreEvery(const Vec<Acc>& v, Acc* to,
                          std::integer_sequence<int, kLane...> /*lanes*/) {
  constexpr int kCount = sizeof...(kLane);
  const Vec<Acc> front =
      __builtin_shufflevector(v, v, (kLane * kEvery % kCount)...);
  __builtin_memcpy(to, &front, sizeof front / kEvery);
}

// totals[i * kColumns + j] = the sum of the lanes of sums[i][j], from entry
// kFirst on.
template <class Acc, int kRows, int kColumns, int kFirst = 0>
BK_INLINE void SumTile(const Vec<Acc> (&sums)[kRows][kColumns],
                       Acc (&totals)[kRows * kColumns]) {
  constexpr int kLeft = kRows * kColumns - kFirst;
  constexpr int kCount = kLeft < kLanes<Acc> ? kLeft : kLanes<Acc>;
  static_assert((kCount & (kCount - 1)) == 0);
  Vec<Acc> group[kCount];
#pragma GCC unroll 16
  for (int n = 0; n < kCount; ++n) {
    group[n] = sums[(kFirst + n) / kColumns][(kFirst + n) % kColumns];
  }
  StoreEvery<kLanes<Acc> / kCount, Acc>(SumEach<Acc, kCount>(group),
                                        totals + kFirst, LaneNumbers<Acc>());
  if constexpr (kCount < kLeft) {
    SumTile<Acc, kRows, kColumns, kFirst + kCount>(sums, totals);
  }
}

}  // namespace bk::BK_ISA

#endif  // BK_JAX_CUSTOM_CALLS_CPU_ISA_LANE_SUMS_INL_H_
