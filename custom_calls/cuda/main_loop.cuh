// The main loop of all dense kernels on tensor cores.
//
// kStages chunks of both operands are in shared memory: one is being
// multiplied, the others are on their way. A chunk costs one barrier, which
// says both that its bytes are there and that everyone is done with the one
// before, whose place the next copy takes.
//
// Who calls it ends the sums of a tensor core after a few chunks and adds them
// up otherwise: bounds of norms count on short ones.
#ifndef BK_JAX_CUSTOM_CALLS_CUDA_MAIN_LOOP_CUH_
#define BK_JAX_CUSTOM_CALLS_CUDA_MAIN_LOOP_CUH_

#include "custom_calls/cuda/fragments.cuh"
#include "custom_calls/cuda/stage_ring.cuh"

namespace bk::cuda {

// Steps of a chunk: 32 bytes of the summed dimension each.
inline constexpr int kSteps = 4;
// Instructions of a tensor core in the code of one loop: those of a whole
// chunk, and of one step of a short one.
inline constexpr int kLoopInstructions = kDown * kAcross * (kSteps + 1);

// Multiplies the chunks that a source (StageRing) copies, one after the other.
template <class T, Layout kLayout, class Tiles>
class MainLoop {
 public:
  // Starts the first copies.
  template <class Source>
  __device__ MainLoop(StagesShared<Tiles>& shared, Source& source)
      : ring_(shared, source) {}

  // sums += the product of the next chunk, whose right piece lies `right`
  // bytes from the left one. While one step is multiplied the fragments of the
  // next are read.
  template <class Source>
  __device__ void Multiply(Source& source, uint32_t right, WarpSums& sums) {
    const SharedAddress left = NextPiece(source);
    Fragments x[2];
    reader_.Load(left, left + right, 0, x[0]);
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      if (step + 1 < kSteps) {
        reader_.Load(left, left + right, step + 1, x[(step + 1) % 2]);
      }
      MultiplyFragments<T>(x[step % 2], sums);
    }
  }

  // The same for a chunk with only so many terms that are not 0.
  template <class Source>
  __device__ void MultiplyShort(Source& source, uint32_t right, int terms,
                                WarpSums& sums) {
    constexpr int kTerms = kChunkTerms<T> / kSteps;
    const SharedAddress left = NextPiece(source);
#pragma unroll 1
    for (int step = 0; step * kTerms < terms; ++step) {
      Fragments x;
      reader_.Load(left, left + right, step, x);
      MultiplyFragments<T>(x, sums);
    }
  }

  // Everybody has left the stages.
  __device__ void End() { __syncthreads(); }

 private:
  template <class Source>
  __device__ SharedAddress NextPiece(Source& source) {
    WaitForCopies<kStages - 2>();
    __syncthreads();
    const SharedAddress piece = ring_.Next();
    ring_.Advance(source);
    return piece;
  }

  FragmentReader<kLayout, Tiles> reader_;
  StageRing<Tiles> ring_;
};

}  // namespace bk::cuda

#endif  // BK_JAX_CUSTOM_CALLS_CUDA_MAIN_LOOP_CUH_
