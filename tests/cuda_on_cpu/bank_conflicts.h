// How many times as long as it has to be an access to shared memory takes,
// because lanes of a warp want different words of one bank.
//
// There are 32 banks of 4 bytes, and 128 bytes pass at a time: a warp with 4
// bytes per lane makes one phase of 32 lanes, with 8 bytes two of 16, with 16
// bytes four of 8. ldmatrix has a phase for every matrix. A phase takes as many
// wavefronts as the busiest bank has different words in it; one is ideal, and
// the number of wavefronts is the factor.
//
// Which accesses belong together is known for ldmatrix. Others are put together
// by the instruction that makes them and by how often the lane has made it
// since the warp was last together. Counting costs time: it is off unless asked
// for.
#ifndef BK_JAX_TESTS_CUDA_ON_CPU_BANK_CONFLICTS_H_
#define BK_JAX_TESTS_CUDA_ON_CPU_BANK_CONFLICTS_H_

#include <cstddef>
#include <cstdint>
#include <string>

namespace bk::emulator {

// Starts to count, from nothing, or stops.
void CountBankConflicts(bool count);
// The largest factor since then; 1 if there was no conflict, 0 if no access.
int WorstBankConflict();
// Which access it was.
std::string WorstBankConflictText();

// For the emulator. The lane `thread` % 32 touches `bytes` at `address`, by the
// instruction at `code`; only shared memory is looked at.
void NoteSharedAccess(uint32_t thread, const void* code, const void* address,
                      size_t bytes, const char* what);
// One phase: the starts of `bytes` of each of `lanes` lanes.
void NotePhase(const void* const* addresses, int lanes, size_t bytes,
               const char* what);
// The lanes of a warp are together again.
void EndOfAccesses(uint32_t warp);

}  // namespace bk::emulator

#endif  // BK_JAX_TESTS_CUDA_ON_CPU_BANK_CONFLICTS_H_
