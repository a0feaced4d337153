// bk_tied_cross: the cross term in the norm of the gradient of a table that is
// both multiplied by and looked up.
#include <cstdint>

#include "xla_plugin/dense.h"
#include "xla_plugin/lookup.h"
#include "xla_plugin/operation.h"
#if defined(BK_PLATFORM_CUDA)
#include "custom_calls/cuda/tied_cross.h"
#else
#include "custom_calls/cpu/sparse/tied_cross.h"
#endif

namespace bk {
namespace {

struct TiedCrossCall : Call {
  static constexpr char kName[] = "bk_tied_cross";
  using Call::Call;
  Buffer left = Operand("left");               // [B * T, rows]
  Buffer right = Operand("right");             // [B * T, p]
  Buffer ids = Operand("ids");                 // [B, S]
  Buffer g = Operand("g");                     // [B, S, p]
  Buffer cross = Result("cross");              // [B]
  Buffer cross_upper = Result("cross_upper");  // [B]
  TiedCrossShape shape = {};

  const Buffer& Typed() const { return g; }

  Status Check() {
    LookupShape lookup;
    BK_RETURN_IF_ERROR(ReadLookup(ids, g, &lookup));
    BK_RETURN_IF_ERROR(CheckRank(left, 2));
    Rows rows;
    BK_RETURN_IF_ERROR(ReadRows(left, lookup.batch, &rows));
    shape = {rows.batch, rows.positions, rows.width, lookup.tokens, lookup.p};
    const int64_t tokens = left.dims[0];
    BK_RETURN_IF_ERROR(CheckShape(left, g.type, {tokens, shape.rows}));
    BK_RETURN_IF_ERROR(CheckShape(right, g.type, {tokens, shape.p}));
    const ffi::DataType type = AccumulatorType(g);
    BK_RETURN_IF_ERROR(CheckShape(cross, type, {shape.batch}));
    return CheckShape(cross_upper, type, {shape.batch});
  }

#if defined(BK_PLATFORM_CUDA)
  int64_t WorkspaceBytes() const {
    return cuda::TiedCrossWorkspaceBytes(shape);
  }

  template <class T>
  Status OnCuda(const Gpu& gpu) {
    return BK_CUDA_STATUS(cuda::TiedCross<T>(shape, left, right, ids, g, cross,
                                             cross_upper, gpu.workspace,
                                             gpu.stream));
  }
#else
  template <class T>
  void OnCpu(const Cpu& cpu) {
    TiedCross<T>(cpu.kernels, cpu.parallel, shape, left, right, ids, g, cross,
                 cross_upper);
  }
#endif
};

const Registration<TiedCrossCall> kRegistration;

}  // namespace
}  // namespace bk
