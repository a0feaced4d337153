#include "tests/cuda_on_cpu/broken_tiles.h"

#include "custom_calls/cuda/instructions.cuh"

namespace bk::broken {
namespace {

using cuda::SharedAddress;
using cuda::SharedAddressOf;
using cuda::ThreadIndex;

__global__ void MultiplyKernel(Format format, const uint32_t* left,
                               const uint32_t* right, float* sums) {
  const int lane = ThreadIndex();
  uint32_t a[4], b[2];
  float c[4];
  for (int i = 0; i < 4; ++i) a[i] = left[4 * lane + i];
  for (int i = 0; i < 2; ++i) b[i] = right[2 * lane + i];
  for (int i = 0; i < 4; ++i) c[i] = sums[4 * lane + i];
  if (format == Format::kBFloat16) {
    cuda::Multiply(BFloat16{}, a, b, c);
  } else if (format == Format::kFloat16) {
    cuda::Multiply(Float16{}, a, b, c);
  } else {
    cuda::Multiply(cuda::Tf32{}, a, b, c);
  }
  for (int i = 0; i < 4; ++i) sums[4 * lane + i] = c[i];
}

struct alignas(16) Rows {
  uint32_t words[32][4];
};

__global__ void LoadKernel(bool transposed, const uint32_t* rows,
                           uint32_t* out) {
  BK_SHARED(Rows, shared);
  const int lane = ThreadIndex();
  for (int i = 0; i < 4; ++i) shared.words[lane][i] = rows[4 * lane + i];
  __syncwarp();
  uint32_t to[4];
  const SharedAddress row = SharedAddressOf(shared.words[lane]);
  if (transposed) {
    cuda::LoadMatrices<true>(row, to);
  } else {
    cuda::LoadMatrices<false>(row, to);
  }
  for (int i = 0; i < 4; ++i) out[4 * lane + i] = to[i];
}

struct alignas(16) Bytes {
  char at[16];
};

__global__ void CopyKernel(int size, int bytes, const char* in, char* out) {
  BK_SHARED(Bytes, shared);
  const SharedAddress to = SharedAddressOf(shared.at);
  if (size == 4) cuda::CopyAsync<4>(to, in, bytes);
  if (size == 8) cuda::CopyAsync<8>(to, in, bytes);
  if (size == 16) cuda::CopyAsync<16>(to, in, bytes);
  cuda::CommitCopies();
  cuda::WaitForCopies<0>();
  for (int i = 0; i < size; ++i) out[i] = shared.at[i];
}

// The product: chunks of 64 columns in two stages, rows of 128 bytes. The 16
// bytes `part` of a row lie at part ^ row % 8, so that 8 rows are in 8 places.
constexpr int kLeft = 32, kRight = 16, kChunk = 64, kStages = 2;
constexpr int kThreads = 64;
constexpr int kParts = 8;

struct alignas(1024) Stage {
  uint16_t rows[kLeft + kRight][kChunk];
};
struct Shared {
  Stage stages[kStages];
  float turned[kLeft];
};

__device__ int Swizzled(TileMistake mistake, int row, int part) {
  return mistake == TileMistake::kNoSwizzle ? part : part ^ (row % kParts);
}

__device__ SharedAddress AddressOf(TileMistake mistake, const Stage& stage,
                                   int row, int part) {
  const int unit = Swizzled(mistake, row, part);
  return SharedAddressOf(&stage.rows[row][int64_t{8} * unit]);
}

__device__ void Copy(TileMistake mistake, int depth, const uint16_t* left,
                     const uint16_t* right, int chunk, Stage& stage) {
  const bool shifted = mistake == TileMistake::kMisalignedTarget;
  for (int k = ThreadIndex(); k < (kLeft + kRight) * kParts; k += kThreads) {
    const int row = k / kParts, part = k % kParts;
    if (mistake == TileMistake::kRowUnset && row == 3) continue;
    const uint16_t* from =
        (row < kLeft ? left + int64_t{row} * depth
                     : right + int64_t{row - kLeft} * depth) +
        (int64_t{chunk} * kChunk + int64_t{8} * part);
    if (mistake == TileMistake::kMisalignedSource) from += 1;
    const SharedAddress to =
        AddressOf(mistake, stage, row, part) + (shifted ? 2 : 0);
    cuda::CopyAsync<16>(to, from, 16);
  }
}

__device__ void Add(TileMistake mistake, const Stage& stage,
                    float (&sums)[2][4]) {
  const int lane = ThreadIndex() % 32, warp = ThreadIndex() / 32;
  for (int k = 0; k < kChunk / 16; ++k) {
    const int matrix = lane / 8;
    // Left: rows 0-7 and 8-15 of the first half of k, then of the second.
    const int a_row = 16 * warp + matrix % 2 * 8 + lane % 8;
    SharedAddress a_at = AddressOf(mistake, stage, a_row, 2 * k + matrix / 2);
    if (mistake == TileMistake::kMisalignedRow && lane == 9) a_at += 2;
    if (mistake == TileMistake::kRowOutside && lane == 9) a_at += 1 << 16;
    // Right: both halves of k for columns 0-7, then for 8-15.
    const int b_row = kLeft + matrix / 2 * 8 + lane % 8;
    const SharedAddress b_at =
        AddressOf(mistake, stage, b_row, 2 * k + matrix % 2);
    uint32_t a[4], b[4];
    if (mistake != TileMistake::kLaneMissingAtLoad || lane != 31) {
      cuda::LoadMatrices<false>(a_at, a);
    }
    cuda::LoadMatrices<false>(b_at, b);
    for (int half = 0; half < 2; ++half) {
      const uint32_t columns[2] = {b[half == 0 ? 0 : 2], b[half == 0 ? 1 : 3]};
      if (mistake == TileMistake::kLaneMissingAtProduct && lane == 31) continue;
      cuda::Multiply(BFloat16{}, a, columns, sums[half]);
    }
  }
}

__device__ void Wait(TileMistake mistake) {
  if (mistake == TileMistake::kNoWait) return;
  if (mistake == TileMistake::kWaitForFewer) {
    cuda::WaitForCopies<2>();
  } else {
    cuda::WaitForCopies<1>();
  }
}

__device__ void Finish(TileMistake mistake, const float (&sums)[2][4],
                       Shared& shared, float* out) {
  const int lane = ThreadIndex() % 32, warp = ThreadIndex() / 32;
  for (int k = 0; k < 8; ++k) {
    const int row = 16 * warp + lane / 4 + k % 4 / 2 * 8;
    const int column = k / 4 * 8 + lane % 4 * 2 + k % 2;
    out[row * kRight + column] = sums[k / 4][k % 4];
  }
  if (warp == 1) return;
  shared.turned[lane] = sums[0][0];
  if (mistake == TileMistake::kShuffleForBarrier) {
    __shfl_sync(~0u, lane, 0);
  } else {
    __syncwarp();
  }
  const int other = lane ^ 1;  // stores the first sum of its neighbour again
  out[other / 4 * kRight + other % 4 * 2] = shared.turned[other];
  if (mistake == TileMistake::kColumnStores) {
    auto* column = reinterpret_cast<float*>(shared.stages[0].rows);
    column[int64_t{32} * lane] = sums[0][0];
  }
}

__global__ void ProductKernel(TileMistake mistake, int depth, uint16_t* left,
                              const uint16_t* right, float* out) {
  BK_DYNAMIC_SHARED(Shared, shared);
  const int chunks = depth / kChunk;
  float sums[2][4] = {};
  Copy(mistake, depth, left, right, 0, shared.stages[0]);
  if (mistake != TileMistake::kNoCommit) cuda::CommitCopies();
  for (int chunk = 0; chunk < chunks; ++chunk) {
    const bool last = chunk + 1 == chunks;
    if (!last || mistake == TileMistake::kCopiesLeft) {
      Copy(mistake, depth, left, right, last ? 0 : chunk + 1,
           shared.stages[(chunk + 1) % kStages]);
    }
    if (mistake == TileMistake::kSourceWritten && ThreadIndex() == 0) {
      left[int64_t{chunk} * kChunk] = 0;
    }
    if (mistake == TileMistake::kStoreUnderCopy && !last) {
      shared.stages[(chunk + 1) % kStages].rows[ThreadIndex() / 8][0] = 0;
    }
    if (mistake != TileMistake::kNoCommit) cuda::CommitCopies();
    Wait(mistake);
    const bool skips = mistake == TileMistake::kNoBarrierAfterWait && chunk > 0;
    if (!skips) __syncthreads();
    Add(mistake, shared.stages[chunk % kStages], sums);
    if (mistake != TileMistake::kNoBarrierBeforeCopy || last) __syncthreads();
  }
  Finish(mistake, sums, shared, out);
}

}  // namespace

cudaError_t MultiplyOnce(Format format, const uint32_t* left,
                         const uint32_t* right, float* sums) {
  return cuda::Launch(MultiplyKernel, 1, 32, nullptr, format, left, right,
                      sums);
}

cudaError_t LoadOnce(bool transposed, const uint32_t* rows, uint32_t* out) {
  return cuda::Launch(LoadKernel, 1, 32, nullptr, transposed, rows, out);
}

cudaError_t CopyOnce(int size, int bytes, const char* in, char* out) {
  return cuda::Launch(CopyKernel, 1, 1, nullptr, size, bytes, in, out);
}

cudaError_t StreamedProduct(TileMistake mistake, int depth, uint16_t* left,
                            const uint16_t* right, float* out) {
  const int shared = static_cast<int>(sizeof(Shared)) -
                     (mistake == TileMistake::kAskedForTooLittle ? 1024 : 0);
  return cuda::LaunchWithShared(ProductKernel, 1, kThreads, shared, nullptr,
                                mistake, depth, left, right, out);
}

}  // namespace bk::broken
