#include "custom_calls/cpu/scratch.h"

#include <cstddef>
#include <memory>
#include <new>

#include "custom_calls/cpu/isa/kernels.h"

namespace bk {
namespace {

constexpr std::align_val_t kAlignment{kScratchAlignment};

struct Release {
  void operator()(void* data) const { ::operator delete(data, kAlignment); }
};

struct Buffer {
  std::unique_ptr<void, Release> data;
  int64_t bytes = 0;
};

}  // namespace

void* ThreadScratch(int64_t bytes) {
  thread_local Buffer buffer;
  if (bytes > buffer.bytes) {
    // The old block goes first, so that both never exist at once.
    buffer = Buffer();
    buffer.data.reset(
        ::operator new(static_cast<std::size_t>(bytes), kAlignment));
    buffer.bytes = bytes;
  }
  return buffer.data.get();
}

}  // namespace bk
