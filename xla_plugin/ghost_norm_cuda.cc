// Handler of bk_ghost_norm on a GPU.
#include "custom_calls/cuda/ghost_norm.h"
#include "xla_plugin/cuda_handlers.h"
#include "xla_plugin/cuda_helpers.h"
#include "xla_plugin/norm_checks.h"

namespace bk {
namespace {

constexpr char kName[] = "bk_ghost_norm";

ffi::Error GhostNormImpl(cudaStream_t stream, ffi::AnyBuffer a,
                         ffi::AnyBuffer g, ffi::Result<ffi::AnyBuffer> sq_norm,
                         ffi::Result<ffi::AnyBuffer> sq_norm_upper,
                         ffi::Result<ffi::AnyBuffer> workspace,
                         ffi::Dictionary /*attributes*/) {
  return RunHandler(kName, [&] {
    return RunGhostNormCuda(stream, a, g, *sq_norm, *sq_norm_upper, *workspace);
  });
}

}  // namespace

absl::Status RunGhostNormCuda(cudaStream_t stream, ffi::AnyBuffer a,
                              ffi::AnyBuffer g, ffi::AnyBuffer sq_norm,
                              ffi::AnyBuffer sq_norm_upper,
                              ffi::AnyBuffer workspace) {
  DenseShape shape;
  BK_RETURN_IF_ERROR(CheckPair(kName, a, g, sq_norm, &shape));
  const ffi::DataType result = AccumulatorType(a.element_type());
  BK_RETURN_IF_ERROR(
      CheckNorms(kName, shape.batch, result, sq_norm, sq_norm_upper));
  BK_RETURN_IF_ERROR(
      CheckWorkspace(kName, workspace, cuda::GhostNormWorkspaceBytes(shape)));
  return DispatchFloat({kName, "a"}, a.element_type(), [&](auto tag) {
    using T = typename decltype(tag)::Type;
    return BK_CUDA_STATUS(
        kName,
        cuda::GhostNorm(shape, Data<const T>(a), Data<const T>(g),
                        workspace.untyped_data(), Data<Accumulator<T>>(sq_norm),
                        Data<Accumulator<T>>(sq_norm_upper), stream));
  });
}

}  // namespace bk

XLA_FFI_DEFINE_HANDLER_SYMBOL(
    BkGhostNormCuda, bk::GhostNormImpl,
    xla::ffi::Ffi::Bind()
        .Ctx<xla::ffi::PlatformStream<cudaStream_t>>()
        .Arg<xla::ffi::AnyBuffer>()  // a (B, N, T, d) or (B * T, d)
        .Arg<xla::ffi::AnyBuffer>()  // g, like a
        .Ret<xla::ffi::AnyBuffer>()  // sq_norm (B)
        .Ret<xla::ffi::AnyBuffer>()  // sq_norm_upper (B)
        .Ret<xla::ffi::AnyBuffer>()  // workspace
        .Attrs(),
    {xla::ffi::Traits::kCmdBufferCompatible});
