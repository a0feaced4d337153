// Handlers of bk_conv_norm, bk_conv_grad and bk_conv_sum on the CPU.
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "custom_calls/cpu/conv_grad.h"
#include "custom_calls/cpu/conv_gram.h"
#include "custom_calls/cpu/dispatch.h"
#include "xla_plugin/ffi_helpers.h"
#include "xla_plugin/handlers.h"
#include "xla_plugin/norm_checks.h"

namespace bk {
namespace {

constexpr char kNorm[] = "bk_conv_norm";
constexpr char kGrad[] = "bk_conv_grad";
constexpr char kSum[] = "bk_conv_sum";

// Sizes above this could overflow the arithmetic of positions.
constexpr int64_t kMaxWindow = int64_t{1} << 31;

// Three integers in [low, kMaxWindow).
absl::Status ReadTriple(const OperandName& name, const ffi::Dictionary& from,
                        int64_t low, int64_t (&to)[3]) {
  const auto values = from.get<ffi::Span<const int64_t>>(name.operand);
  if (!values.has_value() || values->size() != 3) {
    return Mismatch(name, "an attribute of three 64-bit integers", "another");
  }
  for (int axis = 0; axis < 3; ++axis) {
    to[axis] = (*values)[axis];
    if (to[axis] < low || to[axis] >= kMaxWindow) {
      return Mismatch(name, absl::StrCat("integers from ", low, " to 2^31"),
                      absl::StrCat(to[axis]));
    }
  }
  return absl::OkStatus();
}

// x [B, images, D, H, W, C] and g [B, images, D', H', W', O].
absl::Status ReadShape(const char* operation, const ffi::AnyBuffer& x,
                       const ffi::AnyBuffer& g,
                       const ffi::Dictionary& attributes, ConvShape* shape) {
  BK_RETURN_IF_ERROR(CheckRank({operation, "x"}, x, 6));
  BK_RETURN_IF_ERROR(CheckRank({operation, "g"}, g, 6));
  const auto in = x.dimensions();
  const auto out = g.dimensions();
  BK_RETURN_IF_ERROR(
      CheckShape({operation, "g"}, g, x.element_type(),
                 {in[0], in[1], out[2], out[3], out[4], out[5]}));
  *shape = {};
  shape->batch = in[0];
  shape->images = in[1];
  for (int axis = 0; axis < 3; ++axis) {
    shape->in[axis] = in[2 + axis];
    shape->out[axis] = out[2 + axis];
  }
  BK_RETURN_IF_ERROR(
      ReadTriple({operation, "kernel"}, attributes, 0, shape->kernel));
  BK_RETURN_IF_ERROR(
      ReadTriple({operation, "stride"}, attributes, 1, shape->stride));
  BK_RETURN_IF_ERROR(
      ReadTriple({operation, "low"}, attributes, -kMaxWindow, shape->low));
  BK_RETURN_IF_ERROR(ReadTriple({operation, "input_dilation"}, attributes, 1,
                                shape->input_dilation));
  BK_RETURN_IF_ERROR(
      ReadTriple({operation, "dilation"}, attributes, 1, shape->dilation));
  const auto groups = attributes.get<int64_t>("groups");
  if (!groups.has_value() || *groups < 1 || in[5] % *groups != 0 ||
      out[5] % *groups != 0) {
    return Mismatch(
        {operation, "groups"},
        absl::StrCat("a positive divisor of ", in[5], " and ", out[5]),
        groups.has_value() ? absl::StrCat(*groups) : "none");
  }
  shape->groups = *groups;
  shape->cin = in[5] / *groups;
  shape->cout = out[5] / *groups;
  return absl::OkStatus();
}

// How norms are made.
absl::Status ReadForm(const ffi::Dictionary& attributes, bool* pixel_gram) {
  const auto form = attributes.get<std::string_view>("form");
  if (!form.has_value() || (*form != "direct" && *form != "pixel_gram")) {
    return Mismatch({kNorm, "form"}, "\"direct\" or \"pixel_gram\"",
                    form.has_value() ? std::string(*form) : "none");
  }
  *pixel_gram = *form == "pixel_gram";
  return absl::OkStatus();
}

// [lead..., kD, kH, kW, cin, groups * cout]
std::vector<int64_t> KernelDims(const ConvShape& s, std::vector<int64_t> lead) {
  lead.insert(lead.end(), {s.kernel[0], s.kernel[1], s.kernel[2], s.cin,
                           s.groups * s.cout});
  return lead;
}

ffi::Error ConvNormImpl(ffi::ThreadPool pool, ffi::AnyBuffer x,
                        ffi::AnyBuffer g, ffi::Result<ffi::AnyBuffer> sq_norm,
                        ffi::Result<ffi::AnyBuffer> sq_norm_upper,
                        ffi::Dictionary attributes) {
  return RunHandler(kNorm, [&] {
    FfiScheduler scheduler(pool);
    ParallelFor parallel(scheduler);
    return RunConvNorm(parallel, attributes, x, g, *sq_norm, *sq_norm_upper);
  });
}

ffi::Error ConvGradImpl(ffi::ThreadPool pool, ffi::AnyBuffer x,
                        ffi::AnyBuffer g, ffi::Result<ffi::AnyBuffer> grad,
                        ffi::Result<ffi::AnyBuffer> sq_norm,
                        ffi::Result<ffi::AnyBuffer> sq_norm_upper,
                        ffi::Dictionary attributes) {
  return RunHandler(kGrad, [&] {
    FfiScheduler scheduler(pool);
    ParallelFor parallel(scheduler);
    return RunConvGrad(parallel, attributes, x, g, *grad, *sq_norm,
                       *sq_norm_upper);
  });
}

ffi::Error ConvSumImpl(ffi::ThreadPool pool, ffi::AnyBuffer x,
                       ffi::AnyBuffer factor, ffi::AnyBuffer g,
                       ffi::Result<ffi::AnyBuffer> sum,
                       ffi::Dictionary attributes) {
  return RunHandler(kSum, [&] {
    FfiScheduler scheduler(pool);
    ParallelFor parallel(scheduler);
    return RunConvSum(parallel, attributes, x, factor, g, *sum);
  });
}

}  // namespace

absl::Status RunConvNorm(Parallel& parallel, const ffi::Dictionary& attributes,
                         ffi::AnyBuffer x, ffi::AnyBuffer g,
                         ffi::AnyBuffer sq_norm, ffi::AnyBuffer sq_norm_upper) {
  ConvShape shape;
  BK_RETURN_IF_ERROR(ReadShape(kNorm, x, g, attributes, &shape));
  bool pixel_gram = false;
  BK_RETURN_IF_ERROR(ReadForm(attributes, &pixel_gram));
  BK_RETURN_IF_ERROR(CheckNorms(kNorm, shape.batch,
                                AccumulatorType(x.element_type()), sq_norm,
                                sq_norm_upper));
  return DispatchFloat({kNorm, "x"}, x.element_type(), [&](auto tag) {
    using T = typename decltype(tag)::Type;
    using Acc = Accumulator<T>;
    const auto norm = pixel_gram ? ConvGramNorm<T> : ConvNorm<T>;
    norm(*ActiveKernels().kernels, parallel, shape, Data<const T>(x),
         Data<const T>(g), Data<Acc>(sq_norm), Data<Acc>(sq_norm_upper));
    return absl::OkStatus();
  });
}

absl::Status RunConvGrad(Parallel& parallel, const ffi::Dictionary& attributes,
                         ffi::AnyBuffer x, ffi::AnyBuffer g,
                         ffi::AnyBuffer grad, ffi::AnyBuffer sq_norm,
                         ffi::AnyBuffer sq_norm_upper) {
  ConvShape shape;
  BK_RETURN_IF_ERROR(ReadShape(kGrad, x, g, attributes, &shape));
  const ffi::DataType result = AccumulatorType(x.element_type());
  BK_RETURN_IF_ERROR(CheckShape({kGrad, "grad"}, grad, result,
                                KernelDims(shape, {shape.batch})));
  BK_RETURN_IF_ERROR(
      CheckNorms(kGrad, shape.batch, result, sq_norm, sq_norm_upper));
  return DispatchFloat({kGrad, "x"}, x.element_type(), [&](auto tag) {
    using T = typename decltype(tag)::Type;
    using Acc = Accumulator<T>;
    ConvGrad(*ActiveKernels().kernels, parallel, shape, Data<const T>(x),
             Data<const T>(g), Data<Acc>(grad), Data<Acc>(sq_norm),
             Data<Acc>(sq_norm_upper));
    return absl::OkStatus();
  });
}

absl::Status RunConvSum(Parallel& parallel, const ffi::Dictionary& attributes,
                        ffi::AnyBuffer x, ffi::AnyBuffer factor,
                        ffi::AnyBuffer g, ffi::AnyBuffer sum) {
  ConvShape shape;
  BK_RETURN_IF_ERROR(ReadShape(kSum, x, g, attributes, &shape));
  const ffi::DataType result = AccumulatorType(x.element_type());
  BK_RETURN_IF_ERROR(
      CheckShape({kSum, "factor"}, factor, result, {shape.batch}));
  BK_RETURN_IF_ERROR(
      CheckShape({kSum, "sum"}, sum, result, KernelDims(shape, {})));
  return DispatchFloat({kSum, "x"}, x.element_type(), [&](auto tag) {
    using T = typename decltype(tag)::Type;
    using Acc = Accumulator<T>;
    ConvSum(*ActiveKernels().kernels, parallel, shape, Data<const T>(x),
            Data<const Acc>(factor), Data<const T>(g), Data<Acc>(sum));
    return absl::OkStatus();
  });
}

}  // namespace bk

