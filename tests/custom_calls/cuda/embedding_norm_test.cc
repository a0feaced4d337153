// Embedding norms on a device against the definition.
#include "custom_calls/cuda/embedding_norm.h"

#include <cfloat>
#include <cmath>
#include <limits>
#include <vector>

#include "custom_calls/reference/lookup.h"
#include "gtest/gtest.h"
#include "tests/custom_calls/cuda/device_buffer.h"
#include "tests/custom_calls/lookup_data.h"

namespace bk::cuda {
namespace {

template <class T>
struct Norms {
  Norms(const LookupShape& shape, const Array<int32_t>& ids, const Array<T>& g)
      : exact(shape.batch) {
    auto device_ids = DeviceBuffer<int32_t>::Of(ids, "ids");
    auto device_g = DeviceBuffer<T>::Of(g, "g");
    DeviceBuffer<Accumulator<T>> device_norm(shape.batch, "sq_norm");
    DeviceBuffer<Accumulator<T>> device_upper(shape.batch, "sq_norm_upper");
    DeviceBuffer<char> workspace(EmbeddingNormWorkspaceBytes(shape),
                                 "workspace");
    EXPECT_TRUE(Succeeded(EmbeddingNorm(
        shape, device_ids.data(), device_g.data(), device_norm.data(),
        device_upper.data(), workspace.data(), nullptr)));
    sq_norm = device_norm.Get();
    upper = device_upper.Get();
    reference::EmbeddingNorm(shape, ids.data(), g.data(), exact.data());
  }
  std::vector<Accumulator<T>> sq_norm, upper;
  std::vector<long double> exact;
};

class EmbeddingNormTest : public DeviceTest {
 protected:
  Random random_{20221001};
};

// Around the eight tokens in flight, the 256 keys of a tile, merges of two,
// three and five tiles, and the 128 columns of a block.
TEST_F(EmbeddingNormTest, ExactOnSmallIntegers) {
  const std::vector<std::pair<int64_t, int64_t>> sizes = {
      {0, 5},   {1, 1},   {7, 0},   {9, 129},
      {256, 3}, {257, 2}, {700, 1}, {1100, 2}};
  ForEachElementType([&](auto element) {
    using T = decltype(element);
    for (const auto& [tokens, p] : sizes) {
      SCOPED_TRACE(testing::Message() << "T, p = " << tokens << ", " << p);
      const LookupShape shape = {2, tokens, p, 0};
      const auto ids = Ids(random_, 2 * tokens, -1, 20);
      const auto g = Integers<T>(random_, 2 * tokens * p);
      const Norms<T> norms(shape, ids, g);
      for (int i = 0; i < 2; ++i) {
        ASSERT_EQ(norms.sq_norm[i],
                  static_cast<Accumulator<T>>(norms.exact[i]));
        ASSERT_GE(static_cast<long double>(norms.upper[i]), norms.exact[i]);
      }
    }
  });
}

// More examples than threads of the last kernel, and fewer blocks than items.
TEST_F(EmbeddingNormTest, ManyExamplesOnFewBlocks) {
  device::LimitBlocks(2);
  const LookupShape shape = {130, 3, 2, 0};
  const auto ids = Ids(random_, 390, -1, 2);
  const auto g = Integers<float>(random_, 780);
  const Norms<float> norms(shape, ids, g);
  for (int i = 0; i < 130; ++i) {
    ASSERT_EQ(norms.sq_norm[i], static_cast<float>(norms.exact[i]));
  }
}

TEST_F(EmbeddingNormTest, LargeIdsAreSortedByAllTheirBytes) {
  const int32_t large[] = {
      0, 255, 256, 65535, 65536, 1 << 24, std::numeric_limits<int32_t>::max()};
  Array<int32_t> ids(280);
  for (int64_t t = 0; t < 280; ++t) ids[t] = large[t * 5 % 7];
  const auto g = Filled<float>(280, [] { return 1.0; });
  EXPECT_EQ(Norms<float>({1, 280, 1, 0}, ids, g).sq_norm[0], 7 * 40 * 40);
}

// Sums are made in double: the bound of a float result is one float away.
TEST_F(EmbeddingNormTest, BoundHoldsAndIsTight) {
  const LookupShape shape = {3, 300, 33, 0};
  const auto ids = Ids(random_, 900, 0, 9);
  const auto g = Normals<float>(random_, int64_t{900} * 33, 1e-3);
  const Norms<float> norms(shape, ids, g);
  for (int i = 0; i < 3; ++i) {
    EXPECT_GE(static_cast<long double>(norms.upper[i]), norms.exact[i]);
    EXPECT_LE(norms.upper[i], std::nextafter(norms.sq_norm[i], HUGE_VALF));
  }
}

TEST_F(EmbeddingNormTest, UnreadTokensAreNotReadAndBadOnesSpoilTheirExample) {
  const LookupShape shape = {3, 70, 9, 0};
  ForEachElementType([&](auto element) {
    using T = decltype(element);
    auto ids = Ids(random_, 210, 0, 9);
    auto g = Integers<T>(random_, 210 * 9);
    ids[100] = -5;
    const Norms<T> clean(shape, ids, g);
    g[100 * 9 + 8] = reference::FromDouble<T>(std::nan(""));
    EXPECT_EQ(Norms<T>(shape, ids, g).upper, clean.upper);
    ids[100] = 7;
    const Norms<T> bad(shape, ids, g);
    for (int i : {0, 2}) EXPECT_EQ(bad.upper[i], clean.upper[i]);
    EXPECT_FALSE(std::isfinite(bad.sq_norm[1]));
    EXPECT_FALSE(std::isfinite(bad.upper[1]));
  });
}

TEST_F(EmbeddingNormTest, ZeroIsZeroAndTinyIsNot) {
  const LookupShape shape = {1, 3, 5, 0};
  const auto ids = Ids(random_, 3, 4, 4);
  Array<float> g(15);
  EXPECT_EQ(Norms<float>(shape, ids, g).upper[0], 0);
  g[14] = FLT_TRUE_MIN;
  EXPECT_GE(Norms<float>(shape, ids, g).upper[0], FLT_MIN);
  Array<double> wide(15);
  EXPECT_EQ(Norms<double>(shape, ids, wide).upper[0], 0);
  wide[14] = DBL_TRUE_MIN;
  EXPECT_GE(Norms<double>(shape, ids, wide).upper[0], DBL_MIN);
}

// Pairs that nearly cancel, all magnitudes, repeated ids: one example each.
TEST_F(EmbeddingNormTest, NeverBelowOnManySmallCases) {
  std::uniform_real_distribution<double> exponent(-44, 18);
  std::normal_distribution<double> normal;
  const LookupShape shape = {400, 6, 2, 0};
  const auto ids = Ids(random_, 6 * shape.batch, 0, 2);
  Array<float> g(12 * shape.batch);
  for (int64_t k = 0; k < g.size(); k += 4) {
    const double scale = std::pow(10, exponent(random_));
    for (int64_t j : {k, k + 1}) {
      g[j] = static_cast<float>(scale * normal(random_));
      g[j + 2] = -g[j] * static_cast<float>(1 + 1e-7 * normal(random_));
    }
  }
  const Norms<float> norms(shape, ids, g);
  int64_t below = 0;
  for (int64_t i = 0; i < shape.batch; ++i) {
    below += static_cast<long double>(norms.upper[i]) < norms.exact[i] ? 1 : 0;
  }
  EXPECT_EQ(below, 0) << "of " << shape.batch;
}

}  // namespace
}  // namespace bk::cuda
