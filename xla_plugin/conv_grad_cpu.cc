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
#include "xla_plugin/rows.h"

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

// x [B * images, spatial..., C] and g [B * images, spatial'..., O] with one to
// three spatial dimensions; those that are missing in front have size 1.
absl::Status ReadImages(const char* operation, const ffi::AnyBuffer& x,
                        const ffi::AnyBuffer& g, int64_t batch,
                        ConvShape* shape) {
  const auto in = x.dimensions();
  const auto out = g.dimensions();
  const size_t rank = in.size();
  if (rank < 3 || rank > 5) {
    return Mismatch({operation, "x"}, "rank 3, 4 or 5", ShapeString(x));
  }
  BK_RETURN_IF_ERROR(CheckRank({operation, "g"}, g, rank));
  std::vector<int64_t> same_images(out.begin(), out.end());
  same_images[0] = in[0];
  BK_RETURN_IF_ERROR(
      CheckShape({operation, "g"}, g, x.element_type(), same_images));
  *shape = {};
  shape->batch = batch;
  shape->images = batch == 0 ? 0 : in[0] / batch;
  if (shape->images * batch != in[0]) {
    return Mismatch({operation, "x"},
                    absl::StrCat("the same images for ", batch, " examples"),
                    ShapeString(x));
  }
  for (size_t axis = 0; axis < 3; ++axis) {
    const bool missing = axis + rank < 5;
    shape->in[axis] = missing ? 1 : in[axis + rank - 4];
    shape->out[axis] = missing ? 1 : out[axis + rank - 4];
  }
  return absl::OkStatus();
}

// The images, and the window from the attributes.
absl::Status ReadShape(const char* operation, const ffi::AnyBuffer& x,
                       const ffi::AnyBuffer& g, int64_t batch,
                       const ffi::Dictionary& attributes, ConvShape* shape) {
  BK_RETURN_IF_ERROR(ReadImages(operation, x, g, batch, shape));
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
  const int64_t channels = x.dimensions().back();
  const int64_t outputs = g.dimensions().back();
  const auto groups = attributes.get<int64_t>("groups");
  if (!groups.has_value() || *groups < 1 || channels % *groups != 0 ||
      outputs % *groups != 0) {
    return Mismatch(
        {operation, "groups"},
        absl::StrCat("a positive divisor of ", channels, " and ", outputs),
        groups.has_value() ? absl::StrCat(*groups) : "none");
  }
  shape->groups = *groups;
  shape->cin = channels / *groups;
  shape->cout = outputs / *groups;
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
  BK_RETURN_IF_ERROR(
      ReadShape(kNorm, x, g, LengthOf(sq_norm), attributes, &shape));
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
  BK_RETURN_IF_ERROR(
      ReadShape(kGrad, x, g, LengthOf(sq_norm), attributes, &shape));
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
  BK_RETURN_IF_ERROR(
      ReadShape(kSum, x, g, LengthOf(factor), attributes, &shape));
  const ffi::DataType result = AccumulatorType(x.element_type());
  BK_RETURN_IF_ERROR(
      CheckShape({kSum, "factor"}, factor, result, {shape.batch}));
  std::vector<int64_t> dims = KernelDims(shape, {});
  const auto missing = 5 - static_cast<int64_t>(x.dimensions().size());
  dims.erase(dims.begin(), dims.begin() + missing);
  BK_RETURN_IF_ERROR(CheckShape({kSum, "sum"}, sum, result, dims));
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
        .Arg<xla::ffi::AnyBuffer>()  // x (B * images, spatial..., C)
        .Arg<xla::ffi::AnyBuffer>()  // g (B * images, spatial'..., O)
        .Ret<xla::ffi::AnyBuffer>()  // sq_norm (B)
        .Ret<xla::ffi::AnyBuffer>()  // sq_norm_upper (B)
        .Attrs());

XLA_FFI_DEFINE_HANDLER_SYMBOL(
    BkConvGrad, bk::ConvGradImpl,
    xla::ffi::Ffi::Bind()
        .Ctx<xla::ffi::ThreadPool>()
        .Arg<xla::ffi::AnyBuffer>()  // x (B * images, spatial..., C)
        .Arg<xla::ffi::AnyBuffer>()  // g (B * images, spatial'..., O)
        .Ret<xla::ffi::AnyBuffer>()  // grad (B, kD, kH, kW, cin, O)
        .Ret<xla::ffi::AnyBuffer>()  // sq_norm (B)
        .Ret<xla::ffi::AnyBuffer>()  // sq_norm_upper (B)
        .Attrs());

XLA_FFI_DEFINE_HANDLER_SYMBOL(
    BkConvSum, bk::ConvSumImpl,
    xla::ffi::Ffi::Bind()
        .Ctx<xla::ffi::ThreadPool>()
        .Arg<xla::ffi::AnyBuffer>()  // x (B * images, spatial..., C)
        .Arg<xla::ffi::AnyBuffer>()  // factor (B)
        .Arg<xla::ffi::AnyBuffer>()  // g (B * images, spatial'..., O)
        .Ret<xla::ffi::AnyBuffer>()  // sum (spatial kernel..., cin, O)
        .Attrs());
