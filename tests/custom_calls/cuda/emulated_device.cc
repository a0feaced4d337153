// Device memory of the emulation.
#include <cstring>
#include <map>
#include <memory>

#include "tests/cuda_on_cpu/bank_conflicts.h"
#include "tests/cuda_on_cpu/emulator.h"
#include "tests/cuda_on_cpu/tensor_core.h"
#include "tests/custom_calls/cuda/device_buffer.h"

namespace bk::cuda::device {
namespace {

// Around every buffer, so that no small step leads into another one.
constexpr size_t kMargin = 4096;

std::map<void*, std::unique_ptr<char[]>>& Blocks() {
  static auto* blocks = new std::map<void*, std::unique_ptr<char[]>>();
  return *blocks;
}

}  // namespace

std::string Missing() { return ""; }

// Filled with NaN, as nobody may count on zeros.
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

void CopyIn(void* to, const void* from, size_t bytes) {
  if (bytes != 0) std::memcpy(to, from, bytes);
}
void CopyOut(void* to, const void* from, size_t bytes) {
  if (bytes != 0) std::memcpy(to, from, bytes);
}
std::string TextOf(cudaError_t /*error*/) { return emulator::LastProblem(); }
void LimitBlocks(int64_t blocks) { emulator::SetMaxBlocks(blocks); }
std::optional<int64_t> Accesses() { return emulator::Accesses(); }
std::optional<int64_t> Launches() { return emulator::Launches(); }
bool SetTensorCoreError(int direction) {
  emulator::tensor_core_error = direction;
  return true;
}
bool CountBankConflicts(bool count) {
  emulator::CountBankConflicts(count);
  return true;
}
BankConflict WorstBankConflict() {
  return {emulator::WorstBankConflict(), emulator::WorstBankConflictText()};
}

}  // namespace bk::cuda::device
