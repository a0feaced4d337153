// The device that the programs of this folder run on: a GPU (gpu_device.cc), or
// the emulated one (emulated_device.cc). Programs are compiled once, with
// CUDA's headers, and linked with either, and with its kernels.
#ifndef BK_JAX_BENCHMARKS_GPU_DEVICE_DEVICE_H_
#define BK_JAX_BENCHMARKS_GPU_DEVICE_DEVICE_H_

#include <cstddef>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace bk::bench {

// Empty, or why there is no device.
std::string Missing();
// Of the emulation, seconds mean nothing.
bool IsEmulated();
// Name, version and so on, in the order in which they are printed.
std::vector<std::pair<std::string, std::string>> Describe();

void* Allocate(size_t bytes, const std::string& name);
void Release(void* memory);
size_t FreeBytes();
void CopyIn(void* to, const void* from, size_t bytes);
// After all that was launched is done.
void CopyOut(void* to, const void* from, size_t bytes);

// What a launcher's error says.
std::string TextOf(int error);

// A stream is a cudaStream_t; it is never given back.
void* NewStream();
void Wait();

// Seconds of what `enqueue` puts into the stream, by events of the device.
double Seconds(void* stream, const std::function<void()>& enqueue);

// Records what `enqueue` puts into the stream, and runs it that many times.
// Everything in it must have been loaded.
void Replay(void* stream, const std::function<void()>& enqueue, int times);

// -1 and 1: tensor cores err by as much as is assumed, 2 by twice as much.
// False where that cannot be asked for.
bool SetTensorCoreError(int error);

}  // namespace bk::bench

#endif  // BK_JAX_BENCHMARKS_GPU_DEVICE_DEVICE_H_
