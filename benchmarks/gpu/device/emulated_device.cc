// The emulated device: blocks and threads one after the other on the CPU, every
// access looked up. Its seconds are those of the emulation.
#include <chrono>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>

#include "benchmarks/gpu/device/device.h"
#include "tests/cuda_on_cpu/emulator.h"
#include "tests/cuda_on_cpu/tensor_core.h"

namespace bk::bench {
namespace {

// Around every buffer, so that no small step leads into another one.
constexpr size_t kMargin = 4096;

std::map<void*, std::unique_ptr<char[]>>& Blocks() {
  static auto* blocks = new std::map<void*, std::unique_ptr<char[]>>();
  return *blocks;
}

}  // namespace

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
  auto block = std::make_unique<char[]>(bytes + 3 * kMargin);
  const auto begin = reinterpret_cast<uintptr_t>(block.get());
  // NOLINTNEXTLINE(performance-no-int-to-ptr)
  auto* memory = reinterpret_cast<char*>((begin / kMargin + 2) * kMargin);
  std::memset(memory, 0xff, bytes);
  emulator::Register(memory, bytes, name);
  Blocks()[memory] = std::move(block);
  return memory;
}
void Release(void* memory) {
  emulator::Forget(memory);
  Blocks().erase(memory);
}
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
