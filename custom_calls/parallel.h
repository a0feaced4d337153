// What kernels know about threads: a loop whose iterations may run anywhere.
#ifndef BK_JAX_CUSTOM_CALLS_PARALLEL_H_
#define BK_JAX_CUSTOM_CALLS_PARALLEL_H_

#include <cstdint>
#include <functional>

namespace bk {

class Parallel {
 public:
  // [begin, end): a range of items. Must not throw.
  using Body = std::function<void(int64_t begin, int64_t end)>;

  virtual ~Parallel() = default;

  // Calls `body` on disjoint ranges that cover [0, items), and returns when all
  // of them are done. Which thread runs which range is not specified, so an
  // item writes only what no other item touches; sums over items are made
  // afterwards, in the order of the items. That is why results do not depend
  // on the number of threads. `flops_per_item` decides only how many items are
  // worth one task.
  virtual void For(int64_t items, double flops_per_item, const Body& body) = 0;

  // How many threads there are, the calling one included: a hint at how finely
  // to cut what is the same however it is cut.
  virtual int64_t Threads() const = 0;
};

// Runs everything on the calling thread.
class SerialParallel final : public Parallel {
 public:
  void For(int64_t items, double /*flops_per_item*/,
           const Body& body) override {
    if (items > 0) body(0, items);
  }
  int64_t Threads() const override { return 1; }
};

}  // namespace bk

#endif  // BK_JAX_CUSTOM_CALLS_PARALLEL_H_
