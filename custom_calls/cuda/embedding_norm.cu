// Tokens of an example are sorted by id; a thread owns a column and adds up the
// tokens of one id after the other, in double. g is read once.
#include "custom_calls/certified.h"
#include "custom_calls/cuda/element.cuh"
#include "custom_calls/cuda/embedding_norm.h"
#include "custom_calls/cuda/platform.cuh"
#include "custom_calls/cuda/reduce.cuh"
#include "custom_calls/cuda/token_sort.cuh"

namespace bk::cuda {
namespace {

constexpr int kColumns = 128;
// Loads in flight per thread.
constexpr int kUnroll = 8;

// What columns of one example add up to.
struct Partial {
  double squares;
  double sq_error;  // square of a bound on the error of the sums, in norm
  double nonzero;   // columns that have an element that is not zero
};

struct ExampleKeys {
  const int32_t* ids;
  int64_t tokens;
  __device__ uint64_t operator()(int64_t example, int64_t token) const {
    const int64_t id = ids[example * tokens + token];
    return (id < 0 ? kUnread : static_cast<uint64_t>(id)) << 32 |
           static_cast<uint64_t>(token);
  }
};

// One column of the tokens of one id.
struct ColumnSegment {
  uint64_t id = kUnread;
  double count = 0;
  double sum = 0;
  double token_squares = 0;

  // The error of a sum of m doubles is at most gamma_{m-1} sqrt(m sum x^2), see
  // cpu/embedding_norm.cc.
  __device__ void Finish(Partial* partial) const {
    partial->squares += sum * sum;
    if (count < 2) return;
    const double gamma = (count - 1) * kUnitRoundoff<double> * 1.02;
    partial->sq_error += gamma * gamma * count * token_squares;
  }
  __device__ void Add(uint64_t token_id, double x, Partial* partial) {
    if (token_id != id) {
      Finish(partial);
      *this = {token_id, 0, 0, 0};
    }
    count += 1;
    sum += x;
    token_squares += x * x;
    if (x != 0) partial->nonzero = 1;
  }
};

template <class T>
__device__ Partial AddColumn(const LookupShape& shape, const uint64_t* keys,
                             const T* g, int64_t column) {
  Partial partial = {0, 0, 0};
  ColumnSegment segment;
  for (int64_t first = 0; first < shape.tokens; first += kUnroll) {
    uint64_t id[kUnroll];
    Accumulator<T> x[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const uint64_t key =
          first + u < shape.tokens ? keys[first + u] : kUnread << 32;
      id[u] = IdOf(key);
      x[u] = id[u] == kUnread
                 ? Accumulator<T>{0}
                 : ToAccumulator(g[TokenOf(key) * shape.p + column]);
    }
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      if (id[u] != kUnread) segment.Add(id[u], x[u], &partial);
    }
    if (id[kUnroll - 1] == kUnread) break;
  }
  segment.Finish(&partial);
  return partial;
}

struct Shared {
  double scratch[3][kColumns / 32];
};

// partials [B, parts]: parts of kColumns columns.
template <class T>
__global__ void __launch_bounds__(kColumns)
    ColumnsKernel(LookupShape shape, const uint64_t* keys, const T* g,
                  Partial* partials) {
  BK_SHARED(Shared, shared);
  const int64_t parts = CeilDiv(shape.p, kColumns);
  for (int64_t item = blockIdx.x; item < shape.batch * parts;
       item += gridDim.x) {
    const int64_t tokens = item / parts * shape.tokens;
    const int64_t column = item % parts * kColumns + threadIdx.x;
    Partial partial = {0, 0, 0};
    if (column < shape.p) {
      partial = AddColumn(shape, keys + tokens, g + tokens * shape.p, column);
    }
    const Partial sum = {BlockSum(partial.squares, shared.scratch[0]),
                         BlockSum(partial.sq_error, shared.scratch[1]),
                         BlockSum(partial.nonzero, shared.scratch[2])};
    if (threadIdx.x == 0) partials[item] = sum;
    __syncthreads();
  }
}

// One thread per example.
template <class Acc>
__global__ void __launch_bounds__(kColumns)
    FinishKernel(LookupShape shape, const Partial* partials, Acc* sq_norm,
                 Acc* sq_norm_upper) {
  const int64_t parts = CeilDiv(shape.p, kColumns);
  // A square is added over segments, columns of a block, and parts.
  const auto roundings =
      static_cast<double>(shape.tokens + kColumns + parts + 8);
  for (int64_t chunk = blockIdx.x; chunk * kColumns < shape.batch;
       chunk += gridDim.x) {
    const int64_t i = chunk * kColumns + threadIdx.x;
    if (i >= shape.batch) continue;
    Partial sum = {0, 0, 0};
    for (int64_t part = i * parts; part < (i + 1) * parts; ++part) {
      sum.squares += partials[part].squares;
      sum.sq_error += partials[part].sq_error;
      sum.nonzero += partials[part].nonzero;
    }
    const double error = sqrt(sum.sq_error) * (1 + 0x1p-20);
    StoreCertified<Acc>({sum.squares, error, roundings, sum.nonzero == 0},
                        sq_norm + i, sq_norm_upper + i);
  }
}

}  // namespace

int64_t EmbeddingNormWorkspaceBytes(const LookupShape& shape) {
  return SortBytes({shape.batch, shape.tokens}) +
         shape.batch * CeilDiv(shape.p, kColumns) * int64_t{sizeof(Partial)};
}

template <class T>
cudaError_t EmbeddingNorm(const LookupShape& shape, const int32_t* ids,
                          const T* g, Accumulator<T>* sq_norm,
                          Accumulator<T>* sq_norm_upper, void* workspace,
                          cudaStream_t stream) {
  const SortShape sort = {shape.batch, shape.tokens};
  const uint64_t* keys = nullptr;
  BK_RETURN_IF_CUDA_ERROR(SortTokens(sort, ExampleKeys{ids, shape.tokens},
                                     workspace, &keys, stream));
  auto* partials = reinterpret_cast<Partial*>(static_cast<char*>(workspace) +
                                              SortBytes(sort));
  BK_RETURN_IF_CUDA_ERROR(Launch(ColumnsKernel<T>,
                                 shape.batch * CeilDiv(shape.p, kColumns),
                                 kColumns, stream, shape, keys, g, partials));
  return Launch(FinishKernel<Accumulator<T>>, CeilDiv(shape.batch, kColumns),
                kColumns, stream, shape, partials, sq_norm, sq_norm_upper);
}

#define BK_INSTANTIATE(T)                                                \
  template cudaError_t EmbeddingNorm(const LookupShape&, const int32_t*, \
                                     const T*, Accumulator<T>*,          \
                                     Accumulator<T>*, void*, cudaStream_t)
BK_INSTANTIATE(float);
BK_INSTANTIATE(BFloat16);
BK_INSTANTIATE(Float16);
BK_INSTANTIATE(double);
#undef BK_INSTANTIATE

}  // namespace bk::cuda
