#include "xla_plugin/ffi_frame.h"

namespace bk {
namespace {

Buffer ToBuffer(const ffi::AnyBuffer& from) {
  return {{}, from.element_type(), from.dimensions(), from.untyped_data()};
}

}  // namespace

CallFrame FfiFrame(const ffi::RemainingArgs& operands,
                   const ffi::RemainingRets& results,
                   const Attributes& attributes) {
  CallFrame frame = {{}, {}, attributes};
  frame.operands.reserve(operands.size());
  for (size_t i = 0; i < operands.size(); ++i) {
    frame.operands.push_back(ToBuffer(*operands.get<ffi::AnyBuffer>(i)));
  }
  frame.results.reserve(results.size());
  for (size_t i = 0; i < results.size(); ++i) {
    frame.results.push_back(ToBuffer(**results.get<ffi::AnyBuffer>(i)));
  }
  return frame;
}

}  // namespace bk
