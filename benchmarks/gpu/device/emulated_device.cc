// The emulated device: blocks and threads one after the other on the CPU, every
// access looked up. Its seconds are those of the emulation.
#include <chrono>
#include <cstring>

#include "benchmarks/gpu/device/device.h"
#include "tests/cuda_on_cpu/allocation.h"
#include "tests/cuda_on_cpu/emulator.h"
#include "tests/cuda_on_cpu/tensor_core.h"

namespace bk::bench {

std::string Missing() { return ""; }
bool IsEmulated() { return true; }

std::vector<std::pair<std::string, std::string>> Describe() {
  return {{"name", "emulated device"},
          {"compute_capability", "8.0"},
          {"driver_cuda", "13.0"},
          {"runtime_cuda", "13.0"},
          {"free_bytes", std::to_string(FreeBytes())}};
}

void* Allocate(size_t bytes, const std::string& name) {
  return emulator::Allocate(bytes, name);
}
void Release(void* memory) { emulator::Release(memory); }
size_t FreeBytes() { return size_t{1} << 30; }
void CopyIn(void* to, const void* from, size_t bytes) {
  if (bytes != 0) std::memcpy(to, from, bytes);
}
void CopyOut(void* to, const void* from, size_t bytes) {
  if (bytes != 0) std::memcpy(to, from, bytes);
}
std::string TextOf(int /*error*/) { return emulator::LastProblem(); }

// A launch is done when it returns, so that streams differ by nothing.
void* NewStream() { return nullptr; }
void Wait() {}

double Seconds(void* /*stream*/, const std::function<void()>& enqueue) {
  const auto begin = std::chrono::steady_clock::now();
  enqueue();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin)
      .count();
}

// While launches are recorded, those of kernels that were not loaded fail.
void Replay(void* /*stream*/, const std::function<void()>& enqueue, int times) {
  emulator::SetRecording(true);
  for (int k = 0; k < times; ++k) enqueue();
  emulator::SetRecording(false);
}

bool SetTensorCoreError(int error) {
  emulator::tensor_core_error = error;
  return true;
}

}  // namespace bk::bench
