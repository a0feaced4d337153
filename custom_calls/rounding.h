// Arithmetic and conversions that never land on the unsafe side.
#ifndef BK_JAX_CUSTOM_CALLS_ROUNDING_H_
#define BK_JAX_CUSTOM_CALLS_ROUNDING_H_

#include <cmath>
#include <limits>

#include "custom_calls/host_device.h"

namespace bk {

// The smallest Out that is not below x; NaN stays NaN.
template <class Out>
BK_HOST_DEVICE Out RoundUp(double x) {
  const Out y = static_cast<Out>(x);
  if (!(static_cast<double>(y) < x)) return y;
  return std::nextafter(y, std::numeric_limits<Out>::infinity());
}

// The largest finite Out that is not above x, for x >= 0.
template <class Out>
BK_HOST_DEVICE Out RoundDown(double x) {
  if (x >= static_cast<double>(std::numeric_limits<Out>::max())) {
    return std::numeric_limits<Out>::max();
  }
  const Out y = static_cast<Out>(x);
  return static_cast<double>(y) > x ? std::nextafter(y, Out{0}) : y;
}

// x + y for x, y >= 0, rounded up: the error of an addition is itself a double
// (Knuth's two-sum) whose sign says whether the sum was rounded down.
BK_HOST_DEVICE inline double AddUp(double x, double y) {
  const double sum = x + y;
  const double y_part = sum - x;
  const double error = (x - (sum - y_part)) + (y - y_part);
  return error > 0 ? std::nextafter(sum, HUGE_VAL) : sum;
}

// sqrt(x) rounded up. fma rounds once, so its sign is right unless it
// underflows; numbers so small are answered on the safe side.
BK_HOST_DEVICE inline double SqrtUp(double x) {
  const double root = std::sqrt(x);
  const bool below = (x > 0 && x < 0x1p-900) || std::fma(root, root, -x) < 0;
  return below ? std::nextafter(root, HUGE_VAL) : root;
}

}  // namespace bk

#endif  // BK_JAX_CUSTOM_CALLS_ROUNDING_H_
