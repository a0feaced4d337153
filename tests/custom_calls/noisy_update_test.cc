// Noise and update in one pass, against the same in steps: what optimizers do,
// op by op, with the noise of the gaussian kernel.
#include "custom_calls/cpu/noise/noisy_update.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "custom_calls/cpu/float_environment.h"
#include "gtest/gtest.h"
#include "tests/custom_calls/test_data.h"

namespace bk {
namespace {

constexpr NoiseStream kStream = {{1, 2, 3, 4, 5, 6, 7, 8}, 0, kNoiseDomain};
constexpr Optimizer kOptimizers[] = {Optimizer::kSgd, Optimizer::kMomentum,
                                     Optimizer::kNesterov, Optimizer::kAdam,
                                     Optimizer::kAdamW};

// In small integers and powers of two, where every step is exact.
constexpr UpdateNumbers kExact = {.stddev = 0,
                                  .scale = 0.5F,
                                  .step = -0.5F,
                                  .decay = 0.5F,
                                  .gain = 0.5F,
                                  .second_decay = 0.75F,
                                  .second_gain = 0.25F,
                                  .unbias = 2,
                                  .second_unbias = 4,
                                  .epsilon_root = 0,
                                  .epsilon = 1,
                                  .weight_decay = 0.25F};
constexpr UpdateNumbers kOrdinary = {.stddev = 0.7F,
                                     .scale = 0.3F,
                                     .step = -0.01F,
                                     .decay = 0.9F,
                                     .gain = 0.1F,
                                     .second_decay = 0.999F,
                                     .second_gain = 0.001F,
                                     .unbias = 5.2F,
                                     .second_unbias = 500.3F,
                                     .epsilon_root = 1e-12F,
                                     .epsilon = 1e-8F,
                                     .weight_decay = 0.1F};

// A parameter, its sum, and moments; the second ones are not negative.
struct Leaf {
  Leaf(Random& random, int64_t size)
      : sum(Normals<float>(random, size)),
        updated{Normals<float>(random, size), Normals<float>(random, size),
                Normals<float>(random, size)} {
    for (int64_t i = 0; i < size; ++i) updated[2][i] = std::fabs(updated[2][i]);
  }
  UpdateArray InPlace(uint32_t stream) {
    UpdateArray array = {stream, sum.size(), sum.data(), {}, {}};
    for (int64_t k = 0; k < kMaxUpdated; ++k) {
      array.from[k] = array.to[k] = updated[k].data();
    }
    return array;
  }
  Array<float> sum;
  std::vector<Array<float>> updated;
};

// One value after the other.
float Moved(Optimizer optimizer, const UpdateNumbers& n, float g, float x,
            float* m, float* v) {
  if (optimizer == Optimizer::kSgd) return x + n.step * g;
  if (Updated(optimizer) == 2) {
    *m = g + n.decay * *m;
    return x +
           n.step * (optimizer == Optimizer::kMomentum ? *m : g + n.decay * *m);
  }
  *m = n.gain * g + n.decay * *m;
  *v = n.second_gain * (g * g) + n.second_decay * *v;
  float u = (n.unbias * *m) /
            (std::sqrt(n.second_unbias * *v + n.epsilon_root) + n.epsilon);
  if (optimizer == Optimizer::kAdamW) u = u + n.weight_decay * x;
  return x + n.step * u;
}

void InSteps(Optimizer optimizer, const UpdateNumbers& n, uint32_t stream,
             Leaf& leaf) {
  Array<float> noisy = leaf.sum;
  NoiseStream own = kStream;
  own.stream = stream;
  if (n.stddev != 0) {
    kBaselineKernels.f32.gaussian(
        {own, n.stddev, 0, noisy.size(), noisy.data(), noisy.data()});
  }
  Array<float>& x = leaf.updated[0];
  Array<float>& m = leaf.updated[1];
  Array<float>& v = leaf.updated[2];
  for (int64_t i = 0; i < noisy.size(); ++i) {
    x[i] = Moved(optimizer, n, n.scale * noisy[i], x[i], &m[i], &v[i]);
  }
}

void ExpectSame(const Leaf& found, const Leaf& expected) {
  for (int64_t k = 0; k < kMaxUpdated; ++k) {
    for (int64_t i = 0; i < found.sum.size(); ++i) {
      ASSERT_EQ(found.updated[k][i], expected.updated[k][i]) << k << " " << i;
    }
  }
}

class NoisyUpdateTest : public IsaTest {};
BK_INSTANTIATE_FOR_EACH_ISA(NoisyUpdateTest);

TEST_P(NoisyUpdateTest, SmallNumbers) {
  struct Case {
    Optimizer optimizer;
    float x, m, v;
  };
  // g = 4 / 2 = 2 from x = 3, m = 4, v = 12.
  for (const Case& expected :
       {Case{Optimizer::kSgd, 2, 4, 12}, Case{Optimizer::kMomentum, 1, 4, 12},
        Case{Optimizer::kNesterov, 1, 4, 12},
        // 2 * 3 / (sqrt(4 * 10 + 9) + 1)
        Case{Optimizer::kAdam, 2.625F, 3, 10},
        Case{Optimizer::kAdamW, 2.25F, 3, 10}}) {
    UpdateNumbers numbers = kExact;
    numbers.epsilon_root = 9;
    Leaf leaf(random_, 1);
    leaf.sum[0] = 4;
    leaf.updated[0][0] = 3;
    leaf.updated[1][0] = 4;
    leaf.updated[2][0] = 12;
    NoisyUpdate(kernels(), serial_, kStream, expected.optimizer, numbers,
                {leaf.InPlace(0)});
    EXPECT_EQ(leaf.updated[0][0], expected.x);
    EXPECT_EQ(leaf.updated[1][0], expected.m);
    EXPECT_EQ(leaf.updated[2][0], expected.v);
  }
}

TEST_P(NoisyUpdateTest, SameBitsAsInSteps) {
  for (Optimizer optimizer : kOptimizers) {
    std::vector<Leaf> found, expected;
    std::vector<UpdateArray> arrays;
    for (int64_t size : {0, 1, 3, 7, 8, 9, 15, 16, 17, 255, 256, 257, 1024,
                         1025, 16384, 40000}) {
      found.emplace_back(random_, size);
    }
    expected = found;
    for (uint32_t k = 0; k < found.size(); ++k) {
      arrays.push_back(found[k].InPlace(10 + k));
      InSteps(optimizer, kOrdinary, 10 + k, expected[k]);
    }
    NoisyUpdate(kernels(), serial_, kStream, optimizer, kOrdinary, arrays);
    for (size_t k = 0; k < found.size(); ++k) ExpectSame(found[k], expected[k]);
  }
}

TEST_P(NoisyUpdateTest, SameBitsForAnyNumberOfThreads) {
  for (Optimizer optimizer : kOptimizers) {
    Leaf expected(random_, 50001);
    const Leaf start = expected;
    InSteps(optimizer, kOrdinary, 3, expected);
    for (int threads : {1, 2, 5}) {
      StripedParallel striped(threads);
      Leaf found = start;
      NoisyUpdate(kernels(), striped, kStream, optimizer, kOrdinary,
                  {found.InPlace(3)});
      ExpectSame(found, expected);
    }
  }
}

TEST_P(NoisyUpdateTest, WhatCameInStaysUnlessTheBufferIsShared) {
  for (Optimizer optimizer : kOptimizers) {
    Leaf before(random_, 100), expected = before, after = before;
    for (auto& array : after.updated) std::fill_n(array.data(), 100, -7.F);
    const Leaf untouched = before;
    UpdateArray array = before.InPlace(0);
    for (int64_t k = 0; k < Updated(optimizer); ++k) {
      array.to[k] = after.updated[k].data();
    }
    NoisyUpdate(kernels(), serial_, kStream, optimizer, kOrdinary, {array});
    ExpectSame(before, untouched);
    InSteps(optimizer, kOrdinary, 0, expected);
    for (int64_t k = Updated(optimizer); k < kMaxUpdated; ++k) {
      std::fill_n(expected.updated[k].data(), 100, -7.F);
    }
    ExpectSame(after, expected);
  }
}

TEST_P(NoisyUpdateTest, WithoutArraysNothingHappens) {
  NoisyUpdate(kernels(), serial_, kStream, Optimizer::kSgd, kOrdinary, {});
}

// A momentum that nothing refreshes ends as 0, as in XLA's own code: numbers
// that are not normal would take a hundred times as long.
TEST_P(NoisyUpdateTest, WhatIsTooSmallIsZero) {
  UpdateNumbers numbers = kExact;
  numbers.decay = 0.5F;
  Leaf leaf(random_, 20);
  for (int64_t i = 0; i < 20; ++i) {
    leaf.sum[i] = 0;
    leaf.updated[1][i] = std::numeric_limits<float>::min();
  }
  NoisyUpdate(kernels(), serial_, kStream, Optimizer::kMomentum, numbers,
              {leaf.InPlace(0)});
  for (int64_t i = 0; i < 20; ++i) EXPECT_EQ(leaf.updated[1][i], 0);
}

TEST_P(NoisyUpdateTest, WhatIsNotFiniteIsSeen) {
  Leaf leaf(random_, 20);
  leaf.sum[3] = std::numeric_limits<float>::infinity();
  leaf.sum[5] = std::numeric_limits<float>::quiet_NaN();
  NoisyUpdate(kernels(), serial_, kStream, Optimizer::kMomentum, kOrdinary,
              {leaf.InPlace(0)});
  EXPECT_EQ(leaf.updated[0][3], -std::numeric_limits<float>::infinity());
  EXPECT_TRUE(std::isnan(leaf.updated[0][5]));
  for (int64_t i : {0, 1, 2, 4, 6, 19}) {
    EXPECT_TRUE(std::isfinite(leaf.updated[0][i]));
  }
}

TEST(FloatEnvironmentTest, UnderflowIsAsAskedForAndPutBack) {
  volatile float small = std::numeric_limits<float>::min();
  const auto half = [&] { return small * 0.5F; };
  {
    const ScopedFloatEnvironment flushed(Underflow::kToZero);
    EXPECT_EQ(half(), 0);
    {
      const ScopedFloatEnvironment gradual;
      EXPECT_NE(half(), 0);
    }
    EXPECT_EQ(half(), 0);
  }
  EXPECT_NE(half(), 0);
}

}  // namespace
}  // namespace bk
