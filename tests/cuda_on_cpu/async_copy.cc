#include "tests/cuda_on_cpu/async_copy.h"

#include <deque>
#include <vector>

#include "tests/cuda_on_cpu/bank_conflicts.h"
#include "tests/cuda_on_cpu/emulator.h"
#include "tests/cuda_on_cpu/instructions.h"
#include "tests/cuda_on_cpu/memory.h"

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

bool any_copies = false;  // in this block

void AbandonIf(const std::string& problem) {
  if (!problem.empty()) Abandon(problem + WhoRuns());
}

void Land(const std::vector<AsyncCopy>& group, const Moment& now) {
  for (const AsyncCopy& copy : group) AbandonIf(EndCopy(copy, now));
}

void CheckSpaces(const AsyncCopy& copy) {
  if (SharedOffset(copy.to) < 0) {
    Abandon("cp.async to what is not shared memory" + WhoRuns());
  }
  if (copy.from_bytes > 0 && SharedOffset(copy.from) >= 0) {
    Abandon("cp.async from shared memory" + WhoRuns());
  }
}

}  // namespace

void CopyAsync(uint32_t to, const void* from, int size, int bytes) {
  if ((size != 4 && size != 8 && size != 16) || bytes < 0 || bytes > size) {
    Abandon("cp.async of " + std::to_string(size) + " bytes, " +
            std::to_string(bytes) +
            " of them read: it copies 4, 8 or 16, and reads no more" +
            WhoRuns());
  }
  const AsyncCopy copy = {SharedBase() + to, static_cast<const char*>(from),
                          static_cast<size_t>(size),
                          static_cast<size_t>(bytes)};
  CheckAligned(copy.to, copy.bytes, "the destination of cp.async");
  CheckAligned(copy.from, copy.bytes, "the source of cp.async");
  CheckSpaces(copy);
  const Moment now = Now();
  AbandonIf(BeginCopy(copy, now));
  NoteSharedAccess(now.thread, __builtin_return_address(0), copy.to, copy.bytes,
                   "cp.async");
  CopiesOf(now.thread).open.push_back(copy);
  any_copies = true;
}

void CommitCopies() {
  Copies& copies = CopiesOf(Now().thread);
  copies.groups.push_back(std::move(copies.open));
  any_copies = true;
  copies.open.clear();
}

void WaitForCopies(int pending) {
  const Moment now = Now();
  Copies& copies = CopiesOf(now.thread);
  while (copies.groups.size() > static_cast<size_t>(pending)) {
    const std::vector<AsyncCopy> group = std::move(copies.groups.front());
    copies.groups.pop_front();
    Land(group, now);
  }
}

void ForgetCopies() {
  if (!any_copies) return;
  any_copies = false;
  for (uint32_t thread = 0; thread < kMaxThreads; ++thread) {
    CopiesOf(thread).open.clear();
    CopiesOf(thread).groups.clear();
  }
}

std::string UnfinishedCopies() {
  if (!any_copies) return "";
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
