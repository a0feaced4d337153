// Constants and the last step of the certified norms.
#ifndef BK_JAX_CUSTOM_CALLS_CPU_NORM_BOUND_H_
#define BK_JAX_CUSTOM_CALLS_CPU_NORM_BOUND_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "custom_calls/cpu/kernels.h"
#include "custom_calls/cpu/rounding.h"
#include "custom_calls/cpu/tiling.h"

namespace bk {

// Unit roundoff of the accumulator type.
template <class Acc>
constexpr double kUnitRoundoff = std::numeric_limits<Acc>::epsilon() / 2;

template <class Acc>
int64_t LanesOf(const CpuKernels& kernels) {
  return kernels.vector_bytes / static_cast<int64_t>(sizeof(Acc));
}

// The largest number of roundings in accumulator type between a product of two
// elements and a sum of `width` products by lanes: one for the product (there
// is no FMA in the baseline), one per vector of a lane's chain, one per level
// of the tree over lanes. Chains end after kGramDepth products; what follows is
// double.
inline int64_t GramRoundings(int64_t width, int64_t lanes) {
  int64_t tree = 0;
  while ((int64_t{1} << tree) < lanes) ++tree;
  return 1 + CeilDiv(std::min(width, kGramDepth), lanes) + tree;
}

// Both results of one example: `estimate` may be negative, `upper` is a bound
// up to a few roundings in double, `zero` says that the gradient is exactly 0.
template <class Acc>
void FinishNorm(double estimate, double upper, bool zero, Acc* sq_norm,
                Acc* sq_norm_upper) {
  if (!std::isfinite(estimate) || !std::isfinite(upper)) {
    const bool nan = std::isnan(estimate) || std::isnan(upper);
    *sq_norm = nan ? std::numeric_limits<Acc>::quiet_NaN()
                   : std::numeric_limits<Acc>::infinity();
    *sq_norm_upper = *sq_norm;
    return;
  }
  // Keeps the bound visible where denormals are flushed, and covers underflow
  // of the double arithmetic.
  const double floor = zero ? 0 : std::numeric_limits<Acc>::min();
  *sq_norm = static_cast<Acc>(std::max(estimate, 0.0));
  *sq_norm_upper = RoundUp<Acc>(upper + floor);
}

}  // namespace bk

#endif  // BK_JAX_CUSTOM_CALLS_CPU_NORM_BOUND_H_
