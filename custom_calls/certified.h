// The last step of certified norms: from what a kernel computed to the pair
// (estimate, upper bound) that it returns.
#ifndef BK_JAX_CUSTOM_CALLS_CERTIFIED_H_
#define BK_JAX_CUSTOM_CALLS_CERTIFIED_H_

#include <algorithm>
#include <cmath>
#include <limits>

#include "custom_calls/host_device.h"
#include "custom_calls/rounding.h"

namespace bk {

// Unit roundoff of the accumulator type.
template <class Acc>
constexpr double kUnitRoundoff = std::numeric_limits<Acc>::epsilon() / 2;

// Whether one of the numbers is not finite; both results then say so.
template <class Acc>
BK_HOST_DEVICE bool StoreIfNotFinite(double x, double y, Acc* sq_norm,
                                     Acc* sq_norm_upper) {
  if (std::isfinite(x) && std::isfinite(y)) return false;
  const bool nan = std::isnan(x) || std::isnan(y);
  *sq_norm = nan ? std::numeric_limits<Acc>::quiet_NaN()
                 : std::numeric_limits<Acc>::infinity();
  *sq_norm_upper = *sq_norm;
  return true;
}

// Both results of one example: `estimate` may be negative, `upper` is a bound
// up to a few roundings in double, `zero` says that the gradient is exactly 0.
template <class Acc>
BK_HOST_DEVICE void FinishNorm(double estimate, double upper, bool zero,
                               Acc* sq_norm, Acc* sq_norm_upper) {
  if (StoreIfNotFinite(estimate, upper, sq_norm, sq_norm_upper)) return;
  // Keeps the bound visible where denormals are flushed, and covers underflow
  // of the double arithmetic.
  const double floor = zero ? 0 : std::numeric_limits<Acc>::min();
  *sq_norm = static_cast<Acc>(std::max(estimate, 0.0));
  *sq_norm_upper = RoundUp<Acc>(upper + floor);
}

// A vector V was computed with an error of at most `error` in norm, and its
// squares were added up in double with at most `roundings` roundings on the way
// of any of them, roundings * 2^-53 < 1e-3.
struct ComputedNorm {
  double squares;
  double error;
  double roundings;
  bool zero;  // the exact vector is zero
};

// |V|^2 <= squares (1 + k u)^2 for k >= roundings; four more cover the root,
// the sum and the square below. The smallest normal number keeps the bound
// visible where denormals are flushed and covers underflow of squares.
template <class Acc>
BK_HOST_DEVICE void StoreCertified(const ComputedNorm& norm, Acc* sq_norm,
                                   Acc* sq_norm_upper) {
  if (StoreIfNotFinite(norm.squares, norm.error, sq_norm, sq_norm_upper)) {
    return;
  }
  *sq_norm = static_cast<Acc>(norm.squares);
  *sq_norm_upper = 0;
  if (norm.zero) return;
  const double slack = (norm.roundings + 4) * kUnitRoundoff<double>;
  const double length = std::sqrt(norm.squares) * (1 + slack) + norm.error;
  *sq_norm_upper = RoundUp<Acc>(length * length * (1 + slack) +
                                std::numeric_limits<Acc>::min());
}

}  // namespace bk

#endif  // BK_JAX_CUSTOM_CALLS_CERTIFIED_H_