XLA_FFI_DEFINE_HANDLER_SYMBOL(
    BkConvNorm, bk::ConvNormImpl,
    xla::ffi::Ffi::Bind()
        .Ctx<xla::ffi::ThreadPool>()
        .Arg<xla::ffi::AnyBuffer>()  // x (B, images, D, H, W, C)
        .Arg<xla::ffi::AnyBuffer>()  // g (B, images, D', H', W', O)
        .Ret<xla::ffi::AnyBuffer>()  // sq_norm (B)
        .Ret<xla::ffi::AnyBuffer>()  // sq_norm_upper (B)
        .Attrs());

XLA_FFI_DEFINE_HANDLER_SYMBOL(
    BkConvGrad, bk::ConvGradImpl,
    xla::ffi::Ffi::Bind()
        .Ctx<xla::ffi::ThreadPool>()
        .Arg<xla::ffi::AnyBuffer>()  // x (B, images, D, H, W, C)
        .Arg<xla::ffi::AnyBuffer>()  // g (B, images, D', H', W', O)
        .Ret<xla::ffi::AnyBuffer>()  // grad (B, kD, kH, kW, cin, O)
        .Ret<xla::ffi::AnyBuffer>()  // sq_norm (B)
        .Ret<xla::ffi::AnyBuffer>()  // sq_norm_upper (B)
        .Attrs());

XLA_FFI_DEFINE_HANDLER_SYMBOL(
    BkConvSum, bk::ConvSumImpl,
    xla::ffi::Ffi::Bind()
        .Ctx<xla::ffi::ThreadPool>()
        .Arg<xla::ffi::AnyBuffer>()  // x (B, images, D, H, W, C)
        .Arg<xla::ffi::AnyBuffer>()  // factor (B)
        .Arg<xla::ffi::AnyBuffer>()  // g (B, images, D', H', W', O)
        .Ret<xla::ffi::AnyBuffer>()  // sum (kD, kH, kW, cin, O)
        .Attrs());
