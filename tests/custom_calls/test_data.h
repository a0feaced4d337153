// Inputs for kernel tests, and ways to run kernels on them.
#ifndef BK_JAX_TESTS_CUSTOM_CALLS_TEST_DATA_H_
#define BK_JAX_TESTS_CUSTOM_CALLS_TEST_DATA_H_

#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "custom_calls/cpu/isa/dispatch.h"
#include "custom_calls/element.h"
#include "custom_calls/parallel.h"
#include "custom_calls/reference/convert.h"
#include "gtest/gtest.h"

namespace bk {

using Random = std::mt19937_64;

// An array of `size` elements that starts one element after an aligned address
// and ends where the allocation ends, so that AddressSanitizer sees an
// overrun of one element.
template <class T>
class Array {
 public:
  explicit Array(int64_t size) : elements_(size + 1) {}
  T* data() { return elements_.data() + 1; }
  const T* data() const { return elements_.data() + 1; }
  T& operator[](int64_t i) { return elements_[i + 1]; }
  const T& operator[](int64_t i) const { return elements_[i + 1]; }
  int64_t size() const { return static_cast<int64_t>(elements_.size()) - 1; }

 private:
  std::vector<T> elements_;
};

template <class T>
Array<T> Filled(int64_t size, const std::function<double()>& next) {
  Array<T> array(size);
  for (int64_t i = 0; i < size; ++i) {
    array[i] = reference::FromDouble<T>(next());
  }
  return array;
}

// Small integers: every sum below 2^24 is exact in any order.
template <class T>
Array<T> Integers(Random& random, int64_t size, int limit = 2) {
  std::uniform_int_distribution<int> integer(-limit, limit);
  return Filled<T>(size, [&] { return integer(random); });
}

template <class T>
Array<T> Normals(Random& random, int64_t size, double scale = 1) {
  std::normal_distribution<double> normal(0, scale);
  return Filled<T>(size, [&] { return normal(random); });
}

// Calls test(T()) for every element type.
template <class Test>
void ForEachElementType(Test&& test) {
  {
    SCOPED_TRACE("f32");
    test(float());
  }
  {
    SCOPED_TRACE("bf16");
    test(BFloat16());
  }
  {
    SCOPED_TRACE("f16");
    test(Float16());
  }
  {
    SCOPED_TRACE("f64");
    test(double());
  }
}

// Tests that run once per instruction set of this CPU.
class IsaTest : public testing::TestWithParam<const CpuKernels*> {
 protected:
  const CpuKernels& kernels() const { return *GetParam(); }
  SerialParallel serial_;
  Random random_{20221001};
};

// Tiles in ordinary code, beside the vectors of any CPU.
inline const CpuKernels& SoftTiles() {
  static const CpuKernels table =
      WithTiles("soft_tiles", kBaselineKernels, kSoftTileKernels);
  return table;
}

inline std::vector<const CpuKernels*> SupportedAndSoftTiles() {
  std::vector<const CpuKernels*> tables = SupportedKernels();
  tables.push_back(&SoftTiles());
  return tables;
}

#define BK_INSTANTIATE_FOR_TABLES(Suite, tables)                        \
  INSTANTIATE_TEST_SUITE_P(Isa, Suite, testing::ValuesIn(tables),       \
                           [](const auto& parameter) {                  \
                             return std::string(parameter.param->name); \
                           })
#define BK_INSTANTIATE_FOR_EACH_ISA(Suite) \
  BK_INSTANTIATE_FOR_TABLES(Suite, SupportedKernels())
// For kernels that use tiles.
#define BK_INSTANTIATE_FOR_EACH_ISA_AND_SOFT_TILES(Suite) \
  BK_INSTANTIATE_FOR_TABLES(Suite, SupportedAndSoftTiles())

// Splits items over threads in an order that no pool would choose: thread k
// takes items k, k + threads, ... one by one, from the last to the first.
class StripedParallel final : public Parallel {
 public:
  explicit StripedParallel(int threads) : threads_(threads) {}
  void For(int64_t items, double /*flops_per_item*/,
           const Body& body) override {
    std::vector<std::thread> threads;
    threads.reserve(threads_);
    for (int k = 0; k < threads_; ++k) {
      threads.emplace_back([this, items, k, &body] {
        for (int64_t i = items - 1 - k; i >= 0; i -= threads_) body(i, i + 1);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  int64_t Threads() const override { return threads_; }

 private:
  const int threads_;
};

}  // namespace bk

#endif  // BK_JAX_TESTS_CUSTOM_CALLS_TEST_DATA_H_
