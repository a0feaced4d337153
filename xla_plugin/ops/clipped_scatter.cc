// bk_clipped_scatter: the clipped sum of gradients of a table that is looked
// up, added to what is there.
#include <cstdint>

#include "xla_plugin/lookup.h"
#include "xla_plugin/operation.h"
#if defined(BK_PLATFORM_CUDA)
#include "custom_calls/cuda/clipped_scatter.h"
#else
#include "custom_calls/cpu/sparse/clipped_scatter.h"
#endif

namespace bk {
namespace {

struct ClippedScatterCall : Call {
  static constexpr char kName[] = "bk_clipped_scatter";
  using Call::Call;
  Buffer ids = Operand("ids");          // [B, T]
  Buffer factor = Operand("factor");    // [B]
  Buffer g = Operand("g");              // [B, T, p]
  Buffer initial = Operand("initial");  // [rows, p]
  Buffer sum = Result("sum");           // [rows, p], the same buffer
  LookupShape shape = {};

  const Buffer& Typed() const { return g; }

  Status Check() {
    BK_RETURN_IF_ERROR(ReadLookup(ids, g, &shape));
    BK_RETURN_IF_ERROR(CheckRank(initial, 2));
    shape.rows = initial.dims[0];
    const ffi::DataType type = AccumulatorType(g);
    BK_RETURN_IF_ERROR(CheckShape(factor, type, {shape.batch}));
    BK_RETURN_IF_ERROR(CheckShape(initial, type, {shape.rows, shape.p}));
    return CheckShape(sum, type, {shape.rows, shape.p});
  }

#if defined(BK_PLATFORM_CUDA)
  int64_t WorkspaceBytes() const {
    return cuda::ClippedScatterWorkspaceBytes(shape);
  }

  template <class T>
  Status OnCuda(const Gpu& gpu) {
    BK_RETURN_IF_ERROR(BK_CUDA_STATUS(gpu.StartFrom(initial, sum)));
    return BK_CUDA_STATUS(cuda::ClippedScatter<T>(shape, ids, factor, g, sum,
                                                  gpu.workspace, gpu.stream));
  }
#else
  template <class T>
  void OnCpu(const Cpu& cpu) {
    cpu.StartFrom(initial, sum);
    ClippedScatter<T>(cpu.kernels, cpu.parallel, shape, ids, factor, g, sum);
  }
#endif
};

const Registration<ClippedScatterCall> kRegistration;

}  // namespace
}  // namespace bk
