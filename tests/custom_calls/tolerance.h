// The only place where a tolerance is made: c * u * sum |terms|, where c counts
// roundings and u is the unit roundoff of the accumulator.
#ifndef BK_JAX_TESTS_CUSTOM_CALLS_TOLERANCE_H_
#define BK_JAX_TESTS_CUSTOM_CALLS_TOLERANCE_H_

#include <cstdint>
#include <limits>

#include "custom_calls/element.h"

namespace bk {

template <class T>
constexpr double UnitRoundoff() {
  return std::numeric_limits<Accumulator<T>>::epsilon() / 2;
}

// A sum of products with `terms` terms in any order: one rounding per product,
// per scaling, per addition, one for the conversion of the result. Twice, for
// the reference is rounded too when it is compared with double kernels.
template <class T>
double SumTolerance(int64_t terms, double absolute_sum) {
  return 2 * static_cast<double>(terms + 3) * UnitRoundoff<T>() * absolute_sum;
}

}  // namespace bk

#endif  // BK_JAX_TESTS_CUSTOM_CALLS_TOLERANCE_H_
