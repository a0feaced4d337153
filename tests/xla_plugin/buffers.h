// Buffers made by hand and calls with them, for tests that need no XLA.
#ifndef BK_JAX_TESTS_XLA_PLUGIN_BUFFERS_H_
#define BK_JAX_TESTS_XLA_PLUGIN_BUFFERS_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "xla_plugin/buffer.h"

namespace bk {

// A zero-filled dense array.
class TestBuffer {
 public:
  TestBuffer(ffi::DataType type, std::vector<int64_t> dims)
      : dims_(std::move(dims)), buffer_{{}, type, dims_, nullptr} {
    bytes_.resize(buffer_.Bytes() / sizeof(double) + 1);
    buffer_.data = bytes_.data();
  }
  TestBuffer(const TestBuffer&) = delete;
  TestBuffer& operator=(const TestBuffer&) = delete;

  operator Buffer() const {  // NOLINT: a buffer in all but name
    return buffer_;
  }
  template <class T>
  T* data() {
    return reinterpret_cast<T*>(bytes_.data());
  }

 private:
  std::vector<int64_t> dims_;
  std::vector<double> bytes_;  // aligned for every element type
  Buffer buffer_;
};

}  // namespace bk

#endif  // BK_JAX_TESTS_XLA_PLUGIN_BUFFERS_H_
