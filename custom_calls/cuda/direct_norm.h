// Squared norms of per-example gradients, formed tile by tile and not kept.
#ifndef BK_JAX_CUSTOM_CALLS_CUDA_DIRECT_NORM_H_
#define BK_JAX_CUSTOM_CALLS_CUDA_DIRECT_NORM_H_

#include <cstdint>

#include "custom_calls/cuda/layers.h"
#include "custom_calls/cuda/runtime.h"
#include "custom_calls/element.h"
#include "custom_calls/host_device.h"
#include "custom_calls/shapes.h"

namespace bk::cuda {

// sq_norm[i] ~ sum_n |a[i,n]^T g[i,n]|_F^2, and sq_norm_upper[i], which is not
// below the exact value; the table of cpu/dense/direct_norm.h holds.
template <class T>
cudaError_t DirectNorm(const DenseShape& shape, const T* a, const T* g,
                       void* workspace, Accumulator<T>* sq_norm,
                       Accumulator<T>* sq_norm_upper, cudaStream_t stream);

int64_t DirectNormWorkspaceBytes(const DenseShape& shape);

// Parts of it that other norms use. Their shapes have the weights of all
// layers: B, N below are the axes of one.

// Some examples of a batch, on the device: how many, then their numbers. All of
// them if it is null.
struct ExampleList {
  const int32_t* numbers = nullptr;  // [1 + B]
  BK_HOST_DEVICE int64_t Count(int64_t batch) const {
    return numbers == nullptr ? batch : numbers[0];
  }
  BK_HOST_DEVICE int64_t At(int64_t k) const {
    return numbers == nullptr ? k : numbers[1 + k];
  }
};

// Sums of squares of tiles of a[i,n]^T g[i,n]: [B, N, tiles], and the gradients
// themselves, [B, N, d, p], unless `grad` is null, for the examples `wanted`.
// How many tiles there are depends on the size of elements; the most, for a
// workspace, without it.
int64_t ProductTileCount(const DenseShape& shape, int64_t element_bytes);
int64_t ProductTileCount(const DenseShape& shape);
template <class T>
cudaError_t ProductSquares(const DenseShape& shape, const LayerPairs<T>& layers,
                           ExampleList wanted, double* squares,
                           Accumulator<T>* grad, cudaStream_t stream);

// Sums over tiles of positions of bounds of |a_t| |g_t|, [B, N, tiles], that
// something else has computed: negative where it does not know that they are
// not 0.
struct TileSpreads {
  const double* at = nullptr;
  int64_t tiles = 0;
};

// Sums over segments of positions of bounds of |a_t| |g_t|: [B, N, segments].
// Examples that `known` knows are not read.
int64_t SpreadSegments(const DenseShape& shape);
template <class T>
cudaError_t Spreads(const DenseShape& shape, const LayerPairs<T>& layers,
                    TileSpreads known, double* spreads, cudaStream_t stream);

// Norms of the examples `wanted`; they replace what is there unless their bound
// is worse. `squares`: [B, N, tiles].
template <class T>
cudaError_t DirectNormWhere(const DenseShape& shape,
                            const LayerPairs<T>& layers, ExampleList wanted,
                            const double* spreads, double* squares,
                            Accumulator<T>* sq_norm,
                            Accumulator<T>* sq_norm_upper, cudaStream_t stream);

}  // namespace bk::cuda

#endif  // BK_JAX_CUSTOM_CALLS_CUDA_DIRECT_NORM_H_
