// Pools that behave as badly as the contract of Scheduler allows.
#ifndef BK_JAX_TESTS_XLA_PLUGIN_FAKE_SCHEDULERS_H_
#define BK_JAX_TESTS_XLA_PLUGIN_FAKE_SCHEDULERS_H_

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "xla_plugin/parallel_for.h"

namespace bk {

// Claims to have threads, but runs tasks only when told to.
class DeferredScheduler final : public Scheduler {
 public:
  explicit DeferredScheduler(int64_t threads) : threads_(threads) {}
  int64_t num_threads() const override { return threads_; }
  void Schedule(std::function<void()> task) override {
    tasks_.push_back(std::move(task));
  }
  int64_t pending() const { return static_cast<int64_t>(tasks_.size()); }
  void RunPending() {
    for (auto& task : tasks_) task();
    tasks_.clear();
  }

 private:
  const int64_t threads_;
  std::vector<std::function<void()>> tasks_;
};

// Runs tasks on the spot, like ffi::ThreadPool when XLA lends no pool.
class InlineScheduler final : public Scheduler {
 public:
  int64_t num_threads() const override { return 4; }
  void Schedule(std::function<void()> task) override { task(); }
};

// Real threads with one queue. `claimed` is what it says of itself, which may
// be more than it has.
class PoolScheduler final : public Scheduler {
 public:
  PoolScheduler(int threads, int64_t claimed) : claimed_(claimed) {
    for (int i = 0; i < threads; ++i) {
      threads_.emplace_back([this] { Run(); });
    }
  }
  ~PoolScheduler() override {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }
  int64_t num_threads() const override { return claimed_; }
  void Schedule(std::function<void()> task) override {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      tasks_.push_back(std::move(task));
    }
    changed_.notify_one();
  }

 private:
  // Finishes what is queued before it stops.
  void Run() {
    std::unique_lock<std::mutex> lock(mutex_);
    for (;;) {
      changed_.wait(lock, [this] { return stopping_ || !tasks_.empty(); });
      if (tasks_.empty()) return;
      const std::function<void()> task = std::move(tasks_.front());
      tasks_.pop_front();
      lock.unlock();
      task();
      lock.lock();
    }
  }

  const int64_t claimed_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> tasks_;  // guarded by mutex_
  bool stopping_ = false;                    // guarded by mutex_
  std::vector<std::thread> threads_;
};

}  // namespace bk

#endif  // BK_JAX_TESTS_XLA_PLUGIN_FAKE_SCHEDULERS_H_
