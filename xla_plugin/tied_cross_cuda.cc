// Handler of bk_tied_cross on a GPU.
#include "custom_calls/cuda/tied_cross.h"
#include "xla_plugin/cuda_handlers.h"
#include "xla_plugin/cuda_helpers.h"
#include "xla_plugin/lookup_checks.h"

namespace bk {
namespace {

constexpr char kName[] = "bk_tied_cross";

ffi::Error TiedCrossImpl(cudaStream_t stream, ffi::AnyBuffer left,
                         ffi::AnyBuffer right, ffi::AnyBuffer ids,
                         ffi::AnyBuffer g, ffi::Result<ffi::AnyBuffer> cross,
                         ffi::Result<ffi::AnyBuffer> cross_upper,
                         ffi::Result<ffi::AnyBuffer> workspace,
                         ffi::Dictionary /*attributes*/) {
  return RunHandler(kName, [&] {
    return RunTiedCrossCuda(stream, left, right, ids, g, *cross, *cross_upper,
                            *workspace);
  });
}

}  // namespace

absl::Status RunTiedCrossCuda(cudaStream_t stream, ffi::AnyBuffer left,
                              ffi::AnyBuffer right, ffi::AnyBuffer ids,
                              ffi::AnyBuffer g, ffi::AnyBuffer cross,
                              ffi::AnyBuffer cross_upper,
                              ffi::AnyBuffer workspace) {
  TiedCrossShape shape;
  BK_RETURN_IF_ERROR(
      CheckTiedCross(kName, left, right, ids, g, cross, cross_upper, &shape));
  BK_RETURN_IF_ERROR(
      CheckWorkspace(kName, workspace, cuda::TiedCrossWorkspaceBytes(shape)));
  return DispatchFloat({kName, "g"}, g.element_type(), [&](auto tag) {
    using T = typename decltype(tag)::Type;
    using Acc = Accumulator<T>;
    return BK_CUDA_STATUS(
        kName, cuda::TiedCross(shape, Data<const T>(left), Data<const T>(right),
                               Data<const int32_t>(ids), Data<const T>(g),
                               Data<Acc>(cross), Data<Acc>(cross_upper),
                               workspace.untyped_data(), stream));
  });
}

}  // namespace bk

XLA_FFI_DEFINE_HANDLER_SYMBOL(
    BkTiedCrossCuda, bk::TiedCrossImpl,
    xla::ffi::Ffi::Bind()
        .Ctx<xla::ffi::PlatformStream<cudaStream_t>>()
        .Arg<xla::ffi::AnyBuffer>()  // left (B * T, rows)
        .Arg<xla::ffi::AnyBuffer>()  // right (B * T, p)
        .Arg<xla::ffi::AnyBuffer>()  // ids (B, S)
        .Arg<xla::ffi::AnyBuffer>()  // g (B, S, p)
        .Ret<xla::ffi::AnyBuffer>()  // cross (B)
        .Ret<xla::ffi::AnyBuffer>()  // cross_upper (B)
        .Ret<xla::ffi::AnyBuffer>()  // workspace
        .Attrs(),
    {xla::ffi::Traits::kCmdBufferCompatible});
