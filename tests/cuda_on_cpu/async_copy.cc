#include "tests/cuda_on_cpu/async_copy.h"

#include <deque>
#include <vector>

#include "tests/cuda_on_cpu/bank_conflicts.h"
#include "tests/cuda_on_cpu/emulator.h"

namespace bk::emulator {
namespace {

struct Copies {
  std::vector<AsyncCopy> open;  // in no group yet
  std::deque<std::vector<AsyncCopy>> groups;
};

Copies& CopiesOf(uint32_t thread) {
  static auto* copies = new std::vector<Copies>(kMaxThreads);
  return (*copies)[thread];
}

void AbandonIf(const std::string& problem) {
  if (!problem.empty()) Abandon(problem + WhoRuns());
}

void Land(const std::vector<AsyncCopy>& group, const Moment& now) {
  for (const AsyncCopy& copy : group) AbandonIf(EndCopy(copy, now));
}

}  // namespace

__attribute__((noinline)) void CopyAsync(void* to, const void* from,
                                         size_t bytes, size_t from_bytes) {
  if ((bytes != 4 && bytes != 8 && bytes != 16) || from_bytes > bytes) {
    Abandon("cp.async of " + std::to_string(bytes) + " bytes, " +
            std::to_string(from_bytes) +
            " of them read: it copies 4, 8 or 16, and reads no more" +
            WhoRuns());
  }
  CheckAligned(to, bytes, "the destination of cp.async");
  CheckAligned(from, bytes, "the source of cp.async");
  if (SharedOffset(to) < 0) {
    Abandon("cp.async to what is not shared memory" + WhoRuns());
  }
  if (from_bytes > 0 && SharedOffset(from) >= 0) {
    Abandon("cp.async from shared memory" + WhoRuns());
  }
  const AsyncCopy copy = {static_cast<char*>(to),
                          static_cast<const char*>(from), bytes, from_bytes};
  const Moment now = Now();
  NoteSharedAccess(now.thread, __builtin_return_address(0), to, bytes,
                   "cp.async");
  AbandonIf(BeginCopy(copy, now));
  CopiesOf(now.thread).open.push_back(copy);
}

void CommitCopies() {
  Copies& copies = CopiesOf(Now().thread);
  copies.groups.push_back(std::move(copies.open));
  copies.open.clear();
}

void WaitForCopies(int groups) {
  const Moment now = Now();
  Copies& copies = CopiesOf(now.thread);
  while (copies.groups.size() > static_cast<size_t>(groups)) {
    const std::vector<AsyncCopy> group = std::move(copies.groups.front());
    copies.groups.pop_front();
    Land(group, now);
  }
}

void WaitForAllCopies() {
  const Moment now = Now();
  WaitForCopies(0);
  const std::vector<AsyncCopy> open = std::move(CopiesOf(now.thread).open);
  CopiesOf(now.thread).open.clear();
  Land(open, now);
}

void ForgetCopies() {
  for (uint32_t thread = 0; thread < kMaxThreads; ++thread) {
    CopiesOf(thread).open.clear();
    CopiesOf(thread).groups.clear();
  }
}

std::string UnfinishedCopies() {
  for (uint32_t thread = 0; thread < kMaxThreads; ++thread) {
    const Copies& copies = CopiesOf(thread);
    size_t left = 0;
    for (const auto& group : copies.groups) left += group.size();
    if (copies.open.empty() && left == 0) continue;
    return "never waited for: " + std::to_string(left) +
           " copies in groups and " + std::to_string(copies.open.size()) +
           " in none at the end of a block, of thread " +
           std::to_string(thread);
  }
  return "";
}

}  // namespace bk::emulator
