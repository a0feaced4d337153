// Arrays of more than 2^32 elements, of which only the pages that are written
// exist, and a loop that visits only their far end. So offsets are tested where
// 32 bits would wrap around, in little memory and time.
#ifndef BK_JAX_TESTS_CUSTOM_CALLS_FAR_MEMORY_H_
#define BK_JAX_TESTS_CUSTOM_CALLS_FAR_MEMORY_H_

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <new>

#include "custom_calls/parallel.h"
#include "tests/custom_calls/test_data.h"

namespace bk {

// Zeros where nothing was written.
template <class T>
class FarArray {
 public:
  explicit FarArray(int64_t size) : size_(size) {
    EXPECT_GT(size, int64_t{1} << 32) << "not far";
    void* pages = mmap(nullptr, Bytes(), PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (pages == MAP_FAILED) throw std::bad_alloc();
    data_ = static_cast<T*>(pages);
  }
  FarArray(const FarArray&) = delete;
  FarArray& operator=(const FarArray&) = delete;
  ~FarArray() { munmap(data_, Bytes()); }

  T* data() { return data_; }
  const T* data() const { return data_; }
  // Elements [size - count, size).
  T* Last(int64_t count) { return data_ + size_ - count; }
  // Writes all of `values` to the end.
  void PutLast(const Array<T>& values) {
    std::copy_n(values.data(), values.size(), Last(values.size()));
  }

 private:
  size_t Bytes() const { return static_cast<size_t>(size_) * sizeof(T); }
  const int64_t size_;
  T* data_ = nullptr;
};

// Runs only some of the first and of the last items of each loop.
class FarItems final : public Parallel {
 public:
  explicit FarItems(int64_t last = 1, int64_t first = 0)
      : last_(last), first_(first) {}
  void For(int64_t items, double /*flops_per_item*/,
           const Body& body) override {
    const int64_t begin = std::max(items - last_, int64_t{0});
    if (std::min(first_, begin) > 0) body(0, std::min(first_, begin));
    if (begin < items) body(begin, items);
  }
  int64_t Threads() const override { return 4; }

 private:
  const int64_t last_;
  const int64_t first_;
};

}  // namespace bk

#endif  // BK_JAX_TESTS_CUSTOM_CALLS_FAR_MEMORY_H_
