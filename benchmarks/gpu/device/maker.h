// What layer.cc, others.cc and noises.cc share: memory of operations, and
// products of cublasLt beside them.
#ifndef BK_JAX_BENCHMARKS_GPU_DEVICE_MAKER_H_
#define BK_JAX_BENCHMARKS_GPU_DEVICE_MAKER_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "benchmarks/gpu/device/layer.h"
#include "custom_calls/cuda/cublas/product.h"
#include "custom_calls/cuda/runtime.h"
#include "custom_calls/element.h"
#include "custom_calls/reference/convert.h"

namespace bk::bench {

inline std::string Text(cudaError_t error) {
  return error == cudaSuccess ? "" : TextOf(static_cast<int>(error));
}

// Products of cublasLt: so many of left^T right, [rows, m] and [rows, n].
struct ProductSizes {
  int64_t count, rows, m, n;
};

template <class T>
class Maker {
 public:
  Operations Take() { return std::move(made_); }

  template <class Element>
  const Memory* New(int64_t size, const std::string& name) {
    const auto bytes =
        static_cast<size_t>(std::max(size, int64_t{1})) * sizeof(Element);
    made_.memory.push_back(std::make_unique<Memory>(bytes, name));
    return made_.memory.back().get();
  }

  // With these elements.
  template <class Element>
  const Memory* Of(const std::vector<Element>& values,
                   const std::string& name) {
    const Memory* memory =
        New<Element>(static_cast<int64_t>(values.size()), name);
    CopyIn(memory->template As<Element>(), values.data(),
           values.size() * sizeof(Element));
    return memory;
  }

  // Never zeros: some clocks rise when nothing toggles. One pattern again and
  // again, as normal numbers take long to make.
  const Memory* Filled(int64_t size, const std::string& name) {
    constexpr int64_t kPattern = 1 << 16;
    const Memory* memory = New<T>(size, name);
    std::mt19937 random(static_cast<unsigned>(made_.memory.size()));
    std::normal_distribution<float> normal;
    std::vector<T> pattern(kPattern);
    for (T& x : pattern) {
      x = reference::FromDouble<T>(static_cast<double>(normal(random)));
    }
    for (int64_t begin = 0; begin < size; begin += kPattern) {
      CopyIn(memory->template As<T>() + begin, pattern.data(),
             static_cast<size_t>(std::min(kPattern, size - begin)) * sizeof(T));
    }
    return memory;
  }

  void Add(Operation operation) { made_.all.push_back(std::move(operation)); }

  // In the precision of the elements, and float32 also in tf32.
  void AddProduct(const std::string& name, double flops,
                  const ProductSizes& sizes) {
    AddProductOf(name, "cublasLt", flops, sizes, cuda::kProductElement<T>);
    if (sizeof(T) == 4) {
      AddProductOf(name, "cublasLt-tf32", flops, sizes,
                   cuda::ProductElement::kTf32);
    }
  }

 private:
  void AddProductOf(const std::string& name, const std::string& maker,
                    double flops, const ProductSizes& z,
                    cuda::ProductElement element) {
    const cuda::Products products = {element, z.count, z.rows, z.m, z.n};
    if (!cuda::CanMultiply(products)) return;
    const Memory* left = Filled(z.count * z.rows * z.m, "left");
    const Memory* right = Filled(z.count * z.rows * z.n, "right");
    const Memory* out = New<float>(z.count * z.m * z.n, "out");
    const Memory* scratch = New<char>(cuda::kProductScratchBytes, "scratch");
    const cuda::ProductOperands operands = {left->As<void>(), right->As<void>(),
                                            out->As<float>(), false};
    const auto bytes = static_cast<double>(
        z.count * (z.rows * (z.m + z.n) * static_cast<int64_t>(sizeof(T)) +
                   z.m * z.n * static_cast<int64_t>(sizeof(float))));
    Add({name,
         maker,
         flops,
         bytes,
         [=](void* stream) -> std::string {
           const cublasStatus_t status = cuda::Multiply(
               products, operands,
               {scratch->As<void>(), size_t{cuda::kProductScratchBytes}},
               static_cast<cudaStream_t>(stream));
           if (status == CUBLAS_STATUS_SUCCESS) return "";
           return cuda::CublasInUse()->cublasLtGetStatusString(status);
         },
         {out}});
  }

  Operations made_;
};

// Each adds what it has for a layer of these sizes (others.cc, noises.cc).
template <class T>
void AddOthers(const DenseShape& shape, Maker<T>& maker);
template <class T>
void AddNoises(const DenseShape& shape, Maker<T>& maker);

}  // namespace bk::bench

#endif  // BK_JAX_BENCHMARKS_GPU_DEVICE_MAKER_H_
