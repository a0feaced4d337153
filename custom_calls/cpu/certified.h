// From what a kernel computed to the pair (estimate, upper bound) that it
// returns.
#ifndef BK_JAX_CUSTOM_CALLS_CPU_CERTIFIED_H_
#define BK_JAX_CUSTOM_CALLS_CPU_CERTIFIED_H_

#include <cmath>
#include <limits>

#include "custom_calls/cpu/rounding.h"

namespace bk {

inline constexpr double kDoubleRoundoff = 0x1p-53;

// Unit roundoff of the accumulator type.
template <class Acc>
inline constexpr double kRoundoff = std::numeric_limits<Acc>::epsilon() / 2;

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
void StoreCertified(const ComputedNorm& norm, Acc* sq_norm,
                    Acc* sq_norm_upper) {
  if (!std::isfinite(norm.squares) || !std::isfinite(norm.error)) {
    const bool nan = std::isnan(norm.squares) || std::isnan(norm.error);
    *sq_norm = nan ? std::numeric_limits<Acc>::quiet_NaN()
                   : std::numeric_limits<Acc>::infinity();
    *sq_norm_upper = *sq_norm;
    return;
  }
  *sq_norm = static_cast<Acc>(norm.squares);
  *sq_norm_upper = 0;
  if (norm.zero) return;
  const double slack = (norm.roundings + 4) * kDoubleRoundoff;
  const double length = std::sqrt(norm.squares) * (1 + slack) + norm.error;
  *sq_norm_upper = RoundUp<Acc>(length * length * (1 + slack) +
                                std::numeric_limits<Acc>::min());
}

}  // namespace bk

#endif  // BK_JAX_CUSTOM_CALLS_CPU_CERTIFIED_H_
