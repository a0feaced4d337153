// A GPU: memory, streams, events and graphs by CUDA's runtime.
#include <cuda_runtime_api.h>

#include <cstdio>
#include <cstdlib>

#include "benchmarks/gpu/device/device.h"

namespace bk::bench {
namespace {

void Check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(error));
  std::abort();
}

cudaStream_t StreamOf(void* stream) {
  return static_cast<cudaStream_t>(stream);
}

int Attribute(cudaDeviceAttr attribute) {
  int value = 0;
  Check(cudaDeviceGetAttribute(&value, attribute, 0), "attribute");
  return value;
}

// 13000 is 13.0.
std::string VersionText(int version) {
  return std::to_string(version / 1000) + "." +
         std::to_string(version % 1000 / 10);
}

}  // namespace

std::string Missing() {
  int devices = 0;
  const cudaError_t error = cudaGetDeviceCount(&devices);
  if (error == cudaSuccess && devices > 0) return "";
  return std::string("no CUDA device: ") + cudaGetErrorString(error);
}

bool IsEmulated() { return false; }

std::vector<std::pair<std::string, std::string>> Describe() {
  cudaDeviceProp properties;
  int driver = 0, runtime = 0;
  Check(cudaGetDeviceProperties(&properties, 0), "properties");
  Check(cudaDriverGetVersion(&driver), "driver version");
  Check(cudaRuntimeGetVersion(&runtime), "runtime version");
  return {
      {"name", properties.name},
      {"compute_capability", std::to_string(properties.major) + "." +
                                 std::to_string(properties.minor)},
      {"driver_cuda", VersionText(driver)},
      {"runtime_cuda", VersionText(runtime)},
      {"multiprocessors", std::to_string(properties.multiProcessorCount)},
      {"clock_khz", std::to_string(Attribute(cudaDevAttrClockRate))},
      {"memory_clock_khz",
       std::to_string(Attribute(cudaDevAttrMemoryClockRate))},
      {"memory_bus_bits",
       std::to_string(Attribute(cudaDevAttrGlobalMemoryBusWidth))},
      {"l2_bytes", std::to_string(properties.l2CacheSize)},
      {"total_bytes", std::to_string(properties.totalGlobalMem)},
      {"free_bytes", std::to_string(FreeBytes())},
      {"ecc", std::to_string(properties.ECCEnabled)},
  };
}

// Filled with NaN, as nobody may count on zeros.
void* Allocate(size_t bytes, const std::string& name) {
  void* memory = nullptr;
  Check(cudaMalloc(&memory, bytes + 1), name.c_str());
  Check(cudaMemset(memory, 0xff, bytes), name.c_str());
  Wait();  // other streams do not
  return memory;
}
void Release(void* memory) { Check(cudaFree(memory), "cudaFree"); }
size_t FreeBytes() {
  size_t free = 0, total = 0;
  Check(cudaMemGetInfo(&free, &total), "free memory");
  return free;
}
void CopyIn(void* to, const void* from, size_t bytes) {
  Check(cudaMemcpy(to, from, bytes, cudaMemcpyHostToDevice), "copy in");
}
void CopyOut(void* to, const void* from, size_t bytes) {
  Wait();
  Check(cudaMemcpy(to, from, bytes, cudaMemcpyDeviceToHost), "copy out");
}

std::string TextOf(int error) {
  return cudaGetErrorString(static_cast<cudaError_t>(error));
}

void* NewStream() {
  cudaStream_t stream = nullptr;
  Check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");
  return stream;
}
void Wait() { Check(cudaDeviceSynchronize(), "kernel"); }

double Seconds(void* stream, const std::function<void()>& enqueue) {
  cudaEvent_t begin, end;
  Check(cudaEventCreate(&begin), "event");
  Check(cudaEventCreate(&end), "event");
  Check(cudaEventRecord(begin, StreamOf(stream)), "event");
  enqueue();
  Check(cudaEventRecord(end, StreamOf(stream)), "event");
  Check(cudaEventSynchronize(end), "kernel");
  float milliseconds = 0;
  Check(cudaEventElapsedTime(&milliseconds, begin, end), "event");
  Check(cudaEventDestroy(begin), "event");
  Check(cudaEventDestroy(end), "event");
  return 1e-3 * static_cast<double>(milliseconds);
}

void Replay(void* stream, const std::function<void()>& enqueue, int times) {
  cudaGraph_t graph;
  cudaGraphExec_t program;
  Check(cudaStreamBeginCapture(StreamOf(stream),
                               cudaStreamCaptureModeThreadLocal),
        "capture");
  enqueue();
  Check(cudaStreamEndCapture(StreamOf(stream), &graph), "capture");
  Check(cudaGraphInstantiate(&program, graph, 0), "graph");
  for (int k = 0; k < times; ++k) {
    Check(cudaGraphLaunch(program, StreamOf(stream)), "graph");
  }
  Wait();
  Check(cudaGraphExecDestroy(program), "graph");
  Check(cudaGraphDestroy(graph), "graph");
}

bool SetTensorCoreError(int /*error*/) { return false; }

}  // namespace bk::bench
