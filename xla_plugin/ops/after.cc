// bk_after: an array as it is, once others are there. XLA schedules by what
// depends on what; this is a dependence and nothing else. On GPUs XLA's own
// order is good.
#if !defined(BK_PLATFORM_CUDA)
#include <vector>

#include "xla_plugin/operation.h"

namespace bk {
namespace {

struct AfterCall : Call {
  static constexpr char kName[] = "bk_after";
  using Call::Call;
  Buffer x = Operand("x");                         // any shape
  std::vector<Buffer> others = Operands("other");  // not read
  Buffer out = Result("out");                      // like x; may be x

  const Buffer& Typed() const { return x; }

  Status Check() {
    return CheckShape(out, x.type, {x.dims.begin(), x.dims.end()});
  }

  template <class T>
  void OnCpu(const Cpu& cpu) {
    cpu.StartFrom(x, out);
  }
};

const Registration<AfterCall> kRegistration;

}  // namespace
}  // namespace bk
#endif
