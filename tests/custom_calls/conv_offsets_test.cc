// Convolution kernels on arrays of more than 2^32 elements: what is computed at
// their far end equals what is computed from the same numbers alone.
#include "custom_calls/cpu/conv/conv_grad.h"
#include "gtest/gtest.h"
#include "tests/custom_calls/far_memory.h"

namespace bk {
namespace {

class ConvOffsetsTest : public IsaTest {
 protected:
  FarItems last_item_;
};
BK_INSTANTIATE_FOR_EACH_ISA(ConvOffsetsTest);

// Kernels of one pixel; output pixel t is at t * stride.
ConvShape OnePixelKernel(int64_t batch, int64_t in, int64_t out, int64_t stride,
                         int64_t cin, int64_t cout) {
  return {batch,       1,
          {1, in, in}, {1, out, out},
          {1, 1, 1},   {1, stride, stride},
          {0, 0, 0},   {1, 1, 1},
          {1, 1, 1},   1,
          cin,         cout};
}

// One image of 12001 x 12001 pixels, of which the corners are met: the gradient
// is that of the last pixel.
TEST_P(ConvOffsetsTest, LastPixelOfALargeImage) {
  ForEachElementType([&](auto element) {
    using T = decltype(element);
    using Acc = Accumulator<T>;
    const int64_t size = 12001, entries = 132;
    const ConvShape shape = OnePixelKernel(2, size, 2, size - 1, 33, 4);
    FarArray<T> x(2 * size * size * 33);
    const auto pixel = Integers<T>(random_, 33);
    x.PutLast(pixel);
    const auto g = Filled<T>(2 * 4 * 4, [] { return 3; });
    Array<Acc> norm(2), upper(2), factor(2), sum(entries), grad(2 * entries);
    factor[1] = 1;
    ConvSum(kernels(), serial_, shape, x.data(), factor.data(), g.data(),
            sum.data());
    ConvGrad(kernels(), last_item_, shape, x.data(), g.data(), grad.data(),
             norm.data(), upper.data());
    double squares = 0;
    for (int64_t k = 0; k < entries; ++k) {
      const double entry = 3 * reference::ToDouble(pixel[k / 4]);
      ASSERT_EQ(sum[k], entry);
      ASSERT_EQ(grad[entries + k], entry);
      squares += entry * entry;
    }
    ASSERT_EQ(norm[1], squares);
    ConvNorm(kernels(), last_item_, shape, x.data(), g.data(), norm.data(),
             upper.data());
    ASSERT_EQ(norm[1], squares);
  });
}

// The last 16 channels of the output gradient of the last example.
TEST_P(ConvOffsetsTest, LastExampleOfTheOutputGradient) {
  ForEachElementType([&](auto element) {
    using T = decltype(element);
    using Acc = Accumulator<T>;
    const int64_t pixels = 10201;
    const ConvShape shape = OnePixelKernel(420, 101, 101, 1, 1, 1024);
    FarArray<T> g(420 * pixels * 1024);
    const auto pixel = Integers<T>(random_, 16);
    g.PutLast(pixel);
    const auto x = Filled<T>(420 * pixels, [] { return 3; });
    Array<Acc> norm(420), upper(420), factor(420), sum(1024);
    ConvNorm(kernels(), last_item_, shape, x.data(), g.data(), norm.data(),
             upper.data());
    factor[419] = 1;
    ConvSum(kernels(), last_item_, shape, x.data(), factor.data(), g.data(),
            sum.data());
    double squares = 0;
    for (int64_t k = 0; k < 16; ++k) {
      const double entry = 3 * reference::ToDouble(pixel[k]);
      ASSERT_EQ(sum[1024 - 16 + k], entry);
      squares += entry * entry;
    }
    ASSERT_EQ(norm[419], squares);
  });
}

// 17 gradients of 2^28 entries.
TEST_P(ConvOffsetsTest, LastBlockOfTheGradients) {
  ForEachElementType([&](auto element) {
    using T = decltype(element);
    using Acc = Accumulator<T>;
    const int64_t wide = 1 << 14;
    const ConvShape shape = OnePixelKernel(17, 1, 1, 1, wide, wide);
    const auto x = Integers<T>(random_, 17 * wide);
    const auto g = Integers<T>(random_, 17 * wide);
    FarArray<Acc> grad(17 * wide * wide);
    Array<Acc> norm(17), upper(17);
    ConvGrad(kernels(), last_item_, shape, x.data(), g.data(), grad.data(),
             norm.data(), upper.data());
    for (int64_t c = 1; c <= 4; ++c) {
      for (int64_t o = 1; o <= 4; ++o) {
        ASSERT_EQ(*grad.Last((c - 1) * wide + o),
                  reference::ToDouble(x[17 * wide - c]) *
                      reference::ToDouble(g[17 * wide - o]));
      }
    }
  });
}

// A kernel of more than 2^32 entries.
TEST_P(ConvOffsetsTest, LastBlockOfTheSum) {
  ForEachElementType([&](auto element) {
    using T = decltype(element);
    using Acc = Accumulator<T>;
    const int64_t wide = 65600;
    const ConvShape shape = OnePixelKernel(1, 1, 1, 1, wide, wide);
    const auto x = Integers<T>(random_, wide);
    const auto g = Integers<T>(random_, wide);
    FarArray<Acc> sum(wide * wide);
    const Acc factor = 3;
    ConvSum(kernels(), last_item_, shape, x.data(), &factor, g.data(),
            sum.data());
    for (int64_t c = 1; c <= 4; ++c) {
      for (int64_t o = 1; o <= 4; ++o) {
        ASSERT_EQ(*sum.Last((c - 1) * wide + o),
                  3 * reference::ToDouble(x[wide - c]) *
                      reference::ToDouble(g[wide - o]));
      }
    }
  });
}

}  // namespace
}  // namespace bk
