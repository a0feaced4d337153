// One thread for each example.
#include "custom_calls/clip_rule.h"
#include "custom_calls/cuda/clip_factor.h"
#include "custom_calls/cuda/platform.cuh"

namespace bk::cuda {
namespace {

constexpr int kThreads = 128;

template <class Real>
__global__ void __launch_bounds__(kThreads)
    ClipFactorKernel(ClipFactorShape shape, Clipping clipping,
                     const Real* sq_norms, const Real* clip_norm,
                     const bool* is_padding, Real* factor, Real* norm) {
  const int64_t chunks = CeilDiv(shape.batch, kThreads);
  for (int64_t chunk = blockIdx.x; chunk < chunks; chunk += gridDim.x) {
    const int64_t i = chunk * kThreads + threadIdx.x;
    if (i >= shape.batch) continue;
    const Real length = NormUp(shape, sq_norms, i);
    norm[i] = length;
    factor[i] =
        is_padding[i] ? Real{0} : FactorOf(clipping, length, *clip_norm);
  }
}

}  // namespace

template <class Real>
cudaError_t ClipFactor(const ClipFactorShape& shape, Clipping clipping,
                       const Real* sq_norms, const Real* clip_norm,
                       const bool* is_padding, Real* factor, Real* norm,
                       cudaStream_t stream) {
  return Launch(ClipFactorKernel<Real>, CeilDiv(shape.batch, kThreads),
                kThreads, stream, shape, clipping, sq_norms, clip_norm,
                is_padding, factor, norm);
}

template cudaError_t ClipFactor(const ClipFactorShape&, Clipping, const float*,
                                const float*, const bool*, float*, float*,
                                cudaStream_t);
template cudaError_t ClipFactor(const ClipFactorShape&, Clipping, const double*,
                                const double*, const bool*, double*, double*,
                                cudaStream_t);

}  // namespace bk::cuda
