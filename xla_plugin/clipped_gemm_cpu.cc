// Handlers of bk_clipped_gemm and bk_clipped_gemm_add on the CPU.
#include <cstdint>
#include <cstring>
#include <vector>

#include "custom_calls/cpu/clipped_gemm.h"
#include "custom_calls/cpu/dispatch.h"
#include "xla_plugin/ffi_helpers.h"
#include "xla_plugin/handlers.h"
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

absl::Status Run(const char* name, Parallel& parallel, ffi::AnyBuffer lhs,
                 ffi::AnyBuffer factor, ffi::AnyBuffer rhs, ffi::AnyBuffer sum,
                 GemmOutput output) {
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
  return DispatchFloat({name, "lhs"}, lhs.element_type(), [&](auto tag) {
    using T = typename decltype(tag)::Type;
    using Acc = Accumulator<T>;
    ClippedGemm(*ActiveKernels().kernels, parallel, shape, Data<const T>(lhs),
                Data<const Acc>(factor), Data<const T>(rhs), Data<Acc>(sum),
                output);
    return absl::OkStatus();
  });
}

ffi::Error ClippedGemmImpl(ffi::ThreadPool pool, ffi::AnyBuffer lhs,
                           ffi::AnyBuffer factor, ffi::AnyBuffer rhs,
                           ffi::Result<ffi::AnyBuffer> sum,
                           ffi::Dictionary /*attributes*/) {
  return RunHandler(kName, [&] {
    FfiScheduler scheduler(pool);
    ParallelFor parallel(scheduler);
    return RunClippedGemm(parallel, lhs, factor, rhs, *sum);
  });
}

ffi::Error ClippedGemmAddImpl(ffi::ThreadPool pool, ffi::AnyBuffer lhs,
                              ffi::AnyBuffer factor, ffi::AnyBuffer rhs,
                              ffi::AnyBuffer initial,
                              ffi::Result<ffi::AnyBuffer> sum,
                              ffi::Dictionary /*attributes*/) {
  return RunHandler(kAddName, [&] {
    FfiScheduler scheduler(pool);
    ParallelFor parallel(scheduler);
    return RunClippedGemmAdd(parallel, lhs, factor, rhs, initial, *sum);
  });
}

}  // namespace

absl::Status RunClippedGemm(Parallel& parallel, ffi::AnyBuffer lhs,
                            ffi::AnyBuffer factor, ffi::AnyBuffer rhs,
                            ffi::AnyBuffer sum) {
  return Run(kName, parallel, lhs, factor, rhs, sum, GemmOutput::kOverwrite);
}

absl::Status RunClippedGemmAdd(Parallel& parallel, ffi::AnyBuffer lhs,
                               ffi::AnyBuffer factor, ffi::AnyBuffer rhs,
                               ffi::AnyBuffer initial, ffi::AnyBuffer sum) {
  const auto dims = sum.dimensions();
  BK_RETURN_IF_ERROR(CheckShape({kAddName, "initial"}, initial,
                                sum.element_type(),
                                {dims.begin(), dims.end()}));
  // The caller asks for one buffer; without that the sum starts as a copy.
  if (initial.untyped_data() != sum.untyped_data()) {
    std::memcpy(sum.untyped_data(), initial.untyped_data(), sum.size_bytes());
  }
  return Run(kAddName, parallel, lhs, factor, rhs, sum,
             GemmOutput::kAccumulate);
}

}  // namespace bk

XLA_FFI_DEFINE_HANDLER_SYMBOL(
    BkClippedGemm, bk::ClippedGemmImpl,
    xla::ffi::Ffi::Bind()
        .Ctx<xla::ffi::ThreadPool>()
        .Arg<xla::ffi::AnyBuffer>()  // lhs (B, N, T, m) or (B * T, m)
        .Arg<xla::ffi::AnyBuffer>()  // factor (B)
        .Arg<xla::ffi::AnyBuffer>()  // rhs, like lhs
        .Ret<xla::ffi::AnyBuffer>()  // sum (N, m, n), or (m, n)
        .Attrs());

XLA_FFI_DEFINE_HANDLER_SYMBOL(
    BkClippedGemmAdd, bk::ClippedGemmAddImpl,
    xla::ffi::Ffi::Bind()
        .Ctx<xla::ffi::ThreadPool>()
        .Arg<xla::ffi::AnyBuffer>()  // lhs (B, N, T, m) or (B * T, m)
        .Arg<xla::ffi::AnyBuffer>()  // factor (B)
        .Arg<xla::ffi::AnyBuffer>()  // rhs, like lhs
        .Arg<xla::ffi::AnyBuffer>()  // initial, like sum
        .Ret<xla::ffi::AnyBuffer>()  // sum (N, m, n), or (m, n)
        .Attrs());
