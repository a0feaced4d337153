#include "custom_calls/cpu/dense/per_sample_grad.h"

#include <algorithm>
#include <vector>

#include "custom_calls/cpu/dense/product.h"

namespace bk {
namespace {

template <class Acc>
bool IsZero(const Acc* x, int64_t count) {
  return std::all_of(x, x + count, [](Acc value) { return value == 0; });
}

}  // namespace

template <class T>
void PerSampleGrad(const CpuKernels& kernels, Parallel& parallel,
                   const DenseShape& shape, const T* a, const T* g,
                   Accumulator<T>* grad, Accumulator<T>* sq_norm,
                   Accumulator<T>* sq_norm_upper) {
  using Acc = Accumulator<T>;
  const int64_t entries = shape.weights * shape.d * shape.p;
  if (entries * shape.positions == 0) {
    std::fill_n(grad, shape.batch * entries, Acc{0});
    std::fill_n(sq_norm, shape.batch, Acc{0});
    std::fill_n(sq_norm_upper, shape.batch, Acc{0});
    return;
  }
  const Tiling tiling = ChooseTiling(shape.batch * shape.weights, shape.d,
                                     shape.p, kGemmColumns, kEnoughTiles);
  const std::vector<double> squares =
      ProductSquares(kernels, parallel, shape, tiling, a, g, grad);

  const ScopedFloatEnvironment environment;
  const int64_t tiles = shape.weights * tiling.Tiles();
  for (int64_t i = 0; i < shape.batch; ++i) {
    double sum = 0;
    for (int64_t k = 0; k < tiles; ++k) sum += squares[i * tiles + k];
    const double upper = SquaresUpper<Acc>(shape, tiling, sum);
    // Squares may have underflown, so a sum of 0 has to be looked at.
    const bool zero = sum == 0 && IsZero(grad + i * entries, entries);
    FinishNorm(sum, zero ? 0 : upper, zero, sq_norm + i, sq_norm_upper + i);
  }
}

template void PerSampleGrad(const CpuKernels&, Parallel&, const DenseShape&,
                            const float*, const float*, float*, float*, float*);
template void PerSampleGrad(const CpuKernels&, Parallel&, const DenseShape&,
                            const BFloat16*, const BFloat16*, float*, float*,
                            float*);
template void PerSampleGrad(const CpuKernels&, Parallel&, const DenseShape&,
                            const Float16*, const Float16*, float*, float*,
                            float*);
template void PerSampleGrad(const CpuKernels&, Parallel&, const DenseShape&,
                            const double*, const double*, double*, double*,
                            double*);

}  // namespace bk
