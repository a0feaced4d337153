#include "xla_plugin/conv_checks.h"

#include <optional>
#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "xla_plugin/ffi_helpers.h"

namespace bk {
namespace {

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

}  // namespace

absl::Status ReadConvShape(const char* operation, const ffi::AnyBuffer& x,
                           const ffi::AnyBuffer& g, int64_t batch,
                           const ffi::Dictionary& attributes,
                           ConvShape* shape) {
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

absl::Status ReadConvForm(const char* operation,
                          const ffi::Dictionary& attributes, bool* pixel_gram) {
  const auto form = attributes.get<std::string_view>("form");
  if (!form.has_value() || (*form != "direct" && *form != "pixel_gram")) {
    return Mismatch({operation, "form"}, "\"direct\" or \"pixel_gram\"",
                    form.has_value() ? std::string(*form) : "none");
  }
  *pixel_gram = *form == "pixel_gram";
  return absl::OkStatus();
}

std::vector<int64_t> KernelDims(const ConvShape& s, std::vector<int64_t> lead) {
  lead.insert(lead.end(), {s.kernel[0], s.kernel[1], s.kernel[2], s.cin,
                           s.groups * s.cout});
  return lead;
}

absl::Status CheckConvSum(const char* operation, const ConvShape& shape,
                          const ffi::AnyBuffer& x, const ffi::AnyBuffer& factor,
                          const ffi::AnyBuffer& sum) {
  const ffi::DataType result = AccumulatorType(x.element_type());
  BK_RETURN_IF_ERROR(
      CheckShape({operation, "factor"}, factor, result, {shape.batch}));
  std::vector<int64_t> dims = KernelDims(shape, {});
  const auto missing = 5 - static_cast<int64_t>(x.dimensions().size());
  dims.erase(dims.begin(), dims.begin() + missing);
  return CheckShape({operation, "sum"}, sum, result, dims);
}

}  // namespace bk
