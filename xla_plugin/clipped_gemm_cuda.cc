// Handlers of bk_clipped_gemm and bk_clipped_gemm_add on a GPU.
#include <cstdint>
#include <vector>

#include "custom_calls/cuda/clipped_gemm.h"
#include "xla_plugin/cuda_handlers.h"
#include "xla_plugin/cuda_helpers.h"
#include "xla_plugin/rows.h"

namespace bk {
namespace {

constexpr char kName[] = "bk_clipped_gemm";
constexpr char kAddName[] = "bk_clipped_gemm_add";

// One weight is a matrix, without the axis of weights.
std::vector<int64_t> SumDimensions(const ClippedGemmShape& shape) {
  if (shape.weights == 1) return {shape.m, shape.n};
  return {shape.weights, shape.m, shape.n};
}

absl::Status Run(const char* name, cudaStream_t stream, ffi::AnyBuffer lhs,
                 ffi::AnyBuffer factor, ffi::AnyBuffer rhs, ffi::AnyBuffer sum,
                 ffi::AnyBuffer workspace, bool accumulate) {
  Rows rows;
  BK_RETURN_IF_ERROR(ReadRows({name, "lhs"}, lhs, LengthOf(factor), &rows));
  ClippedGemmShape shape = {rows.batch, rows.weights, rows.positions,
                            rows.width, 0};
  BK_RETURN_IF_ERROR(ReadSameRows({name, "rhs"}, rhs, lhs, &shape.n));
  const ffi::DataType result = AccumulatorType(lhs.element_type());
  BK_RETURN_IF_ERROR(
      CheckShape({name, "factor"}, factor, result, {shape.batch}));
  BK_RETURN_IF_ERROR(
      CheckShape({name, "sum"}, sum, result, SumDimensions(shape)));
  BK_RETURN_IF_ERROR(
      CheckWorkspace(name, workspace,
                     cuda::ClippedGemmWorkspaceBytes(
                         shape, static_cast<int64_t>(ffi::ByteWidth(result)))));
  return DispatchFloat({name, "lhs"}, lhs.element_type(), [&](auto tag) {
    using T = typename decltype(tag)::Type;
    using Acc = Accumulator<T>;
    return BK_CUDA_STATUS(
        name,
        cuda::ClippedGemm(shape, Data<const T>(lhs), Data<const Acc>(factor),
                          Data<const T>(rhs), accumulate,
                          workspace.untyped_data(), Data<Acc>(sum), stream));
  });
}

ffi::Error ClippedGemmImpl(cudaStream_t stream, ffi::AnyBuffer lhs,
                           ffi::AnyBuffer factor, ffi::AnyBuffer rhs,
                           ffi::Result<ffi::AnyBuffer> sum,
                           ffi::Result<ffi::AnyBuffer> workspace,
                           ffi::Dictionary /*attributes*/) {
  return RunHandler(kName, [&] {
    return RunClippedGemmCuda(stream, lhs, factor, rhs, *sum, *workspace);
  });
}

ffi::Error ClippedGemmAddImpl(cudaStream_t stream, ffi::AnyBuffer lhs,
                              ffi::AnyBuffer factor, ffi::AnyBuffer rhs,
                              ffi::AnyBuffer initial,
                              ffi::Result<ffi::AnyBuffer> sum,
                              ffi::Result<ffi::AnyBuffer> workspace,
                              ffi::Dictionary /*attributes*/) {
  return RunHandler(kAddName, [&] {
    return RunClippedGemmAddCuda(stream, lhs, factor, rhs, initial, *sum,
                                 *workspace);
  });
}

}  // namespace

absl::Status RunClippedGemmCuda(cudaStream_t stream, ffi::AnyBuffer lhs,
                                ffi::AnyBuffer factor, ffi::AnyBuffer rhs,
                                ffi::AnyBuffer sum, ffi::AnyBuffer workspace) {
  return Run(kName, stream, lhs, factor, rhs, sum, workspace, false);
}

absl::Status RunClippedGemmAddCuda(cudaStream_t stream, ffi::AnyBuffer lhs,
                                   ffi::AnyBuffer factor, ffi::AnyBuffer rhs,
                                   ffi::AnyBuffer initial, ffi::AnyBuffer sum,
                                   ffi::AnyBuffer workspace) {
  const auto dims = sum.dimensions();
  BK_RETURN_IF_ERROR(CheckShape({kAddName, "initial"}, initial,
                                sum.element_type(),
                                {dims.begin(), dims.end()}));
  // The caller asks for one buffer; without that the sum starts as a copy.
  if (initial.untyped_data() != sum.untyped_data()) {
    BK_RETURN_IF_ERROR(BK_CUDA_STATUS(
        kAddName,
        cudaMemcpyAsync(sum.untyped_data(), initial.untyped_data(),
                        sum.size_bytes(), cudaMemcpyDeviceToDevice, stream)));
  }
  return Run(kAddName, stream, lhs, factor, rhs, sum, workspace, true);
}

}  // namespace bk

XLA_FFI_DEFINE_HANDLER_SYMBOL(
    BkClippedGemmCuda, bk::ClippedGemmImpl,
    xla::ffi::Ffi::Bind()
        .Ctx<xla::ffi::PlatformStream<cudaStream_t>>()
        .Arg<xla::ffi::AnyBuffer>()  // lhs (B, N, T, m) or (B * T, m)
        .Arg<xla::ffi::AnyBuffer>()  // factor (B)
        .Arg<xla::ffi::AnyBuffer>()  // rhs, like lhs
        .Ret<xla::ffi::AnyBuffer>()  // sum (N, m, n), or (m, n)
        .Ret<xla::ffi::AnyBuffer>()  // workspace
        .Attrs(),
    {xla::ffi::Traits::kCmdBufferCompatible});

XLA_FFI_DEFINE_HANDLER_SYMBOL(
    BkClippedGemmAddCuda, bk::ClippedGemmAddImpl,
    xla::ffi::Ffi::Bind()
        .Ctx<xla::ffi::PlatformStream<cudaStream_t>>()
        .Arg<xla::ffi::AnyBuffer>()  // lhs (B, N, T, m) or (B * T, m)
        .Arg<xla::ffi::AnyBuffer>()  // factor (B)
        .Arg<xla::ffi::AnyBuffer>()  // rhs, like lhs
        .Arg<xla::ffi::AnyBuffer>()  // initial, like sum
        .Ret<xla::ffi::AnyBuffer>()  // sum (N, m, n), or (m, n)
        .Ret<xla::ffi::AnyBuffer>()  // workspace
        .Attrs(),
    {xla::ffi::Traits::kCmdBufferCompatible});
