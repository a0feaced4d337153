// bk_weighted_sum: sums of arrays that exist in memory, one for each example;
// of one array or of many.
#include <cstdint>
#include <vector>

#include "xla_plugin/operation.h"
#include "xla_plugin/text.h"
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

  Status Check() {
    if (sums.size() != more.size() + 1) {
      return Mismatch(Attribute("number of results"), StrCat(more.size() + 1),
                      StrCat(sums.size()));
    }
    BK_RETURN_IF_ERROR(CheckExamples(first, first));
    BK_RETURN_IF_ERROR(
        CheckShape(factor, AccumulatorType(first), {first.dims[0]}));
    for (size_t k = 0; k < sums.size(); ++k) {
      const Buffer& x = Array(k);
      BK_RETURN_IF_ERROR(CheckExamples(x, first));
      BK_RETURN_IF_ERROR(CheckShape(sums[k], AccumulatorType(first),
                                    {x.dims.begin() + 1, x.dims.end()}));
    }
    return OkStatus();
  }

  const Buffer& Array(size_t k) const { return k == 0 ? first : more[k - 1]; }

#if defined(BK_PLATFORM_CUDA)
  template <class T>
  Status OnCuda(const Gpu& gpu) {
    for (size_t k = 0; k < sums.size(); ++k) {
      BK_RETURN_IF_ERROR(BK_CUDA_STATUS(
          cuda::WeightedSum<T>({first.dims[0], sums[k].Elements()}, factor,
                               Array(k), sums[k], gpu.stream)));
    }
    return OkStatus();
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
