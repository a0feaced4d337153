// Device memory of the emulation.
#include <cstring>

#include "tests/cuda_on_cpu/allocation.h"
#include "tests/cuda_on_cpu/bank_conflicts.h"
#include "tests/cuda_on_cpu/emulator.h"
#include "tests/cuda_on_cpu/tensor_core.h"
#include "tests/custom_calls/cuda/device_buffer.h"

namespace bk::cuda::device {

std::string Missing() { return ""; }

void* Allocate(size_t bytes, const std::string& name) {
  return emulator::Allocate(bytes, name);
}
void Release(void* memory) { emulator::Release(memory); }
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
