#include "custom_calls/cpu/dense/clip_factor.h"

#include "custom_calls/clip_rule.h"
#include "custom_calls/cpu/float_environment.h"

namespace bk {
template <class Real>
void ClipFactor(const ClipFactorShape& shape, Clipping clipping,
                const Real* sq_norms, Real clip_norm, const bool* is_padding,
                Real* factor, Real* norm) {
  const ScopedFloatEnvironment environment;
  for (int64_t i = 0; i < shape.batch; ++i) {
    norm[i] = NormUp(shape, sq_norms, i);
    factor[i] =
        is_padding[i] ? Real{0} : FactorOf(clipping, norm[i], clip_norm);
  }
}

template void ClipFactor(const ClipFactorShape&, Clipping, const float*, float,
                         const bool*, float*, float*);
template void ClipFactor(const ClipFactorShape&, Clipping, const double*,
                         double, const bool*, double*, double*);

}  // namespace bk
