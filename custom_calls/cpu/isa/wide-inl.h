// Vectors of the accumulator type as vectors of doubles, and what norms need
// of them. Included once per instruction set, see vector-inl.h.
#ifndef BK_JAX_CUSTOM_CALLS_CPU_ISA_WIDE_INL_H_
#define BK_JAX_CUSTOM_CALLS_CPU_ISA_WIDE_INL_H_

#include "custom_calls/cpu/isa/vector-inl.h"

namespace bk::BK_ISA {

// Vectors of doubles that hold one vector of Acc.
template <class Acc>
inline constexpr int kParts = sizeof(double) / sizeof(Acc);

BK_INLINE void Widen(const Vec<double>& v, Vec<double>* parts) { parts[0] = v; }

BK_INLINE void Widen(const Vec<float>& v, Vec<double>* parts) {
  using Half = VectorOf<float, BK_VECTOR_BYTES / 2>::Type;
  Half halves[2];
  __builtin_memcpy(halves, &v, sizeof v);
  parts[0] = __builtin_convertvector(halves[0], Vec<double>);
  parts[1] = __builtin_convertvector(halves[1], Vec<double>);
}

// Elements [k, width) of a row, at most one vector of them, then zeros.
template <class T>
BK_INLINE Vec<Accumulator<T>> LoadUpTo(const T* row, int64_t k, int64_t width) {
  return k + kLanes<Accumulator<T>> <= width ? Load(row + k)
                                             : LoadPartial(row + k, width - k);
}

// |x|^2 of x [width] in double. Squares of floats cannot underflow there.
// Several sums hide the latency of additions.
template <class T>
double WideSquares(const T* x, int64_t width) {
  using Acc = Accumulator<T>;
  constexpr int kVectors = 4;
  Vec<double> sums[kVectors][kParts<Acc>] = {};
  const auto add = [&](const Vec<Acc>& v, int to)
      __attribute__((always_inline)) {
    Vec<double> parts[kParts<Acc>];
    Widen(v, parts);
#pragma GCC unroll 2
    for (int i = 0; i < kParts<Acc>; ++i) sums[to][i] += parts[i] * parts[i];
  };
  int64_t k = 0;
  for (; k + kVectors * kLanes<Acc> <= width; k += kVectors * kLanes<Acc>) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) add(Load(x + k + v * kLanes<Acc>), v);
  }
  for (; k < width; k += kLanes<Acc>) add(LoadUpTo(x, k, width), 0);
  Vec<double> total = {};
#pragma GCC unroll 4
  for (int v = 0; v < kVectors; ++v) {
#pragma GCC unroll 2
    for (int i = 0; i < kParts<Acc>; ++i) total += sums[v][i];
  }
  return Sum<double>(total);
}

// Smallest normal number of the accumulator type: below it rounding errors
// are absolute.
template <class Acc>
inline constexpr double kSmallestNormal = sizeof(Acc) == 4 ? 0x1p-126
                                                           : 0x1p-1022;

// An upper bound of |x|, given its squared norm as computed. A row that is not
// zero has at least width * floor, which covers the absolute (underflow) errors
// of an inner product in the accumulator type, see ghost_norm.cc; a zero row is
// exactly 0.
template <class T>
double LengthBound(const T* x, int64_t width, double sq_norm,
                   double floor = kSmallestNormal<Accumulator<T>>) {
  using Acc = Accumulator<T>;
  if (sq_norm == 0) {
    bool zero = true;
    for (int64_t k = 0; k < width && zero; k += kLanes<Acc>) {
      const Vec<Acc> v = LoadUpTo(x, k, width);
      for (int64_t lane = 0; lane < kLanes<Acc>; ++lane) zero &= v[lane] == 0;
    }
    if (zero) return 0;
  }
  return __builtin_sqrt(sq_norm + static_cast<double>(width) * floor);
}

// The same up to the rounding of WideSquares.
template <class T>
double LengthBound(const T* x, int64_t width) {
  return LengthBound(x, width, WideSquares(x, width));
}

}  // namespace bk::BK_ISA

#endif  // BK_JAX_CUSTOM_CALLS_CPU_ISA_WIDE_INL_H_
