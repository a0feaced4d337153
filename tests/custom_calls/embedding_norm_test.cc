// Embedding norm kernels of every instruction set against the definition.
#include "custom_calls/cpu/sparse/embedding_norm.h"

#include <cfloat>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <vector>

#include "custom_calls/cpu/sparse/token_order.h"
#include "custom_calls/reference/lookup.h"
#include "gtest/gtest.h"
#include "tests/custom_calls/lookup_data.h"
#include "tests/custom_calls/tolerance.h"

namespace bk {
namespace {

template <class T>
struct Norms {
  Norms(const CpuKernels& kernels, Parallel& parallel, const LookupShape& shape,
        const Array<int32_t>& ids, const Array<T>& g)
      : sq_norm(shape.batch), upper(shape.batch), exact(shape.batch) {
    EmbeddingNorm(kernels, parallel, shape, ids.data(), g.data(),
                  sq_norm.data(), upper.data());
    reference::EmbeddingNorm(shape, ids.data(), g.data(), exact.data());
  }
  Array<Accumulator<T>> sq_norm;
  Array<Accumulator<T>> upper;
  Array<long double> exact;
};

class EmbeddingNormTest : public IsaTest {};
BK_INSTANTIATE_FOR_EACH_ISA(EmbeddingNormTest);

TEST_P(EmbeddingNormTest, ExactOnSmallIntegers) {
  ForEachElementType([&](auto element) {
    using T = decltype(element);
    for (int64_t p : kLookupWidths) {
      for (int64_t tokens : {0, 1, 2, 5, 40, 70, 300}) {
        if (tokens * p > 70000) continue;
        SCOPED_TRACE(testing::Message() << "T, p = " << tokens << ", " << p);
        const LookupShape shape = {2, tokens, p, 0};
        const auto ids = Ids(random_, 2 * tokens, -1, 20);
        const auto g = Integers<T>(random_, 2 * tokens * p);
        const Norms<T> norms(kernels(), serial_, shape, ids, g);
        for (int i = 0; i < 2; ++i) {
          ASSERT_EQ(norms.sq_norm[i],
                    static_cast<Accumulator<T>>(norms.exact[i]));
          ASSERT_GE(static_cast<long double>(norms.upper[i]), norms.exact[i]);
        }
      }
    }
  });
}

TEST_P(EmbeddingNormTest, LargeIdsAreSortedByAllTheirBytes) {
  const int32_t large[] = {
      0, 255, 256, 65535, 65536, 1 << 24, std::numeric_limits<int32_t>::max()};
  const LookupShape shape = {1, 140, 1, 0};
  Array<int32_t> ids(140);
  for (int64_t t = 0; t < 140; ++t) ids[t] = large[t * 5 % 7];
  const auto g = Filled<float>(140, [] { return 1.0; });
  const Norms<float> norms(kernels(), serial_, shape, ids, g);
  EXPECT_EQ(norms.sq_norm[0], 7 * 20 * 20);
}

// Sums are made in double: the bound of a float result is one float away.
TEST_P(EmbeddingNormTest, BoundIsTight) {
  const LookupShape shape = {3, 500, 33, 0};
  const auto ids = Ids(random_, 1500, 0, 9);
  const auto g = Normals<float>(random_, int64_t{1500} * 33, 1e-3);
  const Norms<float> norms(kernels(), serial_, shape, ids, g);
  for (int i = 0; i < 3; ++i) {
    EXPECT_GE(static_cast<long double>(norms.upper[i]), norms.exact[i]);
    EXPECT_LE(norms.upper[i], std::nextafter(norms.sq_norm[i], HUGE_VALF));
  }
}

TEST_P(EmbeddingNormTest, UnreadTokensAreNotReadAndBadOnesSpoilTheirExample) {
  const LookupShape shape = {3, 70, 9, 0};
  ForEachElementType([&](auto element) {
    using T = decltype(element);
    auto ids = Ids(random_, 210, 0, 9);
    auto g = Integers<T>(random_, 210 * 9);
    ids[100] = -5;
    const Norms<T> clean(kernels(), serial_, shape, ids, g);
    g[100 * 9 + 8] = reference::FromDouble<T>(std::nan(""));
    const Norms<T> unread(kernels(), serial_, shape, ids, g);
    ids[100] = 7;
    const Norms<T> bad(kernels(), serial_, shape, ids, g);
    for (int i = 0; i < 3; ++i) EXPECT_EQ(unread.upper[i], clean.upper[i]);
    for (int i : {0, 2}) EXPECT_EQ(bad.upper[i], clean.upper[i]);
    EXPECT_FALSE(std::isfinite(bad.sq_norm[1]));
    EXPECT_FALSE(std::isfinite(bad.upper[1]));
  });
}

TEST_P(EmbeddingNormTest, ZeroIsZeroAndTinyIsNot) {
  const LookupShape shape = {1, 3, 5, 0};
  const auto ids = Ids(random_, 3, 4, 4);
  Array<float> g(15);
  EXPECT_EQ(Norms<float>(kernels(), serial_, shape, ids, g).upper[0], 0);
  g[14] = FLT_TRUE_MIN;
  EXPECT_GE(Norms<float>(kernels(), serial_, shape, ids, g).upper[0], FLT_MIN);
  Array<double> wide(15);
  EXPECT_EQ(Norms<double>(kernels(), serial_, shape, ids, wide).upper[0], 0);
  wide[14] = DBL_TRUE_MIN;
  EXPECT_GE(Norms<double>(kernels(), serial_, shape, ids, wide).upper[0],
            DBL_MIN);
}

TEST_P(EmbeddingNormTest, SameBitsForAnyNumberOfThreads) {
  const LookupShape shape = {3, 200, 1500, 0};
  const auto ids = Ids(random_, 600, 0, 50);
  const auto g = Normals<float>(random_, int64_t{600} * 1500);
  const Norms<float> expected(kernels(), serial_, shape, ids, g);
  for (int threads : {1, 2, 5}) {
    StripedParallel striped(threads);
    const Norms<float> norms(kernels(), striped, shape, ids, g);
    for (int i = 0; i < 3; ++i) {
      EXPECT_EQ(norms.sq_norm[i], expected.sq_norm[i]);
      EXPECT_EQ(norms.upper[i], expected.upper[i]);
    }
  }
}

// BK_JAX_STRESS_CASES=1000000 for the long run.
int64_t StressCases() {
  const char* cases = std::getenv("BK_JAX_STRESS_CASES");
  return cases != nullptr ? std::atoll(cases) : 30000;
}

// Pairs that nearly cancel, all magnitudes, repeated ids.
TEST_P(EmbeddingNormTest, NeverBelowOnManySmallCases) {
  std::uniform_int_distribution<int64_t> size(1, 6);
  std::uniform_real_distribution<double> exponent(-44, 18);
  std::normal_distribution<double> normal;
  int64_t below = 0;
  const int64_t cases = StressCases();
  for (int64_t repeat = 0; repeat < cases; ++repeat) {
    const LookupShape shape = {1, 2 * size(random_), size(random_), 0};
    auto ids = Ids(random_, shape.tokens, 0, 2);
    Array<float> g(shape.tokens * shape.p);
    for (int64_t t = 0; t < shape.tokens; t += 2) {
      const double scale = std::pow(10, exponent(random_));
      for (int64_t k = t * shape.p; k < (t + 1) * shape.p; ++k) {
        g[k] = static_cast<float>(scale * normal(random_));
        g[k + shape.p] = -g[k] * static_cast<float>(1 + 1e-7 * normal(random_));
      }
      if (repeat % 2 == 0) ids[t + 1] = ids[t];
    }
    const Norms<float> norms(kernels(), serial_, shape, ids, g);
    below += static_cast<long double>(norms.upper[0]) < norms.exact[0] ? 1 : 0;
  }
  EXPECT_EQ(below, 0) << "of " << cases;
}

TEST(SortKeysTest, SortsAndKeepsTheOrderOfTokens) {
  Random random(1);
  for (int64_t count : {0, 1, 2, 63, 64, 65, 1000}) {
    for (int32_t high : {0, 3, 300, 1 << 30}) {
      const auto ids = Ids(random, count, 0, high);
      std::vector<uint64_t> keys(count), spare(count);
      for (int64_t t = 0; t < count; ++t) keys[t] = TokenKey(ids[t], t);
      std::vector<uint64_t> expected = keys;
      std::sort(expected.begin(), expected.end());
      const uint64_t* sorted = SortKeys(keys.data(), spare.data(), count);
      EXPECT_EQ(std::vector<uint64_t>(sorted, sorted + count), expected);
    }
  }
}

}  // namespace
}  // namespace bk
