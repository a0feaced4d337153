// How the tensor cores of this device add, and whether that is what the bounds
// of norms assume (docs/numerics.md, custom_calls/cuda/engine.cuh).
//
//   bazel run --config=cuda //benchmarks/gpu:rounding_probe -- --out=probe.json
//
// A chunk of a product has one row of numbers on the left and one on the right;
// numbers are powers of two, or small multiples, so each answer is a bit:
//
//   width     1 - 1 + s, in one step: s survives if it is within the width to
//             which terms are aligned. 24: no bit more than a float has.
//   step      the same with s too small, at place r: it survives where its step
//             comes after that of 1 - 1.
//   rounding  3 + 1.5 ulp and 3 + 0.5 ulp, and their negatives: where ties go.
//   small     2^-70 * 2^-70: kept, or flushed to zero.
//
// Then errors: of operands that are made to lose as much as possible, and of
// random ones, against what the bounds count. The assumption holds if none is
// larger, steps have at least 4 terms, and terms are aligned to at least 24
// bits. It is unclear where errors are small enough, but the answers above fit
// no adder that is known here.
#include <cmath>
#include <cstdio>
#include <random>
#include <string>
#include <vector>

#include "benchmarks/gpu/device/device.h"
#include "benchmarks/gpu/device/layer.h"
#include "benchmarks/gpu/device/options.h"
#include "custom_calls/reference/convert.h"
#include "tests/custom_calls/cuda/engine_probe.h"

namespace bk::bench {
namespace {

constexpr int64_t kRows = 64;
constexpr double kUlp = 0x1p-23;  // of a float at 1
constexpr double kRounding = 0x1p-24;
constexpr int kAssumedStep = 4;
constexpr int kAssumedWidth = 24;
constexpr int kWidest = 36;  // bits that are looked for

// One entry of left right^T, for rows that are all alike; and all entries.
template <class T>
class Chunk {
 public:
  Chunk()
      : left_(kRows * Depth(), T{}),
        right_(kRows * Depth(), T{}),
        device_left_(left_.size() * sizeof(T), "left"),
        device_right_(right_.size() * sizeof(T), "right"),
        device_out_(kRows * kRows * sizeof(float), "out") {}

  static int64_t Depth() { return cuda::CountsOfChunk<T>().depth; }

  void Clear() { SetAll(0, 0); }
  void SetAll(double left, double right) {
    for (int64_t k = 0; k < Depth(); ++k) Set(k, left, right);
  }
  void Set(int64_t place, double left, double right) {
    for (int64_t r = 0; r < kRows; ++r) {
      left_[r * Depth() + place] = reference::FromDouble<T>(left);
      right_[r * Depth() + place] = reference::FromDouble<T>(right);
    }
  }
  // A product that is a power of two times `times`.
  void SetPower(int64_t place, int exponent, double times = 1) {
    const int half = exponent / 2;
    Set(place, std::ldexp(times, half), std::ldexp(1.0, exponent - half));
  }
  // Numbers of every size and sign with 7 bits, which all formats hold.
  void Fill(std::mt19937& random, int exponents) {
    std::uniform_int_distribution<int> mantissa(-127, 127),
        exponent(-exponents, exponents);
    for (std::vector<T>* side : {&left_, &right_}) {
      for (T& x : *side) {
        x = reference::FromDouble<T>(
            std::ldexp(mantissa(random), exponent(random)));
      }
    }
  }

  double Sum() { return static_cast<double>(Product()[0]); }

  // The largest error of an entry, in roundings of the sum of absolute values.
  double LargestError() {
    const std::vector<float> found = Product();
    double largest = 0;
    for (int64_t entry = 0; entry < kRows * kRows; ++entry) {
      largest = std::fmax(largest, ErrorOf(entry, found[entry]));
    }
    return largest;
  }

