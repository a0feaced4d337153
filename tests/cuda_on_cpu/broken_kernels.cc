#include "tests/cuda_on_cpu/broken_kernels.h"

namespace bk::broken {
namespace {

constexpr int kThreads = 64;

struct Shared {
  float values[kThreads];
};

struct alignas(16) Vector {
  float x[4];
};

__global__ void Kernel(Mistake mistake, const float* in, float* out) {
  BK_SHARED(Shared, shared);
  const int t = static_cast<int>(threadIdx.x);
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + t;
  const bool unset = mistake == Mistake::kSharedUnset && t == 5;
  if (!unset) {
    shared.values[t] = in[mistake == Mistake::kReadPastEnd ? i + 1 : i];
  }
  if (mistake == Mistake::kSomeReturn && t % 2 == 1) return;
  if (mistake == Mistake::kTwoBarriers && t < 32) {
    __syncthreads();
  } else if (mistake != Mistake::kNoBarrier) {
    __syncthreads();
  }
  const int next =
      mistake == Mistake::kSharedPastEnd ? t + 1 : (t + 1) % kThreads;
  float sum = shared.values[t] + shared.values[next];
  if (mistake == Mistake::kLanesMissing && t % 2 == 0) {
    sum = __shfl_down_sync(~0u, sum, 1);
  }
  if (mistake == Mistake::kMisaligned) {
    auto* to = reinterpret_cast<Vector*>(out + i / 4 * 4);
    if (t % 4 == 0) *to = *reinterpret_cast<const Vector*>(in + i / 8 * 8 + 1);
    return;
  }
  const int64_t shift = mistake == Mistake::kWritePastEnd ? 1 : 0;
  out[mistake == Mistake::kSameOutput ? t : i + shift] = sum;
}

struct alignas(128) TileShared {
  float tile[16 * 24 + 8];
};

__global__ void TileKernel(Mistake mistake, const float* in, float* out) {
  namespace wmma = nvcuda::wmma;
  BK_SHARED(TileShared, shared);
  const int ldm = mistake == Mistake::kRowsMisaligned ? 17 : 20;
  float* tile = shared.tile + (mistake == Mistake::kTileMisaligned ? 4 : 0);
  const int t = static_cast<int>(threadIdx.x);
  for (int k = t; k < 256; k += 32) tile[k / 16 * ldm + k % 16] = in[k];
  __syncthreads();
  wmma::fragment<wmma::matrix_a, 16, 16, 8, wmma::precision::tf32,
                 wmma::row_major>
      ones;
  wmma::fragment<wmma::matrix_b, 16, 16, 8, wmma::precision::tf32,
                 wmma::row_major>
      rows;
  wmma::fragment<wmma::accumulator, 16, 16, 8, float> sums;
  wmma::fill_fragment(sums, 0);
  for (float& x : ones.x) x = 1;
  for (int k = 0; k < 16; k += 8) {
    wmma::load_matrix_sync(rows, tile + int64_t{k} * ldm, ldm);
    wmma::mma_sync(sums, ones, rows, sums);
  }
  __syncthreads();
  wmma::store_matrix_sync(shared.tile, sums, 20, wmma::mem_row_major);
  __syncthreads();
  if (t < 16) out[t] = shared.tile[t];
}

}  // namespace

cudaError_t ColumnSums(Mistake mistake, const float* in, float* out) {
  return cuda::Launch(TileKernel, 1, 32, nullptr, mistake, in, out);
}

float TensorSum(float sum, const float* left, const float* right) {
  for (int k = 0; k < 8; k += emulator::kStepTerms) {
    double x[emulator::kStepTerms], y[emulator::kStepTerms];
    for (int t = 0; t < emulator::kStepTerms; ++t) {
      x[t] = left[k + t];
      y[t] = right[k + t];
    }
    sum = emulator::TensorStep(sum, x, y);
  }
  return sum;
}

cudaError_t NeighbourSums(Mistake mistake, int64_t count, const float* in,
                          float* out) {
  return cuda::Launch(Kernel, count / kThreads, kThreads, nullptr, mistake, in,
                      out);
}

}  // namespace bk::broken
