// As gaussian.cu: 16 threads make a group of ChaCha blocks. The groups of all
// arrays are counted through, so arrays of a few hundred elements share a block
// of threads, and 16 threads look up which array is theirs.
#include <algorithm>

#include "custom_calls/cuda/gaussians.h"
#include "custom_calls/cuda/layers.h"
#include "custom_calls/cuda/noise_rows.cuh"

namespace bk::cuda {
namespace {

constexpr int64_t kValues = kGroupValues<float>;

// Array i has groups [first[i], first[i + 1]). By arrays, so that a kernel
// reads each where it lies, in constant memory.
struct NoiseTable {
  int count = 0;
  int64_t first[kMaxNoiseArrays + 1] = {};
  int64_t size[kMaxNoiseArrays] = {};
  const float* x[kMaxNoiseArrays] = {};
  float* out[kMaxNoiseArrays] = {};
  uint32_t stream[kMaxNoiseArrays] = {};

  void Add(const NoiseArray& array) {
    size[count] = array.size;
    x[count] = array.x;
    out[count] = array.out;
    stream[count] = array.stream;
    first[count + 1] = first[count] + CeilDiv(array.size, kValues);
    ++count;
  }

  __host__ __device__ int64_t Groups() const { return first[count]; }

  // The array of group `group`: the last one that begins there or before, so
  // none that is empty unless no other follows.
  __device__ int ArrayOf(int64_t group) const {
    int low = 0, high = count;
    while (high - low > 1) {
      const int middle = (low + high) / 2;
      (first[middle] <= group ? low : high) = middle;
    }
    return low;
  }

  // Groups after the last one are a part with no elements.
  __device__ RowPart<float> Part(int array, int64_t group) const {
    const auto begin = static_cast<uint64_t>((group - first[array]) * kValues);
    return {begin,    0,          static_cast<uint64_t>(size[array]),
            x[array], out[array], true};
  }
};
static_assert(sizeof(NoiseTable) < 32000, "parameters of a kernel");

__global__ void __launch_bounds__(kNoiseThreads)
    GaussiansKernel(BK_TABLE NoiseTable table, uint32_t domain,
                    const uint32_t* key, const float* stddev) {
  const int64_t units = CeilDiv(table.Groups(), kNoiseGroups);
  const unsigned lane = threadIdx.x % kLanesOfGroup;
  for (int64_t unit = blockIdx.x; unit < units; unit += gridDim.x) {
    const int64_t group = unit * kNoiseGroups + threadIdx.x / kLanesOfGroup;
    const int array = table.ArrayOf(group);
    const RowPart<float> part = table.Part(array, group);
    if (*stddev == 0) {
      part.Fill(lane);
      continue;
    }
    uint32_t words[kBlockWords];
    ChachaBlock(key, table.stream[array], domain, part.Block(lane), words);
    MakeNormals(words, lane, AddedAtOnce<float>{part, *stddev, lane}, 0.0F);
  }
}

}  // namespace

cudaError_t Gaussians(int64_t count, const NoiseArray* arrays, uint32_t domain,
                      const uint32_t* key, const float* stddev,
                      cudaStream_t stream) {
  int64_t begin = 0;
  do {
    NoiseTable table;
    const int64_t end = std::min(count, begin + kMaxNoiseArrays);
    for (; begin < end; ++begin) table.Add(arrays[begin]);
    BK_RETURN_IF_CUDA_ERROR(
        Launch(GaussiansKernel, CeilDiv(table.Groups(), kNoiseGroups),
               kNoiseThreads, stream, table, domain, key, stddev));
  } while (begin < count);
  return cudaSuccess;
}

}  // namespace bk::cuda
