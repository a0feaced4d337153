// XLA buffers made by hand, for tests that need no XLA.
#ifndef BK_JAX_TESTS_XLA_PLUGIN_BUFFERS_H_
#define BK_JAX_TESTS_XLA_PLUGIN_BUFFERS_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "xla/ffi/api/ffi.h"

namespace bk {

// A zero-filled dense array with an AnyBuffer that looks at it.
class TestBuffer {
 public:
  TestBuffer(xla::ffi::DataType type, std::vector<int64_t> dims)
      : dims_(std::move(dims)) {
    int64_t size = static_cast<int64_t>(xla::ffi::ByteWidth(type));
    for (int64_t dim : dims_) size *= dim;
    bytes_.resize(size / sizeof(double) + 1);
    buffer_.struct_size = XLA_FFI_Buffer_STRUCT_SIZE;
    buffer_.extension_start = nullptr;
    buffer_.dtype = static_cast<XLA_FFI_DataType>(type);
    buffer_.data = bytes_.data();
    buffer_.rank = static_cast<int64_t>(dims_.size());
    buffer_.dims = dims_.data();
  }
  TestBuffer(const TestBuffer&) = delete;
  TestBuffer& operator=(const TestBuffer&) = delete;

  operator xla::ffi::AnyBuffer() const {  // NOLINT: a buffer in all but name
    return xla::ffi::AnyBuffer(&buffer_);
  }
  template <class T>
  T* data() {
    return reinterpret_cast<T*>(bytes_.data());
  }

 private:
  std::vector<int64_t> dims_;
  std::vector<double> bytes_;  // aligned for every element type
  XLA_FFI_Buffer buffer_;
};

}  // namespace bk

#endif  // BK_JAX_TESTS_XLA_PLUGIN_BUFFERS_H_
