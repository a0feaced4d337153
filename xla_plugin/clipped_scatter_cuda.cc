// Handler of bk_clipped_scatter on a GPU.
#include "custom_calls/cuda/clipped_scatter.h"
#include "xla_plugin/cuda_handlers.h"
#include "xla_plugin/cuda_helpers.h"
#include "xla_plugin/lookup_checks.h"

namespace bk {
namespace {

constexpr char kName[] = "bk_clipped_scatter";

ffi::Error ClippedScatterImpl(cudaStream_t stream, ffi::AnyBuffer ids,
                              ffi::AnyBuffer factor, ffi::AnyBuffer g,
                              ffi::AnyBuffer initial,
                              ffi::Result<ffi::AnyBuffer> sum,
                              ffi::Result<ffi::AnyBuffer> workspace,
                              ffi::Dictionary /*attributes*/) {
  return RunHandler(kName, [&] {
    return RunClippedScatterCuda(stream, ids, factor, g, initial, *sum,
                                 *workspace);
  });
}

// The caller aliases both; then there is nothing to do.
absl::Status CopyInitial(const ffi::AnyBuffer& initial,
                         const ffi::AnyBuffer& sum, cudaStream_t stream) {
  const bool same = initial.untyped_data() == sum.untyped_data();
  if (same || sum.size_bytes() == 0) return absl::OkStatus();
  return BK_CUDA_STATUS(
      kName,
      cudaMemcpyAsync(sum.untyped_data(), initial.untyped_data(),
                      sum.size_bytes(), cudaMemcpyDeviceToDevice, stream));
}

}  // namespace

absl::Status RunClippedScatterCuda(cudaStream_t stream, ffi::AnyBuffer ids,
                                   ffi::AnyBuffer factor, ffi::AnyBuffer g,
                                   ffi::AnyBuffer initial, ffi::AnyBuffer sum,
                                   ffi::AnyBuffer workspace) {
  LookupShape shape;
  BK_RETURN_IF_ERROR(
      CheckClippedScatter(kName, ids, factor, g, initial, sum, &shape));
  BK_RETURN_IF_ERROR(CheckWorkspace(kName, workspace,
                                    cuda::ClippedScatterWorkspaceBytes(shape)));
  return DispatchFloat({kName, "g"}, g.element_type(), [&](auto tag) {
    using T = typename decltype(tag)::Type;
    using Acc = Accumulator<T>;
    BK_RETURN_IF_ERROR(CopyInitial(initial, sum, stream));
    return BK_CUDA_STATUS(
        kName,
        cuda::ClippedScatter(shape, Data<const int32_t>(ids),
                             Data<const Acc>(factor), Data<const T>(g),
                             Data<Acc>(sum), workspace.untyped_data(), stream));
  });
}

}  // namespace bk

XLA_FFI_DEFINE_HANDLER_SYMBOL(
    BkClippedScatterCuda, bk::ClippedScatterImpl,
    xla::ffi::Ffi::Bind()
        .Ctx<xla::ffi::PlatformStream<cudaStream_t>>()
        .Arg<xla::ffi::AnyBuffer>()  // ids (B, T)
        .Arg<xla::ffi::AnyBuffer>()  // factor (B)
        .Arg<xla::ffi::AnyBuffer>()  // g (B, T, p)
        .Arg<xla::ffi::AnyBuffer>()  // initial (rows, p)
        .Ret<xla::ffi::AnyBuffer>()  // sum (rows, p), the same buffer
        .Ret<xla::ffi::AnyBuffer>()  // workspace
        .Attrs(),
    {xla::ffi::Traits::kCmdBufferCompatible});
