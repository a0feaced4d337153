// The parallel loop on pools that would hang a loop which waits for its tasks.
#include "xla_plugin/parallel_for.h"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <new>
#include <stdexcept>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "tests/xla_plugin/fake_schedulers.h"

namespace bk {
namespace {

// Enough that every item is a task of its own.
constexpr double kManyFlops = 2 * kFlopsPerTask;

// How often each item ran. Not atomic on purpose: ThreadSanitizer shall see it
// if two threads get one item, or if the caller returns too early.
std::vector<int> CountRuns(Scheduler& scheduler, int64_t items,
                           double flops_per_item) {
  std::vector<int> runs(items);
  ParallelFor parallel(scheduler);
  parallel.For(items, flops_per_item, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) ++runs[i];
  });
  return runs;
}

TEST(ParallelForTest, EveryItemRunsOnce) {
  for (int threads : {1, 2, 4}) {
    PoolScheduler pool(threads, threads);
    for (int64_t items : {0, 1, 2, 3, 17, 1000}) {
      for (double flops : {0.0, kFlopsPerTask / 7, kManyFlops}) {
        EXPECT_EQ(CountRuns(pool, items, flops), std::vector<int>(items, 1));
      }
    }
  }
}

// Two items that meet, so each is on a thread of its own; the one that is not
// on the caller's thread finishes later. Not atomic on purpose, as above.
TEST(ParallelForTest, CallerWaitsForItemsOnOtherThreads) {
  PoolScheduler pool(1, 2);
  ParallelFor parallel(pool);
  const std::thread::id caller = std::this_thread::get_id();
  std::atomic<int> arrived{0};
  std::vector<int> finished(2);
  parallel.For(2, kManyFlops, [&](int64_t begin, int64_t /*end*/) {
    arrived.fetch_add(1);
    while (arrived.load() < 2) std::this_thread::yield();
    if (std::this_thread::get_id() != caller) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    finished[begin] = 1;
  });
  EXPECT_EQ(finished, std::vector<int>(2, 1));
}

// A loop that waited for its tasks would never return here.
TEST(ParallelForTest, ReturnsBeforeThePoolRunsAnything) {
  DeferredScheduler deferred(4);
  EXPECT_EQ(CountRuns(deferred, 100, kManyFlops), std::vector<int>(100, 1));
  EXPECT_EQ(deferred.pending(), 3);
  // The loop, its body and the items are gone; late helpers touch none.
  deferred.RunPending();
}

TEST(ParallelForTest, PoolThatRunsTasksInline) {
  InlineScheduler inline_scheduler;
  EXPECT_EQ(CountRuns(inline_scheduler, 9, kManyFlops), std::vector<int>(9, 1));
}

TEST(ParallelForTest, PoolWithoutThreads) {
  for (int64_t threads : {-1, 0, 1}) {
    DeferredScheduler none(threads);
    EXPECT_EQ(CountRuns(none, 9, kManyFlops), std::vector<int>(9, 1));
    EXPECT_EQ(none.pending(), 0);
  }
}

// The shape of XLA on a small machine: the loops themselves run on the only
// thread of the pool whose helpers they ask for, and more loops outside of it.
TEST(ParallelForTest, ConcurrentLoopsOnOneThread) {
  constexpr int kRepeats = 5000;
  std::atomic<int> finished{0};
  {
    PoolScheduler pool(/*threads=*/1, /*claimed=*/2);
    const auto loop = [&] {
      EXPECT_EQ(CountRuns(pool, 3, kManyFlops), std::vector<int>(3, 1));
      finished.fetch_add(1);
    };
    std::thread other([&] {
      for (int i = 0; i < kRepeats; ++i) loop();
    });
    for (int i = 0; i < kRepeats; ++i) pool.Schedule(loop);
    for (int i = 0; i < kRepeats; ++i) loop();
    other.join();
  }
  EXPECT_EQ(finished.load(), 3 * kRepeats);
}

TEST(ParallelForTest, ExceptionReachesTheCallerAfterAllItems) {
  PoolScheduler pool(2, 2);
  ParallelFor parallel(pool);
  std::atomic<int> runs{0};
  const auto body = [&](int64_t begin, int64_t /*end*/) {
    runs.fetch_add(1);
    if (begin == 5) throw std::runtime_error("item 5");
  };
  EXPECT_THROW(parallel.For(20, kManyFlops, body), std::runtime_error);
  EXPECT_EQ(runs.load(), 20);
}

class FailingScheduler final : public Scheduler {
 public:
  int64_t num_threads() const override { return 4; }
  void Schedule(std::function<void()> /*task*/) override {
    throw std::bad_alloc();
  }
};

TEST(ParallelForTest, SchedulerThatFailsOnlyCostsTime) {
  FailingScheduler failing;
  EXPECT_EQ(CountRuns(failing, 9, kManyFlops), std::vector<int>(9, 1));
}

TEST(ItemsPerTaskTest, SmallItemsShareATask) {
  EXPECT_EQ(ItemsPerTask(100, kFlopsPerTask), 1);
  EXPECT_EQ(ItemsPerTask(100, 10 * kFlopsPerTask), 1);
  EXPECT_EQ(ItemsPerTask(100, kFlopsPerTask / 10), 10);
  EXPECT_EQ(ItemsPerTask(100, 0), 100);
  EXPECT_EQ(ItemsPerTask(1, 1), 1);
}

}  // namespace
}  // namespace bk
