#include "tests/cuda_on_cpu/emulator.h"

#include <pthread.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <set>
#include <sstream>
#include <vector>

#include "tests/cuda_on_cpu/async_copy.h"
#include "tests/cuda_on_cpu/bank_conflicts.h"
#include "tests/cuda_on_cpu/cuda_on_cpu.h"
#include "tests/cuda_on_cpu/fiber.h"
#include "tests/cuda_on_cpu/warpgroup.h"

// Begin and end of the program's own constants and variables.
extern "C" const char __executable_start;  // NOLINT
extern "C" const char _end;                // NOLINT

namespace bk::emulator {
namespace {

constexpr size_t kStackBytes = size_t{1} << 17;

enum class State { kReady, kAtBarrier, kInWarp, kDone };

struct Thread {
  Context context;
  State state = State::kDone;
  Site site = {"", 0};
  uint32_t mask = 0;             // of the operation that it waits in
  bool orders = false;           // whether that operation orders accesses
  uint32_t exchanges = 0;        // operations of the warp so far
  uint32_t warp_operations = 0;  // of wmma, counted only
  uint32_t proxy_fences = 0;
};

struct Warp {
  uint32_t barriers = 0;
  // By parity: a lane may bring its next value before another has read.
  std::array<std::array<Payload, kWarpSize>, 2> values;
};

class Grid {
 public:
  bool Run(int64_t blocks, int threads, Kernel kernel, const void* closure);
  void SyncThreads(Site site);
  const Payload* Exchange(uint32_t mask, const Payload& mine, bool orders,
                          Site site);
  bool MayLaunch(KernelCode kernel);
  void Load(KernelCode kernel) { loaded_.insert(kernel); }
  void UnloadAll() { loaded_.clear(); }
  void SetRecording(bool recording) { recording_ = recording; }
  int64_t Launches() const { return launch_; }
  int64_t Accesses() const { return accesses_; }
  void NoteWarpOperation() { ++threads_[current_].warp_operations; }
  void NoteProxyFence() { ++threads_[current_].proxy_fences; }
  uint32_t ProxyFencesOf(uint32_t thread) const {
    return threads_[thread].proxy_fences;
  }
  int Current() const { return current_; }
  void Check(const void* address, size_t bytes, Access access,
             const void* code);
  Moment Now() const;
  std::string WhoRuns() const;
  void CheckAligned(const void* address, size_t bytes, const char* what);
  [[noreturn]] void Abandon(const std::string& problem);
  const std::string& Problem() const { return problem_; }

 private:
  static void Entry();
  void RunBlock();
  bool Step();
  void Resume(int thread);
  bool ReleaseWarp(int warp);
  bool ReleaseBlock();
  void CheckWarpsAgree();
  void Fail(const std::string& problem);
  bool OnAnyStack(uintptr_t address) const;
  void FindStacks();
  std::string Where(int thread) const;

