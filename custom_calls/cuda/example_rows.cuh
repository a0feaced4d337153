// X^T Y over the rows of one example after the other, on the main loop.
#ifndef BK_JAX_CUSTOM_CALLS_CUDA_EXAMPLE_ROWS_CUH_
#define BK_JAX_CUSTOM_CALLS_CUDA_EXAMPLE_ROWS_CUH_

#include "custom_calls/cuda/element.cuh"
#include "custom_calls/cuda/layers.h"
#include "custom_calls/cuda/main_loop.cuh"
#include "custom_calls/cuda/shifted_loader.cuh"

namespace bk::cuda {

// Two operands [examples, weights, positions, left_width or right_width].
template <class T>
struct RowPairs {
  const T* left;
  const T* right;
  int64_t examples, weights, positions, left_width, right_width;

  // Row of position 0 of a weight, within an example.
  __device__ int64_t First(int64_t weight) const { return weight * positions; }
  __device__ Extent<T> LeftExtent() const {
    return {left, left + examples * weights * positions * left_width};
  }
  __device__ Extent<T> RightExtent() const {
    return {right, right + examples * weights * positions * right_width};
  }
};

// The same of several layers.
template <class T>
struct LayerRows {
  LayerPairs<T> layers;
  int64_t examples, positions, left_width, right_width;

  __device__ int64_t Weights() const { return layers.count * layers.weights; }
  // Of weight number `weight` of all of them: its layer.
  __device__ RowPairs<T> Of(int64_t weight) const {
    const int64_t layer = weight / layers.weights;
    return {layers.left[layer], layers.right[layer], examples,   layers.weights,
            positions,          left_width,          right_width};
  }
  bool AreAligned() const {
    return layers.All([this](const T* left, const T* right) {
      return RowsAreAligned(left, left_width) &&
             RowsAreAligned(right, right_width);
    });
  }
};

// Examples [begin, end) of one weight; those whose factor is 0 are left out.
// Without factors all have the factor 1.
struct ExampleRange {
  int64_t weight, begin, end;
  const float* factor = nullptr;

  __device__ bool IsWanted(int64_t i) const {
    return factor == nullptr || factor[i] != 0;
  }
  // The first wanted example from i on, or `end`.
  __device__ int64_t From(int64_t i) const {
    while (i < end && !IsWanted(i)) ++i;
    return i;
  }
  __device__ float Factor(int64_t i) const {
    return factor == nullptr ? 1 : factor[i];
  }
};

// Their rows, for the tile at (row, column): a source of the main loop, which
// is ahead of what is multiplied.
template <class T, class Tiles, class Loader>
class ExampleRows {
 public:
  __device__ ExampleRows(const RowPairs<T>& rows, const ExampleRange& examples,
                         int64_t row, int64_t column)
      : left_(rows.left + rows.First(examples.weight) * rows.left_width, row,
              rows.left_width, rows.First(rows.weights), rows.LeftExtent()),
        right_(rows.right + rows.First(examples.weight) * rows.right_width,
               column, rows.right_width, rows.First(rows.weights),
               rows.RightExtent()),
        examples_(examples),
        positions_(static_cast<int>(rows.positions)),
        example_(0) {
    Begin(examples.begin);
  }

  template <int kAhead>
  __device__ void Start(SharedAddress stage) {
    if (example_ >= examples_.end) return;
    left_.Copy(stage, left_rows_);
    right_.Copy(stage + Tiles::kPieceBytes, left_rows_);
    left_rows_ -= kChunkTerms<T>;
    if (BK_RARELY(left_rows_ <= 0)) Begin(example_ + 1);
  }

 private:
  // The first wanted example from `example` on.
  __device__ void Begin(int64_t example) {
    const int64_t next = examples_.From(example);
    left_.Skip(next - example_);
    right_.Skip(next - example_);
    example_ = next;
    left_rows_ = positions_;
  }

  Loader left_, right_;
  const ExampleRange& examples_;
  int positions_;
  int64_t example_;  // that is being copied
  int left_rows_;    // of it
};

// sums += scale * the product of `rows` rows; a chain of a tensor core has at
// most kChunks chunks.
template <int kChunks, class Loop, class Source, class T>
__device__ void AddExample(Loop& loop, Source& source, T /*type*/, int rows,
                           uint32_t right, float scale, WarpSums& sums) {
  while (rows > 0) {
    WarpSums chain = {};
#pragma unroll 1
    for (int chunk = 0; chunk < kChunks && rows >= kChunkTerms<T>; ++chunk) {
      loop.Multiply(source, right, chain);
      rows -= kChunkTerms<T>;
    }
    if (rows > 0 && rows < kChunkTerms<T>) {
      loop.MultiplyShort(source, right, rows, chain);
      rows = 0;
    }
#pragma unroll
    for (int i = 0; i < kDown; ++i) {
#pragma unroll
      for (int j = 0; j < kAcross; ++j) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          float& sum = sums.at[i][j][e];
          sum = Fma(scale, chain.at[i][j][e], sum);
        }
      }
    }
  }
}

// The tile at (row, column) of the sum over examples of factor * X^T Y.
template <int kChunks, class T, class Tiles, class Loader>
__device__ void SumOfProducts(StagesShared<Tiles>& shared,
                              const RowPairs<T>& rows,
                              const ExampleRange& examples, int64_t row,
                              int64_t column, WarpSums& sums) {
  if (rows.positions == 0) return;
  ExampleRows<T, Tiles, Loader> source(rows, examples, row, column);
  MainLoop<T, Layout::kColumns, Tiles> loop(shared, source);
  for (int64_t i = examples.From(examples.begin); i < examples.end;
       i = examples.From(i + 1)) {
    AddExample<kChunks>(loop, source, T{}, static_cast<int>(rows.positions),
                        Tiles::kPieceBytes, examples.Factor(i), sums);
  }
  loop.End();
}

}  // namespace bk::cuda

#endif  // BK_JAX_CUSTOM_CALLS_CUDA_EXAMPLE_ROWS_CUH_
