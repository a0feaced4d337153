// Noise that combines the draws of several keys, against the draws one by one.
#include "custom_calls/cpu/noise/banded_gaussian.h"

#include <cmath>
#include <vector>

#include "custom_calls/cpu/noise/gaussian.h"
#include "gtest/gtest.h"
#include "tests/custom_calls/test_data.h"

namespace bk {
namespace {

template <class T>
std::vector<NoiseTerm<T>> Terms(const std::vector<T>& scales) {
  std::vector<NoiseTerm<T>> terms;
  for (uint32_t k = 0; k < scales.size(); ++k) {
    terms.push_back({{{k, 2, 3, 4, 5, 6, 7, 8}, 9, kNoiseDomain}, scales[k]});
  }
  return terms;
}

template <class T>
const std::vector<T> kScales = {T(1.5), T(-0.7), T(0), T(0.1), T(-0.01)};

class BandedGaussianTest : public IsaTest {
 protected:
  // What the header says, with a pass over the array for each draw.
  template <class T>
  Array<T> DrawByDraw(const std::vector<NoiseTerm<T>>& terms,
                      const BlockShape& shape, const Array<T>& x) {
    Array<T> noise(x.size());
    for (const NoiseTerm<T>& term : terms) {
      Gaussian<T>(kernels(), serial_, term.stream, shape, noise.data(),
                  term.scale, noise.data());
    }
    for (int64_t i = 0; i < x.size(); ++i) noise[i] = x[i] + noise[i];
    return noise;
  }

  template <class T>
  void ExpectDrawByDraw(const BlockShape& shape, Parallel& parallel) {
    int64_t size = 1;
    for (int64_t k = 0; k < shape.rank; ++k) size *= shape.size[k];
    auto x = Normals<T>(random_, size);
    const auto terms = Terms<T>(kScales<T>);
    const auto expected = DrawByDraw(terms, shape, x);
    Array<T> out(size);
    BandedGaussian(kernels(), parallel, terms, shape, x.data(), out.data());
    for (int64_t i = 0; i < size; ++i) ASSERT_EQ(out[i], expected[i]) << i;
    BandedGaussian(kernels(), parallel, terms, shape, x.data(), x.data());
    for (int64_t i = 0; i < size; ++i) ASSERT_EQ(x[i], expected[i]) << i;
  }
};
BK_INSTANTIATE_FOR_EACH_ISA(BandedGaussianTest);

TEST_P(BandedGaussianTest, IsTheSumOfItsDraws) {
  const int64_t zero = 0;
  for (int64_t size : {0, 1, 7, 255, 256, 257, 1023, 1024, 1025, 40000}) {
    ExpectDrawByDraw<float>({1, &size, &zero, &size}, serial_);
    ExpectDrawByDraw<double>({1, &size, &zero, &size}, serial_);
  }
}

TEST_P(BandedGaussianTest, BlocksArePartsOfTheWholeArray) {
  const int64_t size[] = {2, 3, 1100};
  const int64_t start[] = {1, 2, 57};
  const int64_t whole[] = {4, 6, 2000};
  ExpectDrawByDraw<float>({3, size, start, whole}, serial_);
  ExpectDrawByDraw<double>({3, size, start, whole}, serial_);
}

TEST_P(BandedGaussianTest, SameBitsForAnyNumberOfThreads) {
  const int64_t size[] = {3, 40000};
  const int64_t start[] = {0, 0};
  for (int threads : {2, 5}) {
    StripedParallel striped(threads);
    ExpectDrawByDraw<float>({2, size, start, size}, striped);
  }
}

TEST_P(BandedGaussianTest, WithoutNoiseNothingChanges) {
  const int64_t size = 3, zero = 0;
  const float x[] = {-0.0F, 1.0F, 1e-42F};
  float out[3] = {};
  for (const auto& terms : {Terms<float>({}), Terms<float>({0, 0})}) {
    BandedGaussian(kernels(), serial_, terms, {1, &size, &zero, &size}, x, out);
    EXPECT_TRUE(std::signbit(out[0]));
    EXPECT_EQ(out[1], 1.0F);
    EXPECT_EQ(out[2], 1e-42F);
  }
}

}  // namespace
}  // namespace bk
