#include "custom_calls/cpu/scratch.h"

#include <cstddef>
#include <new>

#include "custom_calls/cpu/kernels.h"

namespace bk {
namespace {

constexpr std::align_val_t kAlignment{kScratchAlignment};

class Buffer {
 public:
  Buffer() = default;
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer() { Release(); }

  void* AtLeast(int64_t bytes) {
    if (bytes > bytes_) {
      Release();
      data_ = ::operator new(static_cast<std::size_t>(bytes), kAlignment);
      bytes_ = bytes;
    }
    return data_;
  }

 private:
  void Release() {
    ::operator delete(data_, kAlignment);
    data_ = nullptr;
    bytes_ = 0;
  }

  void* data_ = nullptr;
  int64_t bytes_ = 0;
};

}  // namespace

void* ThreadScratch(int64_t bytes) {
  thread_local Buffer buffer;
  return buffer.AtLeast(bytes);
}

}  // namespace bk
