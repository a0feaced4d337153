// Tokens in the order of their ids, by merge sort: no atomics, and the same
// order on every device.
//
// A token's key has the id in its upper half and the token's number in the
// lower (cpu/sparse/token_order.h), so all keys are different and the place of
// a key is the number of smaller ones. Tiles of kSortTile keys are sorted by
// counting, then runs are merged in pairs: a key finds its place in the other
// run by bisection. Tokens that are not read get the id kUnread and come last.
#ifndef BK_JAX_CUSTOM_CALLS_CUDA_TOKEN_SORT_CUH_
#define BK_JAX_CUSTOM_CALLS_CUDA_TOKEN_SORT_CUH_

#include "custom_calls/cuda/platform.cuh"

namespace bk::cuda {

inline constexpr int kSortTile = 256;
inline constexpr uint64_t kUnread = 0xffffffff;

// `segments` lists of `length` keys, each of which is sorted.
struct SortShape {
  int64_t segments;
  int64_t length;
};

// For the keys of all segments, twice.
inline int64_t SortBytes(const SortShape& shape) {
  return 2 * shape.segments * shape.length * int64_t{sizeof(uint64_t)};
}

__device__ inline uint64_t IdOf(uint64_t key) { return key >> 32; }
__device__ inline int64_t TokenOf(uint64_t key) {
  return static_cast<int64_t>(key & 0xffffffff);
}

struct SortTile {
  uint64_t keys[kSortTile];
};

// key_of(segment, k) is the key of number k of a segment.
template <class KeyOf>
__global__ void __launch_bounds__(kSortTile)
    SortTilesKernel(SortShape shape, KeyOf key_of, uint64_t* to) {
  BK_SHARED(SortTile, tile);
  const int64_t tiles = CeilDiv(shape.length, kSortTile);
  for (int64_t item = blockIdx.x; item < shape.segments * tiles;
       item += gridDim.x) {
    const int64_t segment = item / tiles;
    const int64_t first = item % tiles * kSortTile;
    const int64_t count =
        shape.length - first < kSortTile ? shape.length - first : kSortTile;
    const bool inside = threadIdx.x < count;
    const uint64_t key =
        inside ? key_of(segment, first + threadIdx.x) : ~uint64_t{0};
    tile.keys[threadIdx.x] = key;
    __syncthreads();
    int place = 0;
    for (int k = 0; k < count; ++k) place += tile.keys[k] < key ? 1 : 0;
    if (inside) to[segment * shape.length + first + place] = key;
    __syncthreads();
  }
}

// How many of keys [0, count) are smaller.
__device__ inline int64_t CountSmaller(const uint64_t* keys, int64_t count,
                                       uint64_t key) {
  int64_t begin = 0;
  int64_t end = count;
  while (begin < end) {
    const int64_t middle = (begin + end) / 2;
    if (keys[middle] < key) {
      begin = middle + 1;
    } else {
      end = middle;
    }
  }
  return begin;
}

// Merges runs of `run` keys in pairs.
template <class Key>
__global__ void __launch_bounds__(kSortTile)
    MergeRunsKernel(SortShape shape, int64_t run, const Key* from, Key* to) {
  const int64_t tiles = CeilDiv(shape.length, kSortTile);
  for (int64_t item = blockIdx.x; item < shape.segments * tiles;
       item += gridDim.x) {
    const int64_t k = item % tiles * kSortTile + threadIdx.x;
    if (k >= shape.length) continue;
    const Key* keys = from + item / tiles * shape.length;
    const int64_t pair = k / (2 * run) * (2 * run);
    const bool left = k < pair + run;
    const int64_t other = left ? pair + run : pair;
    const int64_t rest = shape.length - other;
    const int64_t smaller =
        rest <= 0
            ? 0
            : CountSmaller(keys + other, rest < run ? rest : run, keys[k]);
    const int64_t place = (left ? k : k - run) + smaller;
    to[item / tiles * shape.length + place] = keys[k];
  }
}

// `workspace` holds SortBytes(shape); *sorted points to where the keys are.
template <class KeyOf>
cudaError_t SortTokens(const SortShape& shape, const KeyOf& key_of,
                       void* workspace, const uint64_t** sorted,
                       cudaStream_t stream) {
  const int64_t items = shape.segments * CeilDiv(shape.length, kSortTile);
  auto* keys = static_cast<uint64_t*>(workspace);
  auto* other = keys + shape.segments * shape.length;
  BK_RETURN_IF_CUDA_ERROR(Launch(SortTilesKernel<KeyOf>, items, kSortTile,
                                 stream, shape, key_of, keys));
  for (int64_t run = kSortTile; run < shape.length; run *= 2) {
    BK_RETURN_IF_CUDA_ERROR(Launch(MergeRunsKernel<uint64_t>, items, kSortTile,
                                   stream, shape, run, keys, other));
    uint64_t* merged = other;
    other = keys;
    keys = merged;
  }
  *sorted = keys;
  return cudaSuccess;
}

}  // namespace bk::cuda

#endif  // BK_JAX_CUSTOM_CALLS_CUDA_TOKEN_SORT_CUH_
