// bk_noisy_update: noise and optimizer in one pass, of one parameter or of
// many. On GPUs XLA's own code updates what bk_gaussian made.
#if !defined(BK_PLATFORM_CUDA)
#include "custom_calls/cpu/noise/noisy_update.h"

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "xla_plugin/noise.h"
#include "xla_plugin/operation.h"
#include "xla_plugin/text.h"

namespace bk {
namespace {

constexpr std::pair<std::string_view, Optimizer> kOptimizers[] = {
    {"sgd", Optimizer::kSgd},
    {"momentum", Optimizer::kMomentum},
    {"nesterov", Optimizer::kNesterov},
    {"adam", Optimizer::kAdam},
    {"adamw", Optimizer::kAdamW}};
constexpr const char* kUpdatedNames[] = {"parameter", "first moment",
                                         "second moment"};
constexpr int64_t kNumbers = sizeof(UpdateNumbers) / sizeof(float);

// Arrays come by what they are: all sums, all parameters, then moments as the
// optimizer has them. Results are all but the sums.
struct NoisyUpdateCall : NoiseCall {
  static constexpr char kName[] = "bk_noisy_update";
  using NoiseCall::NoiseCall;
  using Types = bk::Types<float>;
  Buffer key = Operand("key");                       // [8]
  Buffer numbers = Operand("numbers");               // UpdateNumbers
  std::vector<Buffer> before = Operands("sum");      // sums, then updated
  std::vector<Buffer> after = Results("parameter");  // updated
  std::vector<uint32_t> streams;                     // one for each parameter
  Optimizer optimizer = Optimizer::kSgd;

  const Buffer& Typed() const { return numbers; }

  Status Check() {
    BK_RETURN_IF_ERROR(ReadOptimizer());
    BK_RETURN_IF_ERROR(ReadWords("streams", &streams));
    BK_RETURN_IF_ERROR(CheckShape(key, ffi::U32, {kKeyWords}));
    BK_RETURN_IF_ERROR(CheckShape(numbers, ffi::F32, {kNumbers}));
    const size_t updated = streams.size() * Updated(optimizer);
    BK_RETURN_IF_ERROR(
        CheckCount("number of arrays", before, streams.size() + updated));
    BK_RETURN_IF_ERROR(CheckCount("number of results", after, updated));
    for (size_t k = 0; k < updated; ++k) {
      BK_RETURN_IF_ERROR(CheckUpdated(k));
    }
    return OkStatus();
  }

  Status ReadOptimizer() {
    const auto given = attributes_.String("optimizer");
    for (const auto& [name, value] : kOptimizers) {
      if (given == name) {
        optimizer = value;
        return OkStatus();
      }
    }
    return Mismatch(
        Attribute("optimizer"), "sgd, momentum, nesterov, adam or adamw",
        given.has_value() ? "'" + std::string(*given) + "'" : "none");
  }

  Status CheckCount(const char* what, const std::vector<Buffer>& arrays,
                    size_t expected) const {
    if (arrays.size() == expected) return OkStatus();
    return Mismatch(Attribute(what), StrCat(expected), StrCat(arrays.size()));
  }

  // Number k of what is updated has the shape of its sum.
  Status CheckUpdated(size_t k) {
    const Buffer& sum = before[k % streams.size()];
    const std::vector<int64_t> dims(sum.dims.begin(), sum.dims.end());
    BK_RETURN_IF_ERROR(CheckShape(sum, ffi::F32, dims));
    for (Buffer* buffer : {&before[streams.size() + k], &after[k]}) {
      buffer->name = kUpdatedNames[k / streams.size()];
      BK_RETURN_IF_ERROR(CheckShape(*buffer, ffi::F32, dims));
    }
    return OkStatus();
  }

  UpdateArray ArrayOf(size_t i) const {
    UpdateArray array = {streams[i], before[i].Elements(), before[i], {}, {}};
    for (int64_t k = 0; k < Updated(optimizer); ++k) {
      array.from[k] = before[i + (k + 1) * streams.size()];
      array.to[k] = after[i + k * streams.size()];
    }
    return array;
  }

  template <class T>
  void OnCpu(const Cpu& cpu) {
    std::vector<UpdateArray> arrays;
    for (size_t i = 0; i < streams.size(); ++i) arrays.push_back(ArrayOf(i));
    UpdateNumbers given;
    std::memcpy(&given, numbers.data, sizeof given);
    NoisyUpdate(cpu.kernels, cpu.parallel, StreamOf(key, 0, kNoiseDomain),
                optimizer, given, arrays);
  }
};

const Registration<NoisyUpdateCall> kRegistration;

}  // namespace
}  // namespace bk
#endif
