// A dense layer on the device, and all that our kernels and cublasLt do for it:
// what the benchmark times and what the test of bits repeats.
#ifndef BK_JAX_BENCHMARKS_GPU_DEVICE_LAYER_H_
#define BK_JAX_BENCHMARKS_GPU_DEVICE_LAYER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "benchmarks/gpu/device/device.h"
#include "custom_calls/shapes.h"

namespace bk::bench {

// Memory of the device; the same numbers each time if it is filled.
class Memory {
 public:
  Memory(size_t bytes, const std::string& name)
      : bytes_(bytes), data_(Allocate(bytes, name)) {}
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  ~Memory() { Release(data_); }
  template <class T>
  T* As() const {
    return static_cast<T*>(data_);
  }
  std::vector<char> Bytes() const {
    std::vector<char> bytes(bytes_);
    CopyOut(bytes.data(), data_, bytes_);
    return bytes;
  }
  // So that what was there before cannot pass for a result.
  void Poison() const {
    CopyIn(data_, std::vector<char>(bytes_, '\xff').data(), bytes_);
  }

 private:
  size_t bytes_;
  void* data_;
};

// Something that is enqueued, and what it counts as.
struct Operation {
  std::string name;   // of the kernel
  std::string maker;  // "ours", "cublasLt" or "cublasLt-tf32"
  double flops;       // that are needed: a Gram matrix counts half
  double bytes;       // read once, written once
  // An empty text, or what went wrong.
  std::function<std::string(void* stream)> enqueue;
  std::vector<const Memory*> results;
};

struct Operations {
  // What the operations hold on to.
  std::vector<std::unique_ptr<Memory>> memory;
  std::vector<Operation> all;
};

enum class Type { kF32, kBf16, kF16 };
const char* NameOf(Type type);

// All that fits into the free memory of the device. Operations of cublasLt are
// there if it is in use and has an algorithm.
Operations MakeOperations(const DenseShape& shape, Type type);

}  // namespace bk::bench

#endif  // BK_JAX_BENCHMARKS_GPU_DEVICE_LAYER_H_
