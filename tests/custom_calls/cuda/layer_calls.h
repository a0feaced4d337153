// Several layers in one launch on a device, for tests.
#ifndef BK_JAX_TESTS_CUSTOM_CALLS_CUDA_LAYER_CALLS_H_
#define BK_JAX_TESTS_CUSTOM_CALLS_CUDA_LAYER_CALLS_H_

#include <algorithm>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/custom_calls/cuda/dense_calls.h"
#include "tests/custom_calls/norm_cases.h"
#include "tests/custom_calls/test_data.h"

namespace bk::cuda {

// Two operands of each layer.
template <class T>
struct LayerArrays {
  std::vector<Array<T>> left, right;

  int64_t Count() const { return static_cast<int64_t>(left.size()); }
  void Add(const Array<T>& l, const Array<T>& r) {
    left.push_back(l);
    right.push_back(r);
  }
};

template <class T>
LayerArrays<T> IntegerLayers(Random& random, int64_t layers,
                             const DenseShape& shape) {
  LayerArrays<T> arrays;
  for (int64_t l = 0; l < layers; ++l) {
    arrays.Add(Integers<T>(random, Rows(shape) * shape.d),
               Integers<T>(random, Rows(shape) * shape.p));
  }
  return arrays;
}

// The same on the device, the last layer `skipped` elements into its buffers.
template <class T>
class DeviceLayers {
 public:
  DeviceLayers(const LayerArrays<T>& arrays, int64_t weights, int64_t skipped)
      : pairs(weights) {
    for (int64_t l = 0; l < arrays.Count(); ++l) {
      const int64_t skip = l + 1 == arrays.Count() ? skipped : 0;
      pairs.Add(Put(arrays.left[l], "left", skip),
                Put(arrays.right[l], "right", skip));
    }
  }
  LayerPairs<T> pairs;

 private:
  const T* Put(const Array<T>& values, const std::string& name, int64_t skip) {
    std::vector<T> elements(skip + values.size());
    std::copy_n(values.data(), values.size(), elements.data() + skip);
    buffers_.push_back(DeviceBuffer<T>::Of(elements, name));
    return buffers_.back().data() + skip;
  }
  std::vector<DeviceBuffer<T>> buffers_;
};

template <class T>
Norms<T> NormsOfLayers(const DenseShape& shape, const LayerArrays<T>& arrays,
                       int64_t skipped = 0) {
  const DeviceLayers<T> layers(arrays, shape.weights, skipped);
  DeviceBuffer<char> workspace(GhostNormWorkspaceBytes(shape, arrays.Count()),
                               "workspace");
  DeviceBuffer<Accumulator<T>> sq_norm(shape.batch, "sq_norm");
  DeviceBuffer<Accumulator<T>> upper(shape.batch, "upper");
  EXPECT_TRUE(Succeeded(GhostNorms(shape, layers.pairs, workspace.data(),
                                   sq_norm.data(), upper.data(), nullptr)));
  return {sq_norm.Get(), upper.Get(), {}};
}

// Of all layers, one after the other.
template <class T>
std::vector<Accumulator<T>> SumsOfLayers(const ClippedGemmShape& shape,
                                         const LayerArrays<T>& arrays,
                                         const Array<Accumulator<T>>& factor,
                                         bool accumulate, int64_t skipped = 0) {
  using Acc = Accumulator<T>;
  const DeviceLayers<T> layers(arrays, shape.weights, skipped);
  auto device_factor = DeviceBuffer<Acc>::Of(factor, "factor");
  const std::vector<Acc> before(shape.weights * shape.m * shape.n, Acc{100});
  std::vector<DeviceBuffer<Acc>> sums;
  std::vector<Acc*> out;
  for (int64_t l = 0; l < arrays.Count(); ++l) {
    sums.push_back(DeviceBuffer<Acc>::Of(before, "out"));
    out.push_back(sums.back().data());
  }
  DeviceBuffer<char> workspace(
      ClippedGemmWorkspaceBytes(shape, sizeof(Acc), arrays.Count()),
      "workspace");
  EXPECT_TRUE(Succeeded(ClippedGemms(shape, layers.pairs, device_factor.data(),
                                     accumulate, workspace.data(), out.data(),
                                     nullptr)));
  std::vector<Acc> all;
  for (const auto& sum : sums) {
    const std::vector<Acc> values = sum.Get();
    all.insert(all.end(), values.begin(), values.end());
  }
  return all;
}

// Operands of all layers as one with as many weights: [B, L, T, width].
template <class T>
Array<T> AsWeights(const std::vector<Array<T>>& layers, int64_t batch) {
  const int64_t size = layers[0].size();
  const int64_t part = size / batch;
  const auto count = static_cast<int64_t>(layers.size());
  Array<T> all(count * size);
  for (int64_t k = 0; k < count * size; ++k) {
    all[k] = layers[k / part % count][k / part / count * part + k % part];
  }
  return all;
}

}  // namespace bk::cuda

#endif  // BK_JAX_TESTS_CUSTOM_CALLS_CUDA_LAYER_CALLS_H_