 private:
  std::vector<float> Product() {
    CopyIn(device_left_.As<T>(), left_.data(), left_.size() * sizeof(T));
    CopyIn(device_right_.As<T>(), right_.data(), right_.size() * sizeof(T));
    const cudaError_t error =
        cuda::ChunkProduct(device_left_.As<T>(), device_right_.As<T>(),
                           device_out_.As<float>(), nullptr);
    if (error != cudaSuccess) {
      std::fprintf(stderr, "rounding_probe: %s\n",
                   TextOf(static_cast<int>(error)).c_str());
      std::exit(1);
    }
    std::vector<float> out(kRows * kRows);
    CopyOut(out.data(), device_out_.As<float>(), out.size() * sizeof(float));
    return out;
  }

  double ErrorOf(int64_t entry, float found) const {
    long double exact = 0, scale = 0;
    for (int64_t k = 0; k < Depth(); ++k) {
      const long double product =
          static_cast<long double>(
              reference::ToDouble(left_[entry / kRows * Depth() + k])) *
          reference::ToDouble(right_[entry % kRows * Depth() + k]);
      exact += product;
      scale += std::fabs(product);
    }
    if (scale == 0) return 0;
    return static_cast<double>(std::fabs(found - exact) / scale) / kRounding;
  }

  std::vector<T> left_, right_;
  Memory device_left_, device_right_, device_out_;
};

// Bits to which terms are aligned, at most kWidest.
template <class T>
int Width(Chunk<T>& chunk) {
  int width = 0;
  for (int bits = 1; bits <= kWidest; ++bits) {
    chunk.Clear();
    chunk.Set(0, 1, 1);
    chunk.Set(1, 1, -1);
    chunk.SetPower(2, 1 - bits);
    if (chunk.Sum() == std::ldexp(1.0, 1 - bits)) width = bits;
  }
  return width;
}

// For every place from 2 on: L where s is lost beside 1 - 1, K where it is
// kept.
template <class T>
std::string Places(Chunk<T>& chunk, int width) {
  std::string places = "LL";
  for (int64_t place = 2; place < chunk.Depth(); ++place) {
    chunk.Clear();
    chunk.Set(0, 1, 1);
    chunk.Set(1, 1, -1);
    chunk.SetPower(place, -width - 4);
    places += chunk.Sum() == 0 ? 'L' : 'K';
  }
  return places;
}

// Terms of the first step, as far as places are lost together; all of them if
// the width is so large that nothing is ever lost.
int StepTerms(const std::string& places) {
  int lost = 0;
  for (const char place : places) lost += place == 'L' ? 1 : 0;
  return lost;
}

// 3 + ulps of 2^-22, from 1.5 + 1.5 + a number of 2^-23.
template <class T>
double UlpsAbove3(Chunk<T>& chunk, int halves, double sign) {
  chunk.Clear();
  chunk.Set(0, 1.5, sign);
  chunk.Set(1, 1.5, sign);
  chunk.SetPower(2, -23, sign * halves);
  return (sign * chunk.Sum() - 3) / (2 * kUlp);
}

template <class T>
std::string Rounding(Chunk<T>& chunk) {
  const double up = UlpsAbove3(chunk, 3, 1), down = UlpsAbove3(chunk, 3, -1);
  const double tie = UlpsAbove3(chunk, 1, 1);
  if (up == 1 && down == 1 && tie == 0) return "truncation";
  if (up == 2 && down == 2 && tie == 0) return "to nearest, ties to even";
  if (up == 2 && down == 2 && tie == 1) return "away from zero";
  if (up == 2 && down == 1) return "upwards";
  if (up == 1 && down == 2) return "downwards";
  return "unknown: " + std::to_string(up) + " and " + std::to_string(down) +
         " units above 3, of 1.5";
}

// float16 has no number as small.
template <class T>
std::string Small(Chunk<T>& chunk) {
  if (reference::ToDouble(reference::FromDouble<T>(0x1p-70)) == 0) return "";
  chunk.Clear();
  chunk.Set(0, 0x1p-70, 0x1p-70);
  return chunk.Sum() == 0 ? "flushed to zero" : "kept";
}

// One large product at `place`, and many that lie just below its last place.
template <class T>
void SetOneLarge(int64_t place, double sign, Chunk<T>& chunk) {
  const double small = 0.99 * std::sqrt(kUlp);
  const double x = reference::ToDouble(reference::FromDouble<BFloat16>(small));
  for (int64_t k = 0; k < chunk.Depth(); ++k) {
    chunk.Set(k, k == place ? 1 : x, k == place ? 1 : sign * x);
  }
}

template <class T>
double WorstError(Chunk<T>& chunk, int repeats) {
  double worst = 0;
  for (int64_t place = 0; place < chunk.Depth(); ++place) {
    for (const double sign : {1.0, -1.0}) {
      SetOneLarge(place, sign, chunk);
      worst = std::fmax(worst, chunk.LargestError());
    }
  }
  // A sum that is just below a power of two has the largest relative error.
  chunk.Clear();
  chunk.Set(0, 1, 1);
  worst = std::fmax(worst, chunk.LargestError());
  std::mt19937 random(20221001);
  for (int repeat = 0; repeat < repeats; ++repeat) {
    chunk.Fill(random, 1 + repeat % 6);
    worst = std::fmax(worst, chunk.LargestError());
  }
  return worst;
}

std::string Verdict(int width, int step, double worst, double counted) {
  if (worst > counted) return "no";
  if (width == 0) return "unclear";
  return width >= kAssumedWidth && step >= kAssumedStep ? "yes" : "no";
}

template <class T>
std::string Probe(const char* type, const Options& options) {
  Chunk<T> chunk;
  const cuda::ChunkCounts counts = cuda::CountsOfChunk<T>();
  const int width = Width(chunk);
  const std::string places = Places(chunk, width);
  const int step = width == 0 ? 0 : StepTerms(places);
  const double worst = WorstError(chunk, options.repeats);
  const auto counted = static_cast<double>(counts.roundings);
  const std::string verdict = Verdict(width, step, worst, counted);
  std::printf(
      "%-4s %s: aligned to %d bits%s, steps of %d terms, worst error %.1f of "
      "%.0f counted: the assumption holds: %s\n",
      type, Rounding(chunk).c_str(), width, width == kWidest ? " or more" : "",
      step, worst, counted, verdict.c_str());
  char numbers[200];
  std::snprintf(numbers, sizeof(numbers),
                "\"width\": %d, \"step\": %d, \"worst\": %.4f, \"counted\": "
                "%.0f, \"terms\": %ld, \"depth\": %ld",
                width, step, worst, counted, static_cast<long>(counts.terms),
                static_cast<long>(counts.depth));
  return "{\"type\": " + Quoted(type) + ", \"instruction\": " +
         Quoted("HMMA.168" + std::to_string(counts.terms)) +
         ", \"rounding\": " + Quoted(Rounding(chunk)) +
         ", \"small\": " + Quoted(Small(chunk)) +
         ", \"places\": " + Quoted(places) + ", " + numbers +
         ", \"holds\": " + Quoted(verdict) + "}";
}

int Main(int count, char** arguments) {
  const Options options = TakeOptions(&count, arguments);
  const std::string problem =
      options.problem.empty() ? Missing() : options.problem;
  if (!problem.empty() || count > 1) {
    std::fprintf(stderr, "rounding_probe: %s\n",
                 problem.empty() ? arguments[1] : problem.c_str());
    return 1;
  }
  if (options.tensor_core_error != 0 &&
      !SetTensorCoreError(options.tensor_core_error)) {
    std::fprintf(stderr, "rounding_probe: a GPU errs as it likes\n");
    return 1;
  }
  const std::string bf16 = Probe<BFloat16>("bf16", options);
  const std::string f16 = Probe<Float16>("f16", options);
  const std::string tf32 = Probe<float>("tf32", options);
  return Write(options, "{\"device\": " + DescriptionAsJson() +
                            ",\n\"types\": [\n " + bf16 + ",\n " + f16 +
                            ",\n " + tf32 + "]}\n");
}

}  // namespace
}  // namespace bk::bench

int main(int count, char** arguments) {
  return bk::bench::Main(count, arguments);
}
