// Several dense layers of one shape, which one launch handles: a table of their
// arrays goes to kernels by value, and the number of the layer is one more
// leading part of the axis of weights. Of `count` layers with N weights each,
// weight w is number w % N of layer w / N; N is 1 for most.
#ifndef BK_JAX_CUSTOM_CALLS_CUDA_LAYERS_H_
#define BK_JAX_CUSTOM_CALLS_CUDA_LAYERS_H_

#include <cstdint>

#include "custom_calls/cuda/runtime.h"
#include "custom_calls/host_device.h"
#include "custom_calls/shapes.h"

// A parameter of a kernel that is indexed where it lies, in constant memory,
// and so has no copy on the stack of each thread.
#if defined(BK_CUDA_ON_CPU)
#define BK_TABLE const
#else
#define BK_TABLE const __grid_constant__
#endif

namespace bk::cuda {

// Layers of one call: the parameters of a kernel (4 KB) have room for their
// arrays many times over. Python cuts longer lists (GPT2-large has 36 layers)
// into even parts by the same number.
inline constexpr int64_t kMaxLayers = 32;

// One weight of one example: which array, and which matrix of it [B * N].
struct LayerPlace {
  int64_t layer, matrix;
};

// Two operands of each layer, [B, N, T, width].
template <class T>
struct LayerPairs {
  int64_t count = 0;
  int64_t weights = 0;  // N, of each layer
  const T* left[kMaxLayers] = {};
  const T* right[kMaxLayers] = {};

  LayerPairs() = default;
  explicit LayerPairs(int64_t weights_of_each) : weights(weights_of_each) {}
  // A table of one.
  LayerPairs(int64_t weights_of_each, const T* l, const T* r)
      : LayerPairs(weights_of_each) {
    Add(l, r);
  }
  void Add(const T* l, const T* r) {
    left[count] = l;
    right[count] = r;
    ++count;
  }

  // Matrix number `number` of [B, count * N].
  BK_HOST_DEVICE LayerPlace Of(int64_t number) const {
    if (count == 1) return {0, number};
    const int64_t all = count * weights;
    const int64_t weight = number % all;
    return {weight / weights, number / all * weights + weight % weights};
  }

  // Whether `test` holds for both operands of all layers.
  template <class Test>
  bool All(Test&& test) const {
    for (int64_t l = 0; l < count; ++l) {
      if (!test(left[l], right[l])) return false;
    }
    return true;
  }
};

// The shape of `layers` layers as if they were weights of one.
inline DenseShape Together(DenseShape shape, int64_t layers) {
  shape.weights *= layers;
  return shape;
}
inline ClippedGemmShape Together(ClippedGemmShape shape, int64_t layers) {
  shape.weights *= layers;
  return shape;
}

}  // namespace bk::cuda

#endif  // BK_JAX_CUSTOM_CALLS_CUDA_LAYERS_H_
