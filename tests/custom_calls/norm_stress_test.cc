// Counts norms whose bound is below the truth, over many small cases: there
// must be none. BK_JAX_STRESS_CASES sets how many per instruction set; 250000
// make a million for both norms on two of them.
#include <cmath>
#include <cstdlib>
#include <string>

#include "custom_calls/cpu/dense/direct_norm.h"
#include "custom_calls/cpu/dense/ghost_norm.h"
#include "gtest/gtest.h"
#include "tests/custom_calls/norm_cases.h"
#include "tests/custom_calls/test_data.h"

namespace bk {
namespace {

int64_t CaseCount() {
  const char* request = std::getenv("BK_JAX_STRESS_CASES");
  return request == nullptr ? 250000 : std::stoll(request);
}

// A cheap source of numbers: the cases, not the kernels, take the time.
class Source {
 public:
  explicit Source(uint64_t seed) : state_(seed) {}
  // In [0, count).
  int64_t Below(int64_t count) {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return static_cast<int64_t>((state_ >> 33) % static_cast<uint64_t>(count));
  }
  // In (-1, 1), never 0.
  double Signed() {
    return (2 * static_cast<double>(Below(1 << 24)) + 1) * 0x1p-24 - 1;
  }

 private:
  uint64_t state_;
};

enum Kind { kRandom, kCancelling, kPaired, kSparse, kWideRange, kKinds };

void Scale(Source& source, float* x, int64_t count, int lowest, int highest) {
  const auto exponent =
      lowest + static_cast<int>(source.Below(highest - lowest + 1));
  for (int64_t k = 0; k < count; ++k) x[k] = std::ldexp(x[k], exponent);
}

// One example [T, width]: `second` is the operand whose rows cancel.
void Fill(Source& source, Kind kind, bool second, int64_t positions,
          int64_t width, float* x) {
  for (int64_t k = 0; k < positions * width; ++k) {
    double value = source.Signed();
    if (kind == kSparse && source.Below(3) != 0) value = 0;
    if (kind == kWideRange) {
      value = std::ldexp(value, -static_cast<int>(source.Below(20)));
    }
    if (kind == kCancelling && !second) value = 1 + value * 0x1p-10;
    x[k] = static_cast<float>(value);
  }
  if (kind == kCancelling && second) {  // columns sum to zero, up to rounding
    for (int64_t k = 0; k < width; ++k) {
      double sum = 0;
      for (int64_t t = 0; t + 1 < positions; ++t) sum += x[t * width + k];
      x[(positions - 1) * width + k] = static_cast<float>(-sum);
    }
  }
  if (kind == kPaired) {  // every other row takes back the one before
    for (int64_t t = 1; t < positions; t += 2) {
      for (int64_t k = 0; k < width; ++k) {
        const float before = x[(t - 1) * width + k];
        x[t * width + k] =
            second ? -before * (1 + 0x1p-20f * x[t * width + k]) : before;
      }
    }
  }
}

class NormStressTest : public IsaTest {};
BK_INSTANTIATE_FOR_EACH_ISA(NormStressTest);

// Sums of products of floats in double err by less than 1e-14 of S^2; such a
// case counts only if the bound is below even that.
double Exact(const DenseShape& shape, const float* a, const float* g) {
  double sum = 0;
  for (int64_t j = 0; j < shape.d; ++j) {
    for (int64_t k = 0; k < shape.p; ++k) {
      double entry = 0;
      for (int64_t t = 0; t < shape.positions; ++t) {
        entry += static_cast<double>(a[t * shape.d + j]) *
                 static_cast<double>(g[t * shape.p + k]);
      }
      sum += entry * entry;
    }
  }
  return sum;
}

TEST_P(NormStressTest, NoNormIsUnderestimated) {
  Source source(20221001);
  constexpr int64_t kPositions = 6, kWidth = 9;
  float a[kPositions * kWidth], g[kPositions * kWidth];
  int64_t below = 0;
  const int64_t cases = CaseCount();
  for (int64_t i = 0; i < cases; ++i) {
    const DenseShape shape = {1, 1, 1 + source.Below(kPositions),
                              1 + source.Below(kWidth),
                              1 + source.Below(kWidth)};
    const Kind kind = static_cast<Kind>(i % kKinds);
    Fill(source, kind, false, shape.positions, shape.d, a);
    Fill(source, kind, true, shape.positions, shape.p, g);
    Scale(source, a, shape.positions * shape.d, -40, 20);
    Scale(source, g, shape.positions * shape.p, -60, 20);
    const double exact = Exact(shape, a, g);
    for (auto norm : {GhostNorm<float>, DirectNorm<float>}) {
      float estimate, upper;
      norm(kernels(), serial_, shape, a, g, &estimate, &upper);
      if (!(upper >= exact)) ++below;
    }
  }
  EXPECT_EQ(below, 0) << "of " << 2 * cases;
}

}  // namespace
}  // namespace bk
