#include "xla_plugin/parallel_for.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <utility>

namespace bk {
namespace {

// About 50 microseconds: a sleeping thread of a virtual machine is not woken
// sooner.
constexpr int kSpins = 1000;

void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// State shared by the caller and its helpers. Helpers own it jointly, because
// they may start after the caller has returned; `body` lives with the caller
// and is touched only for a claimed task, for which the caller waits.
class Job {
 public:
  Job(int64_t items, int64_t items_per_task, int64_t tasks,
      const Parallel::Body& body)
      : items_(items),
        items_per_task_(items_per_task),
        tasks_(tasks),
        body_(&body) {}

  // Claims and runs tasks until none is left.
  void Work() {
    for (;;) {
      const int64_t task = next_.fetch_add(1, std::memory_order_relaxed);
      if (task >= tasks_) return;
      Finish(Run(task));
    }
  }

  // The last tasks of others end soon, and to sleep and be woken takes longer.
  void WaitForClaimedTasks() {
    for (int i = 0; i < kSpins && !AllDone(); ++i) Pause();
    if (!AllDone()) {
      std::unique_lock<std::mutex> lock(mutex_);
      all_done_.wait(lock, [this] { return AllDone(); });
    }
    if (error_ != nullptr) std::rethrow_exception(error_);
  }

 private:
  bool AllDone() const {
    return done_.load(std::memory_order_acquire) == tasks_;
  }

  void Finish(std::exception_ptr error) {
    if (error != nullptr) {
      const std::lock_guard<std::mutex> lock(mutex_);
      error_ = std::move(error);
    }
    if (done_.fetch_add(1, std::memory_order_acq_rel) + 1 < tasks_) return;
    // Under the lock: a caller that has just seen work left is asleep by then.
    const std::lock_guard<std::mutex> lock(mutex_);
    all_done_.notify_all();
  }

  std::exception_ptr Run(int64_t task) const {
    const int64_t begin = task * items_per_task_;
    try {
      (*body_)(begin, std::min(begin + items_per_task_, items_));
    } catch (...) {
      return std::current_exception();
    }
    return nullptr;
  }

  const int64_t items_;
  const int64_t items_per_task_;
  const int64_t tasks_;
  const Parallel::Body* const body_;
  std::atomic<int64_t> next_{0};
  std::mutex mutex_;
  std::condition_variable all_done_;
  std::atomic<int64_t> done_{0};
  std::exception_ptr error_;  // written under mutex_, read when all is done
};

}  // namespace

int64_t ItemsPerTask(int64_t items, double flops_per_item) {
  const double wanted = kFlopsPerTask / std::max(flops_per_item, 1.0);
  return std::max<int64_t>(
      1, static_cast<int64_t>(std::min(wanted, static_cast<double>(items))));
}

void ParallelFor::For(int64_t items, double flops_per_item, const Body& body) {
  if (items <= 0) return;
  const int64_t items_per_task = ItemsPerTask(items, flops_per_item);
  const int64_t tasks = (items + items_per_task - 1) / items_per_task;
  const int64_t helpers = std::min(scheduler_.num_threads(), tasks) - 1;
  if (helpers <= 0) {
    body(0, items);
    return;
  }
  const auto job = std::make_shared<Job>(items, items_per_task, tasks, body);
  try {
    for (int64_t i = 0; i < helpers; ++i) {
      scheduler_.Schedule([job] { job->Work(); });
    }
  } catch (...) {
    // Helpers are a convenience: without them the caller does the work.
  }
  job->Work();
  job->WaitForClaimedTasks();
}

}  // namespace bk
