// From certified squared norms to clip factors that keep |C g| <= R.
#ifndef BK_JAX_CUSTOM_CALLS_CPU_DENSE_CLIP_FACTOR_H_
#define BK_JAX_CUSTOM_CALLS_CPU_DENSE_CLIP_FACTOR_H_

#include "custom_calls/clipping.h"
#include "custom_calls/shapes.h"

namespace bk {

// norm[i] = sqrt(sum_k sq_norms[k, i]), rounded up; factor[i] by `clipping`,
// rounded down, so that factor[i] * norm[i] <= R holds in exact arithmetic.
// Real is float or double; sums are double.
//
//                     | abadi       | automatic    | normalize | indicator
//   0 < n < infinity  | min(R/n, 1) | R/(n + 0.01) | R/n       | [n <= R]
//   n = 0             | 1           | R/0.01       | 0 (*)     | 1
//   R = infinity      | 1           | 0 (**)       | 0 (**)    | 1
//   R = 0, < 0 or NaN | 0           | 0            | 0         | 0
//   n not finite      | 0           | 0            | 0         | 0
//   padding example   | 0           | 0            | 0         | 0
//
// (*) a zero gradient has no direction that could be scaled to length R.
// (**) "scale to infinity" has no answer; the Python side refuses it.
// A negative term makes n NaN. The norm of a padding example is reported like
// any other. A factor too large for Real becomes the largest finite number.
template <class Real>
void ClipFactor(const ClipFactorShape& shape, Clipping clipping,
                const Real* sq_norms, Real clip_norm, const bool* is_padding,
                Real* factor, Real* norm);

}  // namespace bk

#endif  // BK_JAX_CUSTOM_CALLS_CPU_DENSE_CLIP_FACTOR_H_
