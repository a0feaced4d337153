// Runs operations by name on the emulated GPU.
#ifndef BK_JAX_TESTS_XLA_PLUGIN_RUN_CUDA_H_
#define BK_JAX_TESTS_XLA_PLUGIN_RUN_CUDA_H_

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/xla_plugin/buffers.h"
#include "xla_plugin/cuda_target.h"
#include "xla_plugin/status.h"

// The kernels that are linked run on the CPU and look at every access;
// who includes this is compiled with CUDA's own headers, as the handlers are.
namespace bk::emulator {
void Register(const void* begin, size_t bytes, const std::string& name);
void Forget(const void* begin);
void UnloadAll();
void SetRecording(bool recording);
int64_t Launches();
}  // namespace bk::emulator

namespace bk {

using Dims = std::vector<int64_t>;

// A buffer that emulated kernels may touch.
class Device : public TestBuffer {
 public:
  Device(ffi::DataType type, const Dims& dims, const std::string& name = "x")
      : TestBuffer(type, dims) {
    size_ = 1;
    for (int64_t dim : dims) size_ *= dim;
    emulator::Register(data<char>(), size_ * ffi::ByteWidth(type), name);
  }
  ~Device() { emulator::Forget(data<char>()); }
  // Small integers, the same ones for the same seed.
  Device& Fill(int seed) {
    std::mt19937 random(seed);
    for (int64_t i = 0; i < size_; ++i) {
      data<float>()[i] = static_cast<float>(random() % 5) - 2;
    }
    return *this;
  }
  std::vector<float> values() {
    return std::vector<float>(data<float>(), data<float>() + size_);
  }

 private:
  int64_t size_;
};

// Runs an operation with a workspace of exactly the size that it asks for.
inline Status RunCuda(const char* name, const std::vector<Buffer>& operands,
                      const std::vector<Buffer>& results,
                      const MapAttributes::Map& map = {}) {
  const MapAttributes attributes(map);
  CallFrame frame = {operands, results, attributes};
  const CudaTarget& target = CudaTargets().at(name);
  int64_t bytes = 0;
  BK_RETURN_IF_ERROR(target.workspace_bytes(frame, &bytes));
  Device workspace(ffi::U8, {bytes}, "workspace");
  if (bytes > 0) frame.results.push_back(workspace);
  // As XLA does it: first everything is initialized, then launches are
  // recorded.
  emulator::UnloadAll();
  const int64_t launches = emulator::Launches();
  BK_RETURN_IF_ERROR(target.load(frame));
  EXPECT_EQ(emulator::Launches(), launches) << name;
  emulator::SetRecording(true);
  const Status status = target.run(frame, /*stream=*/nullptr);
  emulator::SetRecording(false);
  if (status.ok()) {
    EXPECT_GT(emulator::Launches(), launches) << name;
  }
  return status;
}

}  // namespace bk

#endif  // BK_JAX_TESTS_XLA_PLUGIN_RUN_CUDA_H_
