#include "tests/cuda_on_cpu/broken_warpgroups.h"

#include "custom_calls/cuda/warpgroup.cuh"

namespace bk::broken {
namespace {

using cuda::Layout;
using cuda::MatrixDescriptor;
using cuda::SharedAddress;
using cuda::ThreadIndex;

constexpr int kThreads = 128, kTerms = 64;
constexpr int kRowBytes = 128, kHalf = kTerms * kRowBytes;

// Rows of 128 bytes: 64 of the left operand, 128 of the right one.
struct alignas(1024) Shared {
  uint16_t left[64][64], right[128][64];
};

__device__ void Store(uint16_t (*to)[64], const uint16_t* from, int rows,
                      int width) {
  for (int k = ThreadIndex(); k < rows * width; k += kThreads) {
    const int row = k / width, column = k % width;
    const int unit = column % 64 / 8 ^ row % 8;
    to[column / 64 * kTerms + row][unit * 8 + column % 8] = from[k];
  }
}

template <class T, Layout kLayout>
__device__ void Multiply(WarpgroupMistake mistake, const Shared& shared,
                         float (&sums)[4][4][4]) {
  constexpr int kStep = kLayout == Layout::kRows ? 32 : 16 * kRowBytes;
  const SharedAddress left = cuda::SharedAddressOf(shared.left);
  SharedAddress right = cuda::SharedAddressOf(shared.right);
  if (mistake == WarpgroupMistake::kOutside) right += 8192;
  const uint64_t none =
      mistake == WarpgroupMistake::kNoSwizzle ? uint64_t{1} << 62 : 0;
  if (mistake != WarpgroupMistake::kNoFence) cuda::WarpgroupFence();
  for (int k = 0; k < 4; ++k) {
    cuda::WarpgroupMultiply<kLayout>(
        T{}, MatrixDescriptor(left + k * kStep, kHalf, 1024),
        MatrixDescriptor(right + k * kStep, kHalf, 1024) ^ none, k > 0, sums);
  }
  cuda::WarpgroupCommit();
}

template <class T>
__global__ void ProductKernel(WarpgroupMistake mistake, bool rows,
                              const uint16_t* left, const uint16_t* right,
                              float* out) {
  BK_SHARED(Shared, shared);
  const int warp = ThreadIndex() / 32, lane = ThreadIndex() % 32;
  Store(shared.left, left, 64, 64);
  Store(shared.right, right, rows ? 128 : 64, rows ? 64 : 128);
  if (mistake != WarpgroupMistake::kNoProxyFence) cuda::FenceAsyncProxy();
  __syncthreads();
  float sums[4][4][4];
  const bool absent =
      (mistake == WarpgroupMistake::kWarpMissing && warp == 3) ||
      (mistake == WarpgroupMistake::kLaneMissing && lane == 31);
  if (!absent && rows) {
    Multiply<T, Layout::kRows>(mistake, shared, sums);
  } else if (!absent) {
    Multiply<T, Layout::kColumns>(mistake, shared, sums);
  }
  const bool early = mistake == WarpgroupMistake::kReadSumsEarly;
  if (mistake == WarpgroupMistake::kWriteSumsEarly) sums[0][0][0] = 0;
  if (mistake == WarpgroupMistake::kStoreOperands) shared.left[lane][0] = 0;
  const float first = sums[0][0][0];
  if (mistake != WarpgroupMistake::kNoWait) cuda::WarpgroupWait<0>();
  for (int k = 0; k < 64; ++k) {
    const int i = k / 16, j = k / 4 % 4, e = k % 4;
    const int row = 16 * warp + lane / 4 + 8 * (e / 2);
    const int column = 32 * i + 8 * j + 2 * (lane % 4) + e % 2;
    out[row * 128 + column] = early && k == 0 ? first : sums[i][j][e];
  }
}

}  // namespace

cudaError_t WarpgroupProduct(WarpgroupMistake mistake, bool float16, bool rows,
                             const uint16_t* left, const uint16_t* right,
                             float* out) {
  const auto kernel =
      float16 ? &ProductKernel<Float16> : &ProductKernel<BFloat16>;
  return cuda::Launch(kernel, 1, kThreads, nullptr, mistake, rows, left, right,
                      out);
}

}  // namespace bk::broken
