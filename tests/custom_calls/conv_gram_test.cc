// Norms of kernel gradients from Gram matrices of pixels, of every instruction
// set, against the definition.
#include "custom_calls/cpu/conv/conv_gram.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "custom_calls/cpu/conv/conv_grad.h"
#include "gtest/gtest.h"
#include "tests/custom_calls/conv_cases.h"
#include "tests/custom_calls/test_data.h"
#include "tests/custom_calls/tolerance.h"

namespace bk {
namespace {

template <class T>
struct Case {
  Case(Random& random, const ConvShape& s)
      : shape(s),
        x(Integers<T>(random, s.batch * ImageElements(s))),
        g(Integers<T>(random, s.batch * GradientElements(s))),
        norm(s.batch),
        upper(s.batch) {}
  void Run(const CpuKernels& kernels, Parallel& parallel) {
    ConvGramNorm(kernels, parallel, shape, x.data(), g.data(), norm.data(),
                 upper.data());
  }
  long double Exact(int64_t i) const {
    return Squares(ExactGrad(shape, x.data() + i * ImageElements(shape),
                             g.data() + i * GradientElements(shape)));
  }
  ConvShape shape;
  Array<T> x, g;
  Array<Accumulator<T>> norm, upper;
};

// Shapes at which the walk over lines has something to get wrong.
std::vector<ConvShape> Shapes() {
  std::vector<ConvShape> shapes = OddShapes();
  shapes.push_back(Conv2d(3, 200, 2, 5, 3, 4));   // tiles of columns
  shapes.push_back(Conv2d(14, 14, 3, 3, 16, 8));  // pixels read in place
  shapes.push_back(Conv2d(3, 4, 1, 1, 600, 7));   // blocks of channels
  shapes.push_back(Conv2d(3, 4, 1, 1, 5, 520));
  shapes.push_back(Conv2d(20, 7, 9, 9, 2, 2));  // more lines than distances
  ConvShape images = Conv2d(3, 4, 3, 3, 8, 4);
  images.images = 3;
  shapes.push_back(images);
  ConvShape phases = Conv2d(13, 14, 5, 4, 8, 3);  // 3 x 2 phases
  phases.stride[1] = 3, phases.stride[2] = 2;
  phases.out[1] = 5, phases.out[2] = 7;
  shapes.push_back(phases);
  ConvShape mixed = Conv2d(7, 9, 3, 3, 8, 8);  // everything at once
  mixed.stride[1] = 2, mixed.stride[2] = 2;
  mixed.dilation[1] = 2, mixed.dilation[2] = 3;
  mixed.input_dilation[1] = 2, mixed.input_dilation[2] = 3;
  mixed.out[1] = 6, mixed.out[2] = 12;
  mixed.groups = 2, mixed.images = 2;
  shapes.push_back(mixed);
  ConvShape skipping = Conv2d(9, 9, 2, 2, 8, 8);  // stride beyond the kernel
  skipping.stride[1] = 4, skipping.stride[2] = 3;
  skipping.out[1] = 3, skipping.out[2] = 3;
  shapes.push_back(skipping);
  ConvShape solid = Conv2d(4, 5, 3, 3, 8, 8);
  solid.in[0] = 5, solid.out[0] = 5, solid.kernel[0] = 3, solid.low[0] = 1;
  solid.images = 2;
  shapes.push_back(solid);
  return shapes;
}

class ConvGramTest : public IsaTest {};
BK_INSTANTIATE_FOR_EACH_ISA(ConvGramTest);

TEST_P(ConvGramTest, ExactOnSmallIntegers) {
  ForEachElementType([&](auto element) {
    using T = decltype(element);
    int number = 0;
    for (const ConvShape& shape : Shapes()) {
      SCOPED_TRACE(testing::Message() << "shape " << number++);
      Case<T> c(random_, shape);
      c.Run(kernels(), serial_);
      for (int64_t i = 0; i < shape.batch; ++i) {
        const long double exact = c.Exact(i);
        ASSERT_EQ(c.norm[i], static_cast<Accumulator<T>>(exact));
        ASSERT_GE(static_cast<long double>(c.upper[i]), exact);
      }
    }
  });
}

// A certified bound is at most 1 % above the norm, if pixels do not cancel
// without recomputation: kappa u S^2 with S^2 about T times the squared norm.
TEST_P(ConvGramTest, RandomWithinTheDerivedTolerance) {
  ForEachElementType([&](auto element) {
    using T = decltype(element);
    Case<T> c(random_, Conv2d(14, 13, 3, 3, 40, 8));
    c.x = Normals<T>(random_, c.x.size());
    c.g = Normals<T>(random_, c.g.size(), 1e-3);
    c.Run(kernels(), serial_);
    constexpr double kPositions = 14 * 13;
    // 1 + 40 / 4 + 2 and 1 + 8 / 4 + 2 roundings at most, and two.
    const double kappa = 20 * UnitRoundoff<T>() + 2e3 * UnitRoundoff<double>();
    for (int64_t i = 0; i < 2; ++i) {
      const auto exact = static_cast<double>(c.Exact(i));
      const double error = 1.1 * kappa * kPositions * exact;
      EXPECT_NEAR(static_cast<double>(c.norm[i]), exact, error);
      EXPECT_GE(static_cast<double>(c.upper[i]), exact);
      EXPECT_LE(static_cast<double>(c.upper[i]), exact + 2 * error);
    }
  });
}

// Random integers, so that the exact result does not depend on the form.
TEST_P(ConvGramTest, AgreesWithTheDirectFormOnRandomShapes) {
  std::uniform_int_distribution<int64_t> small(1, 3);
  std::uniform_int_distribution<int64_t> size(1, 9);
  for (int repeat = 0; repeat < 150; ++repeat) {
    ConvShape s = {2, small(random_), {}, {}, {}, {}, {}, {}, {}, 1, 1, 1};
    for (int axis = 0; axis < 3; ++axis) {
      s.in[axis] = size(random_);
      s.out[axis] = axis == 0 ? small(random_) : size(random_);
      s.kernel[axis] = small(random_);
      s.stride[axis] = small(random_);
      s.dilation[axis] = small(random_);
      s.input_dilation[axis] = small(random_);
      s.low[axis] = size(random_) - 4;
    }
    s.groups = small(random_);
    s.cin = size(random_), s.cout = size(random_);
    Case<float> c(random_, s);
    c.Run(kernels(), serial_);
    Array<float> direct(2), upper(2);
    ConvNorm(kernels(), serial_, s, c.x.data(), c.g.data(), direct.data(),
             upper.data());
    for (int64_t i = 0; i < 2; ++i) {
      ASSERT_EQ(c.norm[i], direct[i]) << "repeat " << repeat;
      ASSERT_GE(c.upper[i], direct[i]);
    }
  }
}

// Pixels that cancel: the Gram matrices know nothing, the direct form does.
TEST_P(ConvGramTest, RecomputesWhereTheBoundIsLoose) {
  ConvShape shape = Conv2d(8, 8, 3, 3, 16, 16);
  shape.low[1] = 0, shape.low[2] = 0;
  shape.out[1] = 6, shape.out[2] = 6;
  Case<float> c(random_, shape);
  for (int64_t k = 0; k < c.x.size(); ++k) c.x[k] = 1;
  c.g = Normals<float>(random_, c.g.size());
  // Of 2 x 36 pixels every other one takes back the one before it, up to its
  // last bits.
  for (int64_t t = 1; t < 72; t += 2) {
    for (int64_t o = 0; o < 16; ++o) {
      const float before = c.g[(t - 1) * 16 + o];
      c.g[t * 16 + o] = -before * (1 + 1e-5F * before);
    }
  }
  c.Run(kernels(), serial_);
  Array<float> direct(2), upper(2);
  ConvNorm(kernels(), serial_, c.shape, c.x.data(), c.g.data(), direct.data(),
           upper.data());
  for (int64_t i = 0; i < 2; ++i) {
    EXPECT_EQ(c.norm[i], direct[i]);
    EXPECT_EQ(c.upper[i], upper[i]);
  }
}

TEST_P(ConvGramTest, BadExamplesSpoilThemselvesOnly) {
  for (float bad : {std::nanf(""), HUGE_VALF}) {
    Case<float> c(random_, Conv2d(6, 5, 3, 3, 4, 7));
    c.Run(kernels(), serial_);
    const auto upper = c.upper;
    c.x[3] = bad;
    c.Run(kernels(), serial_);
    EXPECT_FALSE(std::isfinite(c.norm[0]));
    EXPECT_FALSE(std::isfinite(c.upper[0]));
    EXPECT_EQ(c.upper[1], upper[1]);
  }
}

TEST_P(ConvGramTest, OverflowIsNotFinite) {
  Case<float> c(random_, Conv2d(6, 5, 3, 3, 4, 7));
  c.x[3] = 1e25F;
  c.Run(kernels(), serial_);
  EXPECT_FALSE(std::isfinite(c.norm[0]));
  EXPECT_FALSE(std::isfinite(c.upper[0]));
  EXPECT_TRUE(std::isfinite(c.upper[1]));
}

TEST_P(ConvGramTest, ZeroIsZeroAndTinyIsNot) {
  for (bool image : {false, true}) {
    Case<float> c(random_, Conv2d(6, 5, 3, 3, 4, 7));
    Array<float>& zeros = image ? c.x : c.g;
    std::fill_n(zeros.data(), zeros.size(), 0.0F);
    zeros[zeros.size() - 1] = 1e-44F;
    c.Run(kernels(), serial_);
    EXPECT_EQ(c.norm[0], 0);
    EXPECT_EQ(c.upper[0], 0);
    EXPECT_GT(c.upper[1], 0);
  }
}

TEST_P(ConvGramTest, SameBitsForAnyNumberOfThreads) {
  Case<float> c(random_, Conv2d(9, 90, 3, 3, 20, 24));
  c.x = Normals<float>(random_, c.x.size());
  c.g = Normals<float>(random_, c.g.size());
  c.Run(kernels(), serial_);
  const auto norm = c.norm;
  const auto upper = c.upper;
  for (int threads : {1, 2, 5}) {
    StripedParallel striped(threads);
    c.Run(kernels(), striped);
    for (int64_t i = 0; i < 2; ++i) {
      EXPECT_EQ(c.norm[i], norm[i]);
      EXPECT_EQ(c.upper[i], upper[i]);
    }
  }
}

TEST_P(ConvGramTest, NeverBelowOnManySmallCases) {
  std::uniform_int_distribution<int64_t> size(1, 4);
  int64_t below = 0;
  const int64_t cases = StressCases();
  for (int64_t repeat = 0; repeat < cases; ++repeat) {
    ConvShape shape =
        Conv2d(size(random_), size(random_), size(random_) % 3 + 1,
               size(random_), size(random_), size(random_));
    shape.batch = 1;
    shape.stride[1] = size(random_) % 2 + 1;
    Case<float> c(random_, shape);
    FillHard(random_, repeat, shape.cout, &c.x, &c.g);
    c.Run(kernels(), serial_);
    if (!std::isfinite(c.upper[0])) continue;
    below += static_cast<long double>(c.upper[0]) < c.Exact(0) ? 1 : 0;
  }
  EXPECT_EQ(below, 0) << "of " << cases;
}

// Whatever is kept fits, for shapes nobody would choose.
TEST(GramLayoutTest, FitsTheScratch) {
  EXPECT_LE(kLineScratch * static_cast<int64_t>(sizeof(float)), 1 << 20);
  Random random(1);
  std::uniform_int_distribution<int64_t> log_size(0, 9);
  const auto size = [&] {
    return std::uniform_int_distribution<int64_t>(
        1, int64_t{1} << log_size(random))(random);
  };
  int fitting = 0;
  for (int repeat = 0; repeat < 20000; ++repeat) {
    const ConvShape s = {1,
                         size(),
                         {size(), size(), size()},
                         {size() % 9 + 1, size(), size()},
                         {size() % 5 + 1, size() % 60 + 1, size()},
                         {size(), size(), size()},
                         {0, 0, 0},
                         {1, 1, 1},
                         {size() % 5 + 1, size(), size()},
                         1,
                         size(),
                         size()};
    const int64_t lanes = int64_t{2} << repeat % 4;
    const GramLayout layout = MakeGramLayout(s, lanes);
    const GramPlan& plan = layout.plan;
    if (plan.tile == 0) continue;
    ++fitting;
    const int64_t blocks = plan.window * plan.deltas * plan.phase_count;
    ASSERT_LE(blocks * (plan.tile + plan.span) * plan.stride, kLineBlocks);
    ASSERT_LE(plan.tile + plan.span, kLinePixels);
    ASSERT_LE(plan.deltas, kLineDeltas);
    ASSERT_LE(plan.offset_count, kLineOffsets);
    const int64_t gradient = (plan.tile + lanes - 1) / lanes * lanes;
    ASSERT_LE(plan.deltas * plan.tile * gradient, kLineGradient);
    ASSERT_LE(gradient + plan.span, plan.stride);
    for (const GramOffset& offset : layout.offsets) {
      ASSERT_LT(offset.line, plan.window);
      ASSERT_LE(offset.column, plan.span);
      ASSERT_LT(offset.phase, plan.phase_count);
    }
  }
  EXPECT_GT(fitting, 1000);
}

}  // namespace
}  // namespace bk
