// bk_weighted_sum: sums of arrays that exist in memory, one for each example;
// of one array or of many.
#include <cstdint>
#include <vector>

#include "absl/strings/str_cat.h"
#include "xla_plugin/operation.h"
#if defined(BK_PLATFORM_CUDA)
#include "custom_calls/cuda/weighted_sum.h"
#else
#include "custom_calls/cpu/dense/weighted_sum.h"
#endif

namespace bk {
namespace {

struct WeightedSumCall : Call {
  static constexpr char kName[] = "bk_weighted_sum";
  using Call::Call;
  Buffer factor = Operand("factor");          // [B]
  Buffer first = Operand("x");                // [B, ...]
  std::vector<Buffer> more = Operands("x");   // the same, with other sizes
  std::vector<Buffer> sums = Results("sum");  // [...] of each

  const Buffer& Typed() const { return first; }

  absl::Status Check() {
    if (sums.size() != more.size() + 1) {
      return Mismatch(Attribute("number of results"),
                      absl::StrCat(more.size() + 1), absl::StrCat(sums.size()));
    }
    BK_RETURN_IF_ERROR(CheckExamples(first));
    BK_RETURN_IF_ERROR(
        CheckShape(factor, AccumulatorType(first), {first.dims[0]}));
    for (size_t k = 0; k < sums.size(); ++k) {
      BK_RETURN_IF_ERROR(CheckArray(Array(k), sums[k]));
    }
    return absl::OkStatus();
  }

  static absl::Status CheckExamples(const Buffer& x) {
    if (x.dims.size() > 0) return absl::OkStatus();
    return Mismatch(x, "an axis of examples", ShapeString(x));
  }

  absl::Status CheckArray(const Buffer& x, const Buffer& sum) const {
    BK_RETURN_IF_ERROR(CheckExamples(x));
    std::vector<int64_t> expected(x.dims.begin(), x.dims.end());
    expected[0] = first.dims[0];
    BK_RETURN_IF_ERROR(CheckShape(x, first.type, expected));
    return CheckShape(sum, AccumulatorType(first),
                      {expected.begin() + 1, expected.end()});
  }

  const Buffer& Array(size_t k) const { return k == 0 ? first : more[k - 1]; }

#if defined(BK_PLATFORM_CUDA)
  template <class T>
  absl::Status OnCuda(const Gpu& gpu) {
    for (size_t k = 0; k < sums.size(); ++k) {
      BK_RETURN_IF_ERROR(BK_CUDA_STATUS(
          cuda::WeightedSum<T>({first.dims[0], sums[k].Elements()}, factor,
                               Array(k), sums[k], gpu.stream)));
    }
    return absl::OkStatus();
  }
#else
  template <class T>
  void OnCpu(const Cpu& cpu) {
    std::vector<SumArray<T> > arrays;
    for (size_t k = 0; k < sums.size(); ++k) {
      arrays.push_back({Array(k), sums[k].Elements(), sums[k]});
    }
    WeightedSums<T>(cpu.kernels, cpu.parallel, first.dims[0], factor, arrays);
  }
#endif
};

const Registration<WeightedSumCall> kRegistration;

}  // namespace
}  // namespace bk
