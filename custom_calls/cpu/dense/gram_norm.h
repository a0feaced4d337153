// The last step of norms from Gram matrices: certify, or recompute.
#ifndef BK_JAX_CUSTOM_CALLS_CPU_DENSE_GRAM_NORM_H_
#define BK_JAX_CUSTOM_CALLS_CPU_DENSE_GRAM_NORM_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "custom_calls/cpu/dense/dense_kernels.h"
#include "custom_calls/cpu/norm_bound.h"

namespace bk {

// Sums of one example over its weights: the norm, and how far it may be off.
struct GramSums {
  double inner = 0;
  double error = 0;
  bool zero = true;
};

// `relative_error` times S^2 bounds the error of one weight, to which `tasks`
// partial results belong.
inline GramSums AddPartials(const GramPartial* partial, int64_t weights,
                            int64_t tasks, double relative_error) {
  GramSums sums;
  for (int64_t weight = 0; weight < weights; ++weight) {
    double bound = 0;
    for (int64_t task = 0; task < tasks; ++task, ++partial) {
      sums.inner += partial->inner;
      bound += partial->bound;
    }
    sums.zero = sums.zero && bound == 0;
    sums.error += relative_error * bound * bound;
  }
  return sums;
}

// Whether the bound exceeds the norm by more than 1 %.
inline bool IsLoose(const GramSums& sums) {
  constexpr double kTolerance = 1.01 * 1.01 - 1;
  return std::isfinite(sums.inner) && std::isfinite(sums.error) &&
         sums.error > kTolerance * std::max(sums.inner, 0.0);
}

// Norms of `batch` examples from partial results [batch, weights, tasks].
// Where the bound is loose, direct(i, &sq_norm, &sq_norm_upper) makes the norm
// of example i in another way, or leaves them as they are. Both bounds hold, so
// the smaller one does.
template <class Acc, class Direct>
void CertifyOrRecompute(const std::vector<GramPartial>& partials, int64_t batch,
                        int64_t weights, double relative_error, Acc* sq_norm,
                        Acc* sq_norm_upper, const Direct& direct) {
  for (int64_t i = 0; i < batch; ++i) {
    const int64_t per_example = static_cast<int64_t>(partials.size()) / batch;
    const GramSums sums =
        AddPartials(partials.data() + i * per_example, weights,
                    weights == 0 ? 0 : per_example / weights, relative_error);
    FinishNorm(sums.inner, std::max(sums.inner, 0.0) + sums.error, sums.zero,
               sq_norm + i, sq_norm_upper + i);
    if (!IsLoose(sums)) continue;
    Acc other = sq_norm[i];
    Acc other_upper = sq_norm_upper[i];
    direct(i, &other, &other_upper);
    if (!(other_upper < sq_norm_upper[i])) continue;
    sq_norm[i] = other;
    sq_norm_upper[i] = other_upper;
  }
}

}  // namespace bk

#endif  // BK_JAX_CUSTOM_CALLS_CPU_DENSE_GRAM_NORM_H_
