// bk_squared_norms: norms of gradients that exist in memory, of all arrays
// together. On GPUs XLA's own reductions do this.
#if !defined(BK_PLATFORM_CUDA)
#include "custom_calls/cpu/dense/squared_norms.h"

#include <cstdint>
#include <vector>

#include "xla_plugin/operation.h"

namespace bk {
namespace {

struct SquaredNormsCall : Call {
  static constexpr char kName[] = "bk_squared_norms";
  using Call::Call;
  Buffer first = Operand("x");                     // [B, ...]
  std::vector<Buffer> more = Operands("x");        // the same, other sizes
  Buffer sq_norm = Result("sq_norm");              // [B]
  Buffer sq_norm_upper = Result("sq_norm_upper");  // [B]

  const Buffer& Typed() const { return first; }

  Status Check() {
    BK_RETURN_IF_ERROR(CheckExamples(first, first));
    for (const Buffer& x : more) {
      BK_RETURN_IF_ERROR(CheckExamples(x, first));
    }
    const ffi::DataType type = AccumulatorType(first);
    BK_RETURN_IF_ERROR(CheckShape(sq_norm, type, {first.dims[0]}));
    return CheckShape(sq_norm_upper, type, {first.dims[0]});
  }

  template <class T>
  static ExampleRows<T> Rows(const Buffer& x) {
    int64_t size = 1;
    for (size_t k = 1; k < x.dims.size(); ++k) size *= x.dims[k];
    return {x, size};
  }

  template <class T>
  void OnCpu(const Cpu& cpu) {
    std::vector<ExampleRows<T>> arrays = {Rows<T>(first)};
    for (const Buffer& x : more) arrays.push_back(Rows<T>(x));
    SquaredNorms<T>(cpu.kernels, cpu.parallel, first.dims[0], arrays, sq_norm,
                    sq_norm_upper);
  }
};

const Registration<SquaredNormsCall> kRegistration;

}  // namespace
}  // namespace bk
#endif