  std::array<Thread, kMaxThreads> threads_;
  std::array<Warp, kMaxThreads / kWarpSize> warps_;
  Context scheduler_;
  Kernel kernel_ = nullptr;
  const void* closure_ = nullptr;
  char* stacks_ = nullptr;
  uintptr_t host_stack_begin_ = 0, host_stack_end_ = 0;
  int count_ = 0;
  int current_ = -1;  // -1: no device code runs
  int64_t block_ = 0;
  uint32_t launch_ = 0;
  uint32_t barriers_ = 0;
  bool backwards_ = false;
  bool recording_ = false;
  int64_t accesses_ = 0;
  std::set<KernelCode> loaded_;
  std::string problem_;
};

Grid& TheGrid() {
  static Grid grid;  // not on the heap: device code may read it
  return grid;
}

int64_t max_blocks = 0;

void Grid::FindStacks() {
  if (stacks_ != nullptr) return;
  void* memory =
      mmap(nullptr, kStackBytes * kMaxThreads, PROT_READ | PROT_WRITE,
           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) std::abort();
  stacks_ = static_cast<char*>(memory);
  pthread_attr_t attributes;
  void* begin = nullptr;
  size_t bytes = 0;
  pthread_getattr_np(pthread_self(), &attributes);
  pthread_attr_getstack(&attributes, &begin, &bytes);
  pthread_attr_destroy(&attributes);
  host_stack_begin_ = reinterpret_cast<uintptr_t>(begin);
  host_stack_end_ = host_stack_begin_ + bytes;
}

bool Grid::OnAnyStack(uintptr_t address) const {
  const auto stacks = reinterpret_cast<uintptr_t>(stacks_);
  return address - stacks < kStackBytes * kMaxThreads ||
         (address >= host_stack_begin_ && address < host_stack_end_);
}

bool Grid::Run(int64_t blocks, int threads, Kernel kernel,
               const void* closure) {
  FindStacks();
  kernel_ = kernel;
  closure_ = closure;
  count_ = threads;
  problem_.clear();
  ++launch_;
  blockDim = {static_cast<unsigned>(threads), 1, 1};
  gridDim = {static_cast<unsigned>(blocks), 1, 1};
  for (block_ = 0; block_ < blocks && problem_.empty(); ++block_) RunBlock();
  return problem_.empty();
}

bool Grid::MayLaunch(KernelCode kernel) {
  problem_.clear();
  if (!recording_) Load(kernel);
  if (loaded_.count(kernel) == 0) {
    Fail(
        "not loaded: the first launch of a kernel, while launches are "
        "recorded");
  }
  return problem_.empty();
}

void Grid::Entry() {
  Grid& grid = TheGrid();
  grid.kernel_(grid.closure_);
  Thread& thread = grid.threads_[grid.current_];
  thread.state = State::kDone;
  Switch(&thread.context, &grid.scheduler_);
  std::abort();  // nobody resumes a thread that is done
}

void Grid::RunBlock() {
  barriers_ = 0;
  blockIdx = {static_cast<unsigned>(block_), 0, 0};
  ResetShared();
  for (int i = 0; i < count_; ++i) {
    threads_[i].state = State::kReady;
    threads_[i].exchanges = threads_[i].warp_operations = 0;
    threads_[i].proxy_fences = 0;
    Prepare(&threads_[i].context, stacks_ + i * kStackBytes, kStackBytes,
            &Grid::Entry);
  }
  for (int i = 0; i * kWarpSize < count_; ++i) warps_[i].barriers = 0;
  ForgetCopies();
  ForgetProducts();
  while (problem_.empty() && Step()) {
  }
  Fail(UnfinishedCopies());
  Fail(UnfinishedProducts(count_));
}

// Runs every thread that can run, then lets go on who waits; false at the end.
bool Grid::Step() {
  for (int i = 0; i < count_ && problem_.empty(); ++i) {
    const int thread = backwards_ ? count_ - 1 - i : i;
    if (threads_[thread].state == State::kReady) Resume(thread);
  }
  backwards_ = !backwards_;  // no program may depend on the order
  if (!problem_.empty()) return false;
  bool released = false;
  for (int i = 0; i * kWarpSize < count_; ++i) released |= ReleaseWarp(i);
  return released || ReleaseBlock();
}

void Grid::Resume(int thread) {
  current_ = thread;
  threadIdx = {static_cast<unsigned>(thread), 0, 0};
  Switch(&scheduler_, &threads_[thread].context);
  current_ = -1;
}

std::string Grid::Where(int thread) const {
  std::ostringstream text;
  text << "thread " << thread << " of block " << block_;
  if (threads_[thread].state == State::kDone) {
    text << " has returned";
  } else {
    text << " waits at " << threads_[thread].site.file << ":"
         << threads_[thread].site.line;
  }
  return text.str();
}

void Grid::Fail(const std::string& problem) {
  if (problem_.empty()) problem_ = problem;
}

// Leaves the running thread for good, and the launch with it.
void Grid::Abandon(const std::string& problem) {
  Fail(problem);
  Switch(&threads_[current_].context, &scheduler_);
  std::abort();
}

bool SameSite(const Site& x, const Site& y) {
  return x.line == y.line && std::string(x.file) == y.file;
}

// Lanes go on when all lanes of their mask have come to the same operation.
bool Grid::ReleaseWarp(int warp) {
  const int first = warp * kWarpSize;
  const int last = std::min(first + kWarpSize, count_);
  int waiting = first;
  while (waiting < last && threads_[waiting].state != State::kInWarp) ++waiting;
  if (waiting == last) return false;
  const Thread& leader = threads_[waiting];
  for (int lane = 0; lane < kWarpSize; ++lane) {
    if ((leader.mask >> lane & 1) == 0) continue;
    const int other = first + lane;
    if (other >= last || threads_[other].state != State::kInWarp ||
        !SameSite(threads_[other].site, leader.site)) {
      Fail("divergence in a warp: " + Where(waiting) + ", " +
           (other < last ? Where(other) : "a lane that does not exist"));
      return false;
    }
  }
  for (int lane = 0; lane < kWarpSize; ++lane) {
    if ((leader.mask >> lane & 1) != 0) {
      threads_[first + lane].state = State::kReady;
    }
  }
  if (leader.orders) ++warps_[warp].barriers;
  EndOfAccesses(static_cast<uint32_t>(warp));
  return true;
}

bool Grid::ReleaseBlock() {
  if (!problem_.empty()) return false;
  const auto* begin = threads_.data();
  const auto* end = begin + count_;
  const auto waits = [](const Thread& t) { return t.state != State::kDone; };
  const auto* leader = std::find_if(begin, end, waits);
  CheckWarpsAgree();
  for (int i = 0; i * kWarpSize < count_; ++i) EndOfAccesses(i);
  if (leader == end || !problem_.empty()) return false;
  for (const auto* other = begin; other != end; ++other) {
    if (other->state == State::kAtBarrier &&
        SameSite(other->site, leader->site)) {
      continue;
    }
    Fail("divergence at a barrier: " + Where(static_cast<int>(leader - begin)) +
         ", " + Where(static_cast<int>(other - begin)));
    return false;
  }
  for (int i = 0; i < count_; ++i) threads_[i].state = State::kReady;
  ++barriers_;
  return true;
}

void Grid::CheckWarpsAgree() {
  for (int i = 0; i < count_; ++i) {
    const int first = i / kWarpSize * kWarpSize;
    if (threads_[i].warp_operations != threads_[first].warp_operations) {
      Fail(
          "divergence in a warp: lanes have made unequal numbers of wmma "
          "calls; " +
          Where(first) + ", " + Where(i));
    }
  }
}

void Grid::SyncThreads(Site site) {
  Thread& thread = threads_[current_];
  thread.state = State::kAtBarrier;
  thread.site = site;
  Switch(&thread.context, &scheduler_);
}

const Payload* Grid::Exchange(uint32_t mask, const Payload& mine, bool orders,
                              Site site) {
  Thread& thread = threads_[current_];
  auto& values = warps_[current_ / kWarpSize].values[thread.exchanges++ % 2];
  values[current_ % kWarpSize] = mine;
  thread.state = State::kInWarp;
  thread.site = site;
  thread.mask = mask;
  thread.orders = orders;
  Switch(&thread.context, &scheduler_);
  return values.data();
}

Moment Grid::Now() const {
  return {launch_,
          static_cast<uint32_t>(block_),
          static_cast<uint32_t>(current_),
          barriers_,
          warps_[current_ / kWarpSize].barriers,
          threads_[current_].proxy_fences};
}

std::string Grid::WhoRuns() const {
  return " (thread " + std::to_string(current_) + " of block " +
         std::to_string(block_) + ")";
}

void Grid::Check(const void* address, size_t bytes, Access access,
                 const void* code) {
  if (current_ < 0) return;
  const auto number = reinterpret_cast<uintptr_t>(address);
  if (OnAnyStack(number)) return;
  const bool own = address >= &__executable_start && address < &_end;
  if (own) return;
  ++accesses_;
  const std::string problem = emulator::Check(address, bytes, access, Now());
  if (!problem.empty()) Abandon(problem + WhoRuns());
  NoteSharedAccess(current_, code, address, bytes,
                   access == Access::kRead ? "a load" : "a store");
}

// Of memory that kernels share; what a thread has for itself a GPU keeps in
// registers.
void Grid::CheckAligned(const void* address, size_t bytes, const char* what) {
  const auto number = reinterpret_cast<uintptr_t>(address);
  if (current_ < 0 || number % bytes == 0 || OnAnyStack(number)) return;
  std::ostringstream text;
  text << "misaligned: " << what << " at " << address
       << ", which is not a multiple of " << bytes << " bytes";
  Abandon(text.str() + WhoRuns());
}

}  // namespace

bool Run(int64_t blocks, int threads, Kernel kernel, const void* closure) {
  return TheGrid().Run(blocks, threads, kernel, closure);
}
void SetMaxBlocks(int64_t blocks) { max_blocks = blocks; }
int64_t MaxBlocks() { return max_blocks; }
void Load(KernelCode kernel) { TheGrid().Load(kernel); }
void UnloadAll() { TheGrid().UnloadAll(); }
void SetRecording(bool recording) { TheGrid().SetRecording(recording); }
bool MayLaunch(KernelCode kernel) { return TheGrid().MayLaunch(kernel); }
int64_t Launches() { return TheGrid().Launches(); }
int64_t Accesses() { return TheGrid().Accesses(); }
const std::string& LastProblem() { return TheGrid().Problem(); }
void SyncThreads(Site site) { TheGrid().SyncThreads(site); }
void SyncWarp(uint32_t mask, Site site) {
  TheGrid().Exchange(mask, {}, true, site);
}
const Payload* ExchangeInWarp(uint32_t mask, const Payload& mine, Site site) {
  return TheGrid().Exchange(mask, mine, false, site);
}
void NoteWarpOperation() { TheGrid().NoteWarpOperation(); }
void NoteProxyFence() { TheGrid().NoteProxyFence(); }
uint32_t ProxyFencesOf(uint32_t thread) {
  return TheGrid().ProxyFencesOf(thread);
}
int Lane() { return TheGrid().Current() % kWarpSize; }
Moment Now() { return TheGrid().Now(); }
std::string WhoRuns() { return TheGrid().WhoRuns(); }
void CheckAccess(const void* address, size_t bytes, Access access,
                 const void* code) {
  TheGrid().Check(address, bytes, access, code);
}
void CheckAligned(const void* address, size_t bytes, const char* what) {
  TheGrid().CheckAligned(address, bytes, what);
}
void Abandon(const std::string& problem) { TheGrid().Abandon(problem); }

}  // namespace bk::emulator
