// Lookup kernels on arrays of more than 2^32 elements: what is computed at
// their far end equals what is computed from the same numbers alone.
#include <algorithm>
#include <limits>
#include <vector>

#include "custom_calls/cpu/sparse/clipped_scatter.h"
#include "custom_calls/cpu/sparse/embedding_norm.h"
#include "custom_calls/cpu/sparse/tied_cross.h"
#include "custom_calls/cpu/sparse/token_order.h"
#include "gtest/gtest.h"
#include "tests/custom_calls/far_memory.h"

namespace bk {
namespace {

constexpr int32_t kLastId = std::numeric_limits<int32_t>::max();
constexpr int64_t kWide = 1 << 20;

class SparseOffsetsTest : public IsaTest {
 protected:
  FarItems last_item_;
};
BK_INSTANTIATE_FOR_EACH_ISA(SparseOffsetsTest);

// Ids of which only the last `valid` are inside of the table.
Array<int32_t> LastIds(int64_t size, int64_t valid, int32_t id) {
  Array<int32_t> ids(size);
  std::fill_n(ids.data(), size - valid, -1);
  std::fill_n(&ids[size - valid], valid, id);
  return ids;
}

TEST(TokenOrderTest, LargestIdsAndTokens) {
  std::vector<uint64_t> keys;
  for (int64_t k = 0; k < 100; ++k) {
    const int64_t token = kMaxTokens - 100 + k;
    keys.push_back(TokenKey(k % 2 == 0 ? kLastId : kLastId - 1, token));
  }
  std::vector<uint64_t> spare(keys.size());
  const uint64_t* sorted = SortKeys(keys.data(), spare.data(), 100);
  EXPECT_EQ(SegmentEnd(sorted, 0, 100), 50);
  for (int64_t k = 0; k < 100; ++k) {
    EXPECT_EQ(IdOfKey(sorted[k]), kLastId - (k < 50 ? 1 : 0));
    EXPECT_EQ(static_cast<int64_t>(sorted[k] & kTokenMask),
              kMaxTokens - 100 + (k < 50 ? 2 * k + 1 : 2 * k - 100));
  }
}

// The last columns of the last token go to the last row.
TEST_P(SparseOffsetsTest, ClippedScatterOfTheLastToken) {
  ForEachElementType([&](auto element) {
    using T = decltype(element);
    using Acc = Accumulator<T>;
    const LookupShape shape = {1, 4097, kWide, 4097};
    FarArray<T> g(shape.tokens * kWide);
    const auto last = Integers<T>(random_, 256);
    g.PutLast(last);
    FarArray<Acc> sum(shape.rows * kWide);
    std::fill_n(sum.Last(256), 256, Acc{1});
    const Acc factor = 3;
    const auto ids = LastIds(shape.tokens, 1, 4096);
    ClippedScatter(kernels(), last_item_, shape, ids.data(), &factor, g.data(),
                   sum.data());
    for (int64_t k = 0; k < 256; ++k) {
      ASSERT_EQ(sum.Last(256)[k], 1 + 3 * reference::ToDouble(last[k]));
    }
  });
}

TEST_P(SparseOffsetsTest, ClippedScatterIntoTheLargestTable) {
  ForEachElementType([&](auto element) {
    using T = decltype(element);
    using Acc = Accumulator<T>;
    const LookupShape shape = {1, 2, 3, int64_t{kLastId} + 1};
    const auto g = Filled<T>(6, [] { return 2; });
    FarArray<Acc> sum(shape.rows * 3);
    const Acc factor = 3;
    const auto ids = LastIds(2, 2, kLastId);
    ClippedScatter(kernels(), last_item_, shape, ids.data(), &factor, g.data(),
                   sum.data());
    for (int64_t k = 1; k <= 3; ++k) ASSERT_EQ(*sum.Last(k), 12);
    ASSERT_EQ(*sum.Last(4), 0);
  });
}

// The sum of the last two tokens, which have one id.
TEST_P(SparseOffsetsTest, EmbeddingNormOfTheLastExample) {
  ForEachElementType([&](auto element) {
    using T = decltype(element);
    using Acc = Accumulator<T>;
    const LookupShape shape = {2, 4097, kWide, 0};
    FarArray<T> g(2 * shape.tokens * kWide);
    const auto last = Integers<T>(random_, 100);
    g.PutLast(last);
    std::copy_n(last.data(), 100, g.Last(kWide + 100));
    const auto ids = LastIds(2 * shape.tokens, 2, kLastId);
    Array<Acc> norm(2), upper(2);
    EmbeddingNorm(kernels(), last_item_, shape, ids.data(), g.data(),
                  norm.data(), upper.data());
    double squares = 0;
    for (int64_t k = 0; k < 100; ++k) {
      const double x = reference::ToDouble(last[k]);
      squares += 4 * x * x;
    }
    ASSERT_GT(squares, 0);
    ASSERT_EQ(norm[1], squares);
  });
}

// left [2, 6, 2^30]: the last column of the last position.
TEST_P(SparseOffsetsTest, TiedCrossOfAWideTable) {
  ForEachElementType([&](auto element) {
    using T = decltype(element);
    using Acc = Accumulator<T>;
    const TiedCrossShape shape = {2, 6, 1 << 30, 1, 1};
    FarArray<T> left(12 * shape.rows);
    *left.Last(1) = reference::FromDouble<T>(5);
    const auto right = Filled<T>(12, [] { return 3; });
    const auto g = Filled<T>(2, [] { return 7; });
    const auto ids = LastIds(2, 1, (1 << 30) - 1);
    Array<Acc> cross(2), upper(2);
    TiedCross(kernels(), last_item_, shape, left.data(), right.data(),
              ids.data(), g.data(), cross.data(), upper.data());
    ASSERT_EQ(cross[1], 5 * 3 * 7);
  });
}

TEST_P(SparseOffsetsTest, TiedCrossOfTheLastExample) {
  ForEachElementType([&](auto element) {
    using T = decltype(element);
    using Acc = Accumulator<T>;
    const TiedCrossShape shape = {1368, 3, 2, 3, kWide};
    FarArray<T> right(shape.batch * 3 * kWide), g(shape.batch * 3 * kWide);
    *right.Last(1) = reference::FromDouble<T>(3);
    *g.Last(1) = reference::FromDouble<T>(7);
    Array<T> left(shape.batch * 3 * 2);
    left[shape.batch * 6 - 1] = reference::FromDouble<T>(5);
    const auto ids = LastIds(shape.batch * 3, 1, 1);
    Array<Acc> cross(shape.batch), upper(shape.batch);
    TiedCross(kernels(), last_item_, shape, left.data(), right.data(),
              ids.data(), g.data(), cross.data(), upper.data());
    ASSERT_EQ(cross[shape.batch - 1], 5 * 3 * 7);
  });
}

}  // namespace
}  // namespace bk
