// The instructions of AMX in the kernels: emulated, or on a CPU that has them
// for real. Results must be those of tiles in ordinary code, bit by bit.
#include <cstdint>
#include <thread>

#include "custom_calls/cpu/amx/amx_support.h"
#include "custom_calls/cpu/dense/clipped_gemm.h"
#include "custom_calls/cpu/dense/ghost_norm.h"
#include "custom_calls/cpu/dense/per_sample_grad.h"
#include "gtest/gtest.h"
#include "tests/custom_calls/amx_emulator.h"
#include "tests/custom_calls/norm_cases.h"
#include "tests/custom_calls/test_data.h"

namespace bk {

extern const TileKernels kAmxInstructions;

namespace {

class AmxInstructionsTest : public testing::Test {
 protected:
  AmxInstructionsTest()
      : amx_(
            WithTiles("amx_instructions", kBaselineKernels, kAmxInstructions)) {
    if (!WhyNoAmx(FindAmxFacts()).empty()) EmulateAmx();
  }
  bool emulated_ = !WhyNoAmx(FindAmxFacts()).empty();
  CpuKernels amx_;
  SerialParallel serial_;
  Random random_{20221001};
};

// Ordinary numbers, and a wide range with denormal ones.
Array<BFloat16> Numbers(Random& random, int64_t size) {
  std::uniform_int_distribution<int> exponent(-140, 0);
  Array<BFloat16> x = Normals<BFloat16>(random, size);
  for (int64_t k = 0; k < size; k += 3) {
    x[k] = reference::FromDouble<BFloat16>(
        std::ldexp(reference::ToDouble(x[k]), exponent(random)));
  }
  return x;
}

// Around tiles (16), blocks and steps (32), the depth of Gram sums (128).
const DenseShape kShapes[] = {{2, 1, 32, 16, 32},  {1, 2, 33, 1, 17},
                              {1, 1, 47, 129, 31}, {1, 1, 97, 33, 49},
                              {1, 1, 330, 5, 3},   {1, 1, 40, 530, 0}};

TEST_F(AmxInstructionsTest, GhostNorm) {
  for (const DenseShape& shape : kShapes) {
    const auto a = Numbers(random_, Rows(shape) * shape.d);
    const auto g = Numbers(random_, Rows(shape) * shape.p);
    float norm[2], upper[2], expected[2], expected_upper[2];
    GhostNorm(amx_, serial_, shape, a.data(), g.data(), norm, upper);
    GhostNorm(SoftTiles(), serial_, shape, a.data(), g.data(), expected,
              expected_upper);
    for (int64_t i = 0; i < shape.batch; ++i) {
      EXPECT_EQ(norm[i], expected[i]);
      EXPECT_EQ(upper[i], expected_upper[i]);
    }
  }
}

TEST_F(AmxInstructionsTest, PerSampleGrad) {
  for (const DenseShape& shape : kShapes) {
    const auto a = Numbers(random_, Rows(shape) * shape.d);
    const auto g = Numbers(random_, Rows(shape) * shape.p);
    const int64_t size = shape.batch * shape.weights * shape.d * shape.p;
    Array<float> grad(size), expected(size);
    float norm[2], upper[2];
    PerSampleGrad(SoftTiles(), serial_, shape, a.data(), g.data(),
                  expected.data(), norm, upper);
    PerSampleGrad(amx_, serial_, shape, a.data(), g.data(), grad.data(), norm,
                  upper);
    for (int64_t k = 0; k < size; ++k) ASSERT_EQ(grad[k], expected[k]);
  }
}

TEST_F(AmxInstructionsTest, ClippedGemm) {
  const ClippedGemmShape shape = {3, 1, 35, 50, 33};
  const auto lhs = Numbers(random_, int64_t{3} * 35 * 50);
  const auto rhs = Numbers(random_, int64_t{3} * 35 * 33);
  const float factor[] = {0.3F, 0, 0.7F};
  Array<float> sum(int64_t{50} * 33), expected(int64_t{50} * 33);
  ClippedGemm(amx_, serial_, shape, lhs.data(), factor, rhs.data(), sum.data());
  ClippedGemm(SoftTiles(), serial_, shape, lhs.data(), factor, rhs.data(),
              expected.data());
  for (int64_t k = 0; k < sum.size(); ++k) ASSERT_EQ(sum[k], expected[k]);
}

// Steps of 32 products over 64 features, two by two tiles for 32 positions.
// Every configuration is released, on the thread that made it.
TEST_F(AmxInstructionsTest, NoInstructionTooMany) {
  if (!emulated_) GTEST_SKIP() << "this CPU has AMX: nothing is counted";
  const auto a = Integers<BFloat16>(random_, int64_t{32} * 64);
  std::thread([&] {
    float norm, upper;
    GhostNorm(amx_, serial_, {1, 1, 32, 64, 64}, a.data(), a.data(), &norm,
              &upper);
    const AmxCounts counts = TakeAmxCounts();
    EXPECT_EQ(counts.configure, 2);  // one for each Gram matrix
    EXPECT_EQ(counts.release, 2);
    EXPECT_EQ(counts.zero, 2 * 4);
    EXPECT_EQ(counts.load, 2 * 2 * 4);
    EXPECT_EQ(counts.dot, 2 * 2 * 4);
    EXPECT_EQ(counts.store, 2 * 4);
    EXPECT_FALSE(AmxIsConfigured());
  }).join();
}

}  // namespace
}  // namespace bk
