// What every kernel allocates: scratch of a fixed size per thread and a few
// numbers per tile or token, however large the layer.
#include <atomic>
#include <cstdlib>
#include <new>
#include <thread>
#include <vector>

#include "custom_calls/cpu/conv/conv_grad.h"
#include "custom_calls/cpu/dense/clip_factor.h"
#include "custom_calls/cpu/dense/clipped_gemm.h"
#include "custom_calls/cpu/dense/direct_norm.h"
#include "custom_calls/cpu/dense/ghost_norm.h"
#include "custom_calls/cpu/dense/per_sample_grad.h"
#include "custom_calls/cpu/dense/weighted_sum.h"
#include "custom_calls/cpu/noise/banded_gaussian.h"
#include "custom_calls/cpu/noise/gaussian.h"
#include "custom_calls/cpu/sparse/clipped_scatter.h"
#include "custom_calls/cpu/sparse/embedding_norm.h"
#include "custom_calls/cpu/sparse/tied_cross.h"
#include "gtest/gtest.h"
#include "tests/custom_calls/far_memory.h"
#include "tests/custom_calls/lookup_data.h"
#include "tests/custom_calls/test_data.h"

namespace {

std::atomic<int64_t> allocated{0};

void* Count(std::size_t bytes, std::size_t alignment) {
  allocated += static_cast<int64_t>(bytes);
  const std::size_t rounded = (bytes + alignment - 1) / alignment * alignment;
  void* data = std::aligned_alloc(alignment, rounded);
  if (data == nullptr) throw std::bad_alloc();
  return data;
}

}  // namespace

void* operator new(std::size_t bytes) { return Count(bytes, 16); }
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return Count(bytes, static_cast<std::size_t>(alignment));
}
void operator delete(void* data) noexcept { std::free(data); }
void operator delete(void* data, std::size_t) noexcept { std::free(data); }
void operator delete(void* data, std::align_val_t) noexcept { std::free(data); }
void operator delete(void* data, std::size_t, std::align_val_t) noexcept {
  std::free(data);
}

