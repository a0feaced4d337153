// Device memory of a GPU. The declarations are those of device_buffer.h, which
// the tests see with the emulation's types of the same names.
#include <cuda_runtime_api.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>

namespace bk::cuda::device {
namespace {

void Check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(error));
  std::abort();
}

}  // namespace

std::string Missing() {
  int devices = 0;
  const cudaError_t error = cudaGetDeviceCount(&devices);
  if (error == cudaSuccess && devices > 0) return "";
  return std::string("no CUDA device, this test needs a GPU and its driver: ") +
         cudaGetErrorString(error);
}

void* Allocate(size_t bytes, const std::string& name) {
  void* memory = nullptr;
  Check(cudaMalloc(&memory, bytes + 1), name.c_str());
  Check(cudaMemset(memory, 0xff, bytes), name.c_str());
  return memory;
}
void Release(void* memory) { Check(cudaFree(memory), "cudaFree"); }
void CopyIn(void* to, const void* from, size_t bytes) {
  Check(cudaMemcpy(to, from, bytes, cudaMemcpyHostToDevice), "copy in");
}
void CopyOut(void* to, const void* from, size_t bytes) {
  Check(cudaDeviceSynchronize(), "kernel");
  Check(cudaMemcpy(to, from, bytes, cudaMemcpyDeviceToHost), "copy out");
}
std::string TextOf(cudaError_t error) { return cudaGetErrorString(error); }
void LimitBlocks(int64_t /*blocks*/) {}
std::optional<int64_t> Accesses() { return std::nullopt; }
std::optional<int64_t> Launches() { return std::nullopt; }
bool SetTensorCoreError(int /*direction*/) { return false; }
bool CountBankConflicts(bool /*count*/) { return false; }
struct BankConflict {
  int factor;
  std::string text;
};
BankConflict WorstBankConflict() { return {0, ""}; }

}  // namespace bk::cuda::device
