#include "custom_calls/cpu/clip_factor.h"

#include <cmath>
#include <limits>

#include "custom_calls/cpu/float_environment.h"
#include "custom_calls/cpu/rounding.h"

namespace bk {
namespace {

// sqrt of the sum of column i, not below the exact value, and equal to it
// whenever double and Real can hold it: a norm of exactly R is not clipped.
// A negative term is no squared norm: the result is NaN.
template <class Real>
Real NormUp(const ClipFactorShape& shape, const Real* sq_norms, int64_t i) {
  double sum = 0;
  for (int64_t k = 0; k < shape.terms; ++k) {
    const auto term = static_cast<double>(sq_norms[k * shape.batch + i]);
    sum = AddUp(sum, term >= 0 ? term : std::nan(""));
  }
  return RoundUp<Real>(SqrtUp(sum));
}

// Whether factor * norm > bound, exactly.
bool Exceeds(float factor, float norm, float bound) {
  // 24 x 24 bits fit into a double.
  return static_cast<double>(factor) * static_cast<double>(norm) > bound;
}
bool Exceeds(double factor, double norm, double bound) {
  // fma rounds once, so its sign is right unless it underflows; that is
  // possible only for tiny bounds, which are answered on the safe side.
  return bound < 0x1p-900 || std::fma(factor, norm, -bound) > 0;
}

// R / denominator rounded down, for R > 0 and denominator >= norm > 0. The
// quotient is at most one rounding above the exact one, so one step suffices.
template <class Real>
Real QuotientDown(Real clip_norm, double denominator, Real norm) {
  const Real quotient =
      RoundDown<Real>(static_cast<double>(clip_norm) / denominator);
  if (!Exceeds(quotient, norm, clip_norm)) return quotient;
  return std::nextafter(quotient, Real{0});
}

// The table of the header for finite norm >= 0 and clip_norm > 0.
template <class Real>
Real FactorOf(Clipping clipping, Real norm, Real clip_norm) {
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

}  // namespace

template <class Real>
void ClipFactor(const ClipFactorShape& shape, Clipping clipping,
                const Real* sq_norms, Real clip_norm, const bool* is_padding,
                Real* factor, Real* norm) {
  const ScopedFloatEnvironment environment;
  for (int64_t i = 0; i < shape.batch; ++i) {
    norm[i] = NormUp(shape, sq_norms, i);
    // Written so that a NaN on either side fails the test.
    const bool usable =
        norm[i] <= std::numeric_limits<Real>::max() && clip_norm > 0;
    factor[i] = usable && !is_padding[i]
                    ? FactorOf(clipping, norm[i], clip_norm)
                    : Real{0};
  }
}

template void ClipFactor(const ClipFactorShape&, Clipping, const float*, float,
                         const bool*, float*, float*);
template void ClipFactor(const ClipFactorShape&, Clipping, const double*,
                         double, const bool*, double*, double*);

}  // namespace bk
