// The stages of a main loop: a ring of chunks in shared memory, of which one is
// being multiplied and the others are on their way.
#ifndef BK_JAX_CUSTOM_CALLS_CUDA_STAGE_RING_CUH_
#define BK_JAX_CUSTOM_CALLS_CUDA_STAGE_RING_CUH_

#include "custom_calls/cuda/instructions.cuh"
#include "custom_calls/cuda/tiling.cuh"

namespace bk::cuda {

// source.template Start<kAhead>(stage) starts the copies of the chunk kAhead
// after the next one, if there is one.
template <class Tiles>
class StageRing {
 public:
  // Starts the first copies.
  template <class Source>
  __device__ StageRing(StagesShared<Tiles>& shared, Source& source) {
    static_assert(kStages == 3);
    begin_ = next_ = SharedAddressOf(shared.stage);
    source.template Start<0>(begin_);
    CommitCopies();
    source.template Start<1>(begin_ + Tiles::kStageBytes);
    CommitCopies();
    free_ = begin_ + 2 * Tiles::kStageBytes;
  }

  // To be multiplied.
  __device__ SharedAddress Next() const { return next_; }

  // Goes on: starts copies into the stage before the next one, which nobody
  // may be reading any more.
  template <class Source>
  __device__ void Advance(Source& source) {
    source.template Start<2>(free_);
    CommitCopies();
    free_ = next_;
    next_ += Tiles::kStageBytes;
    if (next_ == begin_ + kStages * Tiles::kStageBytes) next_ = begin_;
  }

 private:
  SharedAddress begin_, next_;
  SharedAddress free_;  // the one before the next
};

}  // namespace bk::cuda

#endif  // BK_JAX_CUSTOM_CALLS_CUDA_STAGE_RING_CUH_
