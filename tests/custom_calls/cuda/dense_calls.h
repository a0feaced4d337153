// The dense operations on a device, for tests: arrays in, results out.
#ifndef BK_JAX_TESTS_CUSTOM_CALLS_CUDA_DENSE_CALLS_H_
#define BK_JAX_TESTS_CUSTOM_CALLS_CUDA_DENSE_CALLS_H_

#include <vector>

#include "custom_calls/cuda/clipped_gemm.h"
#include "custom_calls/cuda/direct_norm.h"
#include "custom_calls/cuda/ghost_norm.h"
#include "custom_calls/cuda/per_sample_grad.h"
#include "gtest/gtest.h"
#include "tests/custom_calls/cuda/device_buffer.h"
#include "tests/custom_calls/test_data.h"

namespace bk::cuda {

enum class Kind { kGhost, kDirect, kPerSample };
constexpr Kind kKinds[] = {Kind::kGhost, Kind::kDirect, Kind::kPerSample};

template <class T>
struct Norms {
  std::vector<Accumulator<T>> sq_norm, upper, grad;
};

inline int64_t WorkspaceBytes(Kind kind, const DenseShape& shape) {
  switch (kind) {
    case Kind::kGhost:
      return GhostNormWorkspaceBytes(shape);
    case Kind::kDirect:
      return DirectNormWorkspaceBytes(shape);
    default:
      return PerSampleGradWorkspaceBytes(shape);
  }
}

template <class T>
Norms<T> NormsOf(Kind kind, const DenseShape& shape, const Array<T>& a,
                 const Array<T>& g) {
  auto da = DeviceBuffer<T>::Of(a, "a");
  auto dg = DeviceBuffer<T>::Of(g, "g");
  DeviceBuffer<char> workspace(WorkspaceBytes(kind, shape), "workspace");
  const int64_t entries = kind == Kind::kPerSample
                              ? shape.batch * shape.weights * shape.d * shape.p
                              : 0;
  DeviceBuffer<Accumulator<T>> grad(entries, "grad");
  DeviceBuffer<Accumulator<T>> sq_norm(shape.batch, "sq_norm");
  DeviceBuffer<Accumulator<T>> upper(shape.batch, "upper");
  cudaError_t error = cudaSuccess;
  if (kind == Kind::kGhost) {
    error = GhostNorm(shape, da.data(), dg.data(), workspace.data(),
                      sq_norm.data(), upper.data(), nullptr);
  } else if (kind == Kind::kDirect) {
    error = DirectNorm(shape, da.data(), dg.data(), workspace.data(),
                       sq_norm.data(), upper.data(), nullptr);
  } else {
    error = PerSampleGrad(shape, da.data(), dg.data(), workspace.data(),
                          grad.data(), sq_norm.data(), upper.data(), nullptr);
  }
  EXPECT_TRUE(Succeeded(error));
  return {sq_norm.Get(), upper.Get(), grad.Get()};
}

template <class T>
std::vector<Accumulator<T>> SumOf(const ClippedGemmShape& shape,
                                  const Array<T>& lhs,
                                  const Array<Accumulator<T>>& factor,
                                  const Array<T>& rhs, bool accumulate) {
  using Acc = Accumulator<T>;
  auto dl = DeviceBuffer<T>::Of(lhs, "lhs");
  auto dr = DeviceBuffer<T>::Of(rhs, "rhs");
  auto df = DeviceBuffer<Acc>::Of(factor, "factor");
  const int64_t entries = shape.weights * shape.m * shape.n;
  auto out = DeviceBuffer<Acc>::Of(std::vector<Acc>(entries, Acc{100}), "out");
  DeviceBuffer<char> workspace(ClippedGemmWorkspaceBytes(shape, sizeof(Acc)),
                               "workspace");
  EXPECT_TRUE(
      Succeeded(ClippedGemm(shape, dl.data(), df.data(), dr.data(), accumulate,
                            workspace.data(), out.data(), nullptr)));
  return out.Get();
}

}  // namespace bk::cuda

#endif  // BK_JAX_TESTS_CUSTOM_CALLS_CUDA_DENSE_CALLS_H_