namespace bk {
namespace {

// Bytes that `call` allocates on a thread that has no scratch yet.
template <class Call>
int64_t AllocatedBy(Call&& call) {
  int64_t bytes = 0;
  std::thread([&] {
    const int64_t before = allocated;
    call();
    bytes = allocated - before;
  }).join();
  return bytes;
}

class ScratchTest : public IsaTest {};
BK_INSTANTIATE_FOR_EACH_ISA(ScratchTest);

// One megabyte: less than one gradient (4 MB), one Gram matrix of the larger
// case (1.2 MB in double) or the operands (3 MB).
TEST_P(ScratchTest, IsOneMegabytePerThreadHoweverLargeTheLayer) {
  constexpr int64_t kLimit = 1 << 20;
  for (int64_t positions : {20, 390}) {
    const DenseShape shape = {1, 1, positions, 1000, 1000};
    const ClippedGemmShape gemm = {1, 1, positions, 1000, 1000};
    const Array<float> a = Normals<float>(random_, positions * 1000);
    Array<float> sum(int64_t{1000} * 1000);
    float factor = 1, norm = 0, upper = 0;
    EXPECT_LT(AllocatedBy([&] {
                GhostNorm(kernels(), serial_, shape, a.data(), a.data(), &norm,
                          &upper);
              }),
              kLimit);
    EXPECT_LT(AllocatedBy([&] {
                DirectNorm(kernels(), serial_, shape, a.data(), a.data(), &norm,
                           &upper);
              }),
              kLimit);
    EXPECT_LT(AllocatedBy([&] {
                PerSampleGrad(kernels(), serial_, shape, a.data(), a.data(),
                              sum.data(), &norm, &upper);
              }),
              kLimit);
    EXPECT_LT(AllocatedBy([&] {
                ClippedGemm(kernels(), serial_, gemm, a.data(), &factor,
                            a.data(), sum.data());
              }),
              kLimit);
    EXPECT_LT(AllocatedBy([&] {
                WeightedSum(kernels(), serial_, {1, positions * 1000}, &factor,
                            a.data(), sum.data());
              }),
              kLimit / 1000);
  }
}

// The same for bfloat16 in tiles.
TEST(TileScratchTest, IsOneMegabytePerThreadHoweverLargeTheLayer) {
  constexpr int64_t kLimit = 1 << 20, kPositions = 390;
  const DenseShape shape = {1, 1, kPositions, 300, 300};
  const ClippedGemmShape gemm = {1, 1, kPositions, 300, 300};
  SerialParallel serial;
  Random random;
  const auto a = Integers<BFloat16>(random, kPositions * 300);
  Array<float> sum(int64_t{300} * 300);
  float factor = 1, norm = 0, upper = 0;
  EXPECT_LT(AllocatedBy([&] {
              GhostNorm(SoftTiles(), serial, shape, a.data(), a.data(), &norm,
                        &upper);
            }),
            kLimit);
  EXPECT_LT(AllocatedBy([&] {
              DirectNorm(SoftTiles(), serial, shape, a.data(), a.data(), &norm,
                         &upper);
            }),
            kLimit);
  EXPECT_LT(AllocatedBy([&] {
              ClippedGemm(SoftTiles(), serial, gemm, a.data(), &factor,
                          a.data(), sum.data());
            }),
            kLimit);
}

// The operands have 8 MB.
TEST_P(ScratchTest, OfConvolutionsIsOneMegabytePerThread) {
  constexpr int64_t kLimit = 1 << 20;
  const ConvShape shape = {2,         1,         {1, 64, 64}, {1, 64, 64},
                           {1, 3, 3}, {1, 1, 1}, {0, 1, 1},   {1, 1, 1},
                           {1, 1, 1}, 1,         128,         128};
  const Array<float> x = Normals<float>(random_, int64_t{2} * 64 * 64 * 128);
  Array<float> grad(int64_t{2} * 9 * 128 * 128);
  const float factor[] = {1, 1};
  float norm[2], upper[2];
  EXPECT_LT(AllocatedBy([&] {
              ConvNorm(kernels(), serial_, shape, x.data(), x.data(), norm,
                       upper);
            }),
            kLimit);
  EXPECT_LT(AllocatedBy([&] {
              ConvGrad(kernels(), serial_, shape, x.data(), x.data(),
                       grad.data(), norm, upper);
            }),
            kLimit);
  EXPECT_LT(AllocatedBy([&] {
              ConvSum(kernels(), serial_, shape, x.data(), factor, x.data(),
                      grad.data());
            }),
            kLimit);
}

// Keys of tokens twice, as sorting needs them, and where rows begin, in a
// vector that grows: at most 48 bytes per token. Gradients have 4000.
TEST_P(ScratchTest, OfLookupsIsAFewNumbersPerToken) {
  const LookupShape shape = {2, 500, 1000, 1000};
  const int64_t tokens = shape.batch * shape.tokens;
  const Array<float> g = Normals<float>(random_, tokens * shape.p);
  const Array<int32_t> ids = Ids(random_, tokens, 0, 999);
  Array<float> table(shape.rows * shape.p);
  const float factor[] = {1, 1};
  float norm[2], upper[2];
  EXPECT_LT(AllocatedBy([&] {
              EmbeddingNorm(kernels(), serial_, shape, ids.data(), g.data(),
                            norm, upper);
            }),
            48 * tokens);
  EXPECT_LT(AllocatedBy([&] {
              ClippedScatter(kernels(), serial_, shape, ids.data(), factor,
                             g.data(), table.data());
            }),
            48 * tokens);
  // The matrix of inner products would have 1 MB.
  EXPECT_LT(AllocatedBy([&] {
              TiedCross(kernels(), serial_, {2, 500, 1000, 500, 1000}, g.data(),
                        g.data(), ids.data(), g.data(), norm, upper);
            }),
            tokens);
}

// What std::function needs for a loop's body.
TEST_P(ScratchTest, OfNoiseAndClipFactorsIsNothing) {
  constexpr NoiseStream kStream = {{1, 2, 3, 4, 5, 6, 7, 8}, 0, kNoiseDomain};
  const int64_t size = 1 << 20, start = 0;
  Array<float> x(size);
  Array<uint32_t> words(size);
  EXPECT_LT(AllocatedBy([&] {
              Gaussian(kernels(), serial_, kStream, {1, &size, &start, &size},
                       x.data(), 1.0F, x.data());
            }),
            256);
  const std::vector<NoiseTerm<float>> terms = {{kStream, 1}, {kStream, -0.5F}};
  EXPECT_LT(AllocatedBy([&] {
              BandedGaussian(kernels(), serial_, terms,
                             {1, &size, &start, &size}, x.data(), x.data());
            }),
            512);
  EXPECT_LT(AllocatedBy([&] {
              ChachaWords(kernels(), serial_, kStream, 0, size, words.data());
            }),
            256);
  const bool is_padding[8] = {};
  float factor[8], norm[8];
  EXPECT_EQ(AllocatedBy([&] {
              ClipFactor({1000, 8}, Clipping::kAbadi, x.data(), 1.0F,
                         is_padding, factor, norm);
            }),
            0);
}

// d * p = 2^64: taking that number for zero would give a norm of zero.
TEST_P(ScratchTest, MoreTilesThanMemoryIsAnErrorAndNotAZeroNorm) {
  const int64_t wide = int64_t{1} << 32;
  const FarArray<BFloat16> a(wide + 1);
  float norm = -1, upper = -1;
  EXPECT_THROW(DirectNorm(kernels(), serial_, {1, 1, 1, wide, wide}, a.data(),
                          a.data(), &norm, &upper),
               std::bad_alloc);
}

}  // namespace
}  // namespace bk
