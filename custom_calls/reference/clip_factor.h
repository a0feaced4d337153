// The clipping functions as formulas, rounded as they come.
#ifndef BK_JAX_CUSTOM_CALLS_REFERENCE_CLIP_FACTOR_H_
#define BK_JAX_CUSTOM_CALLS_REFERENCE_CLIP_FACTOR_H_

#include <algorithm>

#include "custom_calls/clipping.h"

namespace bk::reference {

// C(n, R) for finite n >= 0 and finite R > 0.
inline double ClipFactor(Clipping clipping, double norm, double clip_norm) {
  switch (clipping) {
    case Clipping::kAbadi:
      return norm == 0 ? 1 : std::min(clip_norm / norm, 1.0);
    case Clipping::kAutomatic:
      return clip_norm / (norm + kAutomaticOffset);
    case Clipping::kNormalize:
      return norm == 0 ? 0 : clip_norm / norm;
    case Clipping::kIndicator:
      return norm <= clip_norm ? 1 : 0;
  }
  return 0;
}

}  // namespace bk::reference

#endif  // BK_JAX_CUSTOM_CALLS_REFERENCE_CLIP_FACTOR_H_
