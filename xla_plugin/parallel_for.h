// A parallel loop on somebody else's thread pool that cannot deadlock.
//
// XLA runs handlers on the threads of the very pool it lends us, so waiting for
// tasks that have not started may wait for ever. Here the caller takes work
// itself until none is left and then waits only for ranges that are already
// running on another thread. A helper that starts late finds nothing to do.
#ifndef BK_JAX_XLA_PLUGIN_PARALLEL_FOR_H_
#define BK_JAX_XLA_PLUGIN_PARALLEL_FOR_H_

#include <cstdint>
#include <functional>

#include "custom_calls/parallel.h"

namespace bk {

// A pool: ffi::ThreadPool in production, fakes in tests.
class Scheduler {
 public:
  virtual ~Scheduler() = default;
  virtual int64_t num_threads() const = 0;
  // May run the task now, later, or after the loop has long returned.
  virtual void Schedule(std::function<void()> task) = 0;
};

// Work below this many flop is not worth a task: about 2 microseconds at
// 100 GFLOP/s, the cost of waking a thread.
inline constexpr double kFlopsPerTask = 2e5;

// How many items one task takes. Depends on the work only, never on threads.
int64_t ItemsPerTask(int64_t items, double flops_per_item);

class ParallelFor final : public Parallel {
 public:
  // `scheduler` must outlive this object; its tasks do not refer to either.
  explicit ParallelFor(Scheduler& scheduler) : scheduler_(scheduler) {}

  // If `body` throws, the other ranges still run and one of the exceptions is
  // thrown again here.
  void For(int64_t items, double flops_per_item, const Body& body) override;
  int64_t Threads() const override { return scheduler_.num_threads(); }

 private:
  Scheduler& scheduler_;
};

}  // namespace bk

#endif  // BK_JAX_XLA_PLUGIN_PARALLEL_FOR_H_
