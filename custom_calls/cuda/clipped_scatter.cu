// All tokens are sorted by row of the table. The block of a row's first token
// adds up all of its tokens, the blocks of the others have nothing to do. So a
// row that most tokens belong to is added by one block per kColumns columns,
// with kUnroll loads in flight.
#include "custom_calls/cuda/clipped_scatter.h"
#include "custom_calls/cuda/element.cuh"
#include "custom_calls/cuda/platform.cuh"
#include "custom_calls/cuda/token_sort.cuh"

namespace bk::cuda {
namespace {

constexpr int kColumns = 128;
constexpr int kUnroll = 8;

template <class Acc>
struct BatchKeys {
  const int32_t* ids;
  const Acc* factor;
  int64_t tokens;
  int64_t rows;
  __device__ uint64_t operator()(int64_t /*segment*/, int64_t token) const {
    const int64_t id = ids[token];
    const bool read = id >= 0 && id < rows && factor[token / tokens] != 0;
    return (read ? static_cast<uint64_t>(id) : kUnread) << 32 |
           static_cast<uint64_t>(token);
  }
};

// One column of the row that keys[first] begins, added to `sum`.
template <class T>
__device__ Accumulator<T> AddTokens(const LookupShape& shape,
                                    const uint64_t* keys, int64_t first,
                                    const Accumulator<T>* factor, const T* g,
                                    int64_t column, Accumulator<T> sum) {
  using Acc = Accumulator<T>;
  const int64_t count = shape.batch * shape.tokens;
  const uint64_t row = IdOf(keys[first]);
  for (bool more = true; more; first += kUnroll) {
    Acc weight[kUnroll], x[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const uint64_t key = first + u < count ? keys[first + u] : ~uint64_t{0};
      more = IdOf(key) == row;
      const int64_t token = TokenOf(key);
      weight[u] = more ? factor[token / shape.tokens] : Acc{0};
      x[u] = more ? ToAccumulator(g[token * shape.p + column]) : Acc{0};
    }
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      if (weight[u] != 0) sum = Fma(weight[u], x[u], sum);
    }
  }
  return sum;
}

// Items: parts of kColumns columns, and in them the sorted tokens. With
// room for four blocks ptxas spills nothing on any architecture.
template <class T>
__global__ void __launch_bounds__(kColumns, 4)
    ScatterKernel(LookupShape shape, const uint64_t* keys,
                  const Accumulator<T>* factor, const T* g,
                  Accumulator<T>* sum) {
  const int64_t count = shape.batch * shape.tokens;
  const int64_t items = count * CeilDiv(shape.p, kColumns);
  for (int64_t item = blockIdx.x; item < items; item += gridDim.x) {
    const int64_t k = item % count;
    const int64_t column = item / count * kColumns + threadIdx.x;
    const uint64_t row = IdOf(keys[k]);
    const bool first = k == 0 || IdOf(keys[k - 1]) != row;
    if (row == kUnread || !first || column >= shape.p) continue;
    Accumulator<T>* to = sum + static_cast<int64_t>(row) * shape.p + column;
    *to = AddTokens(shape, keys, k, factor, g, column, *to);
  }
}

}  // namespace

int64_t ClippedScatterWorkspaceBytes(const LookupShape& shape) {
  return SortBytes({1, shape.batch * shape.tokens});
}

template <class T>
cudaError_t ClippedScatter(const LookupShape& shape, const int32_t* ids,
                           const Accumulator<T>* factor, const T* g,
                           Accumulator<T>* sum, void* workspace,
                           cudaStream_t stream) {
  using Acc = Accumulator<T>;
  const int64_t count = shape.batch * shape.tokens;
  const uint64_t* keys = nullptr;
  BK_RETURN_IF_CUDA_ERROR(SortTokens(
      {1, count}, BatchKeys<Acc>{ids, factor, shape.tokens, shape.rows},
      workspace, &keys, stream));
  return Launch(ScatterKernel<T>, count * CeilDiv(shape.p, kColumns), kColumns,
                stream, shape, keys, factor, g, sum);
}

#define BK_INSTANTIATE(T)                                                 \
  template cudaError_t ClippedScatter(const LookupShape&, const int32_t*, \
                                      const Accumulator<T>*, const T*,    \
                                      Accumulator<T>*, void*, cudaStream_t)
BK_INSTANTIATE(float);
BK_INSTANTIATE(BFloat16);
BK_INSTANTIATE(Float16);
BK_INSTANTIATE(double);
#undef BK_INSTANTIATE

}  // namespace bk::cuda
