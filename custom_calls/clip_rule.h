// From squared norms to clip factors, one example at a time: norms rounded up,
// factors down, so that factor * norm <= R holds in exact arithmetic. Compile
// without contraction of multiply-adds.
#ifndef BK_JAX_CUSTOM_CALLS_CLIP_RULE_H_
#define BK_JAX_CUSTOM_CALLS_CLIP_RULE_H_

#include <cmath>
#include <cstdint>
#include <limits>

#include "custom_calls/clipping.h"
#include "custom_calls/host_device.h"
#include "custom_calls/rounding.h"
#include "custom_calls/shapes.h"

namespace bk {

// sqrt of the sum of column i, not below the exact value, and equal to it
// whenever double and Real can hold it: a norm of exactly R is not clipped.
// A negative term is no squared norm: the result is NaN.
template <class Real>
BK_HOST_DEVICE Real NormUp(const ClipFactorShape& shape, const Real* sq_norms,
                           int64_t i) {
  double sum = 0;
  for (int64_t k = 0; k < shape.terms; ++k) {
    const auto term = static_cast<double>(sq_norms[k * shape.batch + i]);
    sum = AddUp(sum, term >= 0 ? term : std::nan(""));
  }
  return RoundUp<Real>(SqrtUp(sum));
}

// Whether factor * norm > bound, exactly.
BK_HOST_DEVICE inline bool Exceeds(float factor, float norm, float bound) {
  // 24 x 24 bits fit into a double.
  return static_cast<double>(factor) * static_cast<double>(norm) > bound;
}
BK_HOST_DEVICE inline bool Exceeds(double factor, double norm, double bound) {
  // fma rounds once, so its sign is right unless it underflows; that is
  // possible only for tiny bounds, which are answered on the safe side.
  return bound < 0x1p-900 || std::fma(factor, norm, -bound) > 0;
}

// R / denominator rounded down, for R > 0 and denominator >= norm > 0. The
// quotient is at most one rounding above the exact one, so one step suffices.
template <class Real>
BK_HOST_DEVICE Real QuotientDown(Real clip_norm, double denominator,
                                 Real norm) {
  const Real quotient =
      RoundDown<Real>(static_cast<double>(clip_norm) / denominator);
  if (!Exceeds(quotient, norm, clip_norm)) return quotient;
  return std::nextafter(quotient, Real{0});
}

// The factor of an example that is not padding, by the table of
// cpu/dense/clip_factor.h.
template <class Real>
BK_HOST_DEVICE Real FactorOf(Clipping clipping, Real norm, Real clip_norm) {
  // Written so that a NaN on either side fails the test.
  const bool usable = norm <= std::numeric_limits<Real>::max() && clip_norm > 0;
  if (!usable) return Real{0};
  const auto n = static_cast<double>(norm);
  switch (clipping) {
    case Clipping::kAbadi:
      return norm <= clip_norm ? Real{1} : QuotientDown(clip_norm, n, norm);
    case Clipping::kAutomatic:
      return std::isinf(clip_norm)
                 ? Real{0}
                 : QuotientDown(clip_norm, n + kAutomaticOffset, norm);
    case Clipping::kNormalize:
      return std::isinf(clip_norm) || norm == 0
                 ? Real{0}
                 : QuotientDown(clip_norm, n, norm);
    case Clipping::kIndicator:
      return norm <= clip_norm ? Real{1} : Real{0};
  }
  return Real{0};
}

}  // namespace bk

#endif  // BK_JAX_CUSTOM_CALLS_CLIP_RULE_H_
