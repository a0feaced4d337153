#include "xla_plugin/conv.h"

#include <optional>
#include <string>

#include "xla_plugin/text.h"

namespace bk {
namespace {

// Sizes above this could overflow the arithmetic of positions.
constexpr int64_t kMaxWindow = int64_t{1} << 31;

}  // namespace

Status ConvCall::ReadTriple(const char* name, int64_t low, int64_t (&to)[3]) {
  const auto values = attributes_.IntegerList(name);
  if (!values.has_value() || values->size() != 3) {
    return Mismatch(Attribute(name), "an attribute of three 64-bit integers",
                    "another");
  }
  for (int axis = 0; axis < 3; ++axis) {
    to[axis] = (*values)[axis];
    if (to[axis] < low || to[axis] >= kMaxWindow) {
      return Mismatch(Attribute(name),
                      StrCat("integers from ", low, " to 2^31"),
                      StrCat(to[axis]));
    }
  }
  return OkStatus();
}

// Spatial dimensions that are missing in front have size 1.
Status ConvCall::ReadImages(const Buffer& x, const Buffer& g, int64_t batch) {
  const size_t rank = x.dims.size();
  if (rank < 3 || rank > 5) {
    return Mismatch(x, "rank 3, 4 or 5", ShapeString(x));
  }
  BK_RETURN_IF_ERROR(CheckRank(g, rank));
  std::vector<int64_t> same_images(g.dims.begin(), g.dims.end());
  same_images[0] = x.dims[0];
  BK_RETURN_IF_ERROR(CheckShape(g, x.type, same_images));
  shape.batch = batch;
  shape.images = batch == 0 ? 0 : x.dims[0] / batch;
  if (shape.images * batch != x.dims[0]) {
    return Mismatch(x, StrCat("the same images for ", batch, " examples"),
                    ShapeString(x));
  }
  for (size_t axis = 0; axis < 3; ++axis) {
    const bool missing = axis + rank < 5;
    shape.in[axis] = missing ? 1 : x.dims[axis + rank - 4];
    shape.out[axis] = missing ? 1 : g.dims[axis + rank - 4];
  }
  return OkStatus();
}

Status ConvCall::ReadGroups(int64_t channels, int64_t outputs) {
  const std::optional<int64_t> groups = attributes_.Integer("groups");
  if (!groups.has_value() || *groups < 1 || channels % *groups != 0 ||
      outputs % *groups != 0) {
    return Mismatch(
        Attribute("groups"),
        StrCat("a positive divisor of ", channels, " and ", outputs),
        groups.has_value() ? StrCat(*groups) : "none");
  }
  shape.groups = *groups;
  shape.cin = channels / *groups;
  shape.cout = outputs / *groups;
  return OkStatus();
}

Status ConvCall::ReadShape(const Buffer& x, const Buffer& g, int64_t batch) {
  BK_RETURN_IF_ERROR(ReadImages(x, g, batch));
  BK_RETURN_IF_ERROR(ReadTriple("kernel", 0, shape.kernel));
  BK_RETURN_IF_ERROR(ReadTriple("stride", 1, shape.stride));
  BK_RETURN_IF_ERROR(ReadTriple("low", -kMaxWindow, shape.low));
  BK_RETURN_IF_ERROR(ReadTriple("input_dilation", 1, shape.input_dilation));
  BK_RETURN_IF_ERROR(ReadTriple("dilation", 1, shape.dilation));
  return ReadGroups(x.dims.back(), g.dims.back());
}

std::vector<int64_t> ConvCall::KernelDims(std::vector<int64_t> lead) const {
  lead.insert(lead.end(), {shape.kernel[0], shape.kernel[1], shape.kernel[2],
                           shape.cin, shape.groups * shape.cout});
  return lead;
}

}  // namespace bk
