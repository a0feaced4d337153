// Memory of a device for tests: of the emulated one, or of a real GPU. The
// tests are compiled once and linked with emulated_device.cc or with
// gpu_device.cc.
#ifndef BK_JAX_TESTS_CUSTOM_CALLS_CUDA_DEVICE_BUFFER_H_
#define BK_JAX_TESTS_CUSTOM_CALLS_CUDA_DEVICE_BUFFER_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "custom_calls/cuda/runtime.h"
#include "gtest/gtest.h"

namespace bk::cuda {

namespace device {

// Empty, or why there is no device.
std::string Missing();
// Memory in which an access outside of `bytes` is an error.
void* Allocate(size_t bytes, const std::string& name);
void Release(void* memory);
void CopyIn(void* to, const void* from, size_t bytes);
// After all that was launched is done.
void CopyOut(void* to, const void* from, size_t bytes);
std::string TextOf(cudaError_t error);
// Grids of at most so many blocks, where that can be asked for; 0: no limit.
void LimitBlocks(int64_t blocks);
// Loads and stores of all kernels so far; nothing where nobody counts them.
std::optional<int64_t> Accesses();
// Launches so far, likewise.
std::optional<int64_t> Launches();
// -1 and 1: tensor cores err by as much as engine.cuh assumes, downwards or
// upwards; 0: as they are. False where that cannot be asked for.
bool SetTensorCoreError(int direction);
// Counts wavefronts of accesses to shared memory from now on, or no more; false
// where nobody can.
bool CountBankConflicts(bool count);
// The largest factor over the ideal since then, and which access it was.
struct BankConflict {
  int factor;
  std::string text;
};
BankConflict WorstBankConflict();

}  // namespace device

// Test suites of kernels: skipped where there is no device.
class DeviceTest : public testing::Test {
 protected:
  void SetUp() override {
    const std::string missing = device::Missing();
    if (!missing.empty()) GTEST_SKIP() << missing;
  }
  void TearDown() override {
    device::LimitBlocks(0);
    device::SetTensorCoreError(0);
    device::CountBankConflicts(false);
  }
};

template <class T>
class DeviceBuffer {
 public:
  explicit DeviceBuffer(int64_t size, const std::string& name = "buffer")
      : size_(size),
        data_(static_cast<T*>(device::Allocate(size * sizeof(T), name))) {}
  // With the elements of `values`, which has data() and size().
  template <class Values>
  static DeviceBuffer Of(const Values& values, const std::string& name) {
    DeviceBuffer buffer(static_cast<int64_t>(values.size()), name);
    device::CopyIn(buffer.data_, values.data(), buffer.size_ * sizeof(T));
    return buffer;
  }
  DeviceBuffer(DeviceBuffer&& other) noexcept
      : size_(other.size_), data_(std::exchange(other.data_, nullptr)) {}
  DeviceBuffer& operator=(DeviceBuffer&&) = delete;
  ~DeviceBuffer() {
    if (data_ != nullptr) device::Release(data_);
  }

  T* data() { return data_; }
  int64_t size() const { return size_; }
  std::vector<T> Get() const {
    std::vector<T> values(size_);
    device::CopyOut(values.data(), data_, size_ * sizeof(T));
    return values;
  }

 private:
  int64_t size_;
  T* data_;
};

// Whether a launcher succeeded; the message is the emulator's, or CUDA's.
inline testing::AssertionResult Succeeded(cudaError_t error) {
  if (error == cudaSuccess) return testing::AssertionSuccess();
  return testing::AssertionFailure() << device::TextOf(error);
}

}  // namespace bk::cuda

#endif  // BK_JAX_TESTS_CUSTOM_CALLS_CUDA_DEVICE_BUFFER_H_
