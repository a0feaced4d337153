#include <cublasLt.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "tests/cublas_stand_in/stand_in.h"

namespace {

struct Layout {
  cudaDataType type;
  int64_t rows, columns, ld;
  int32_t batch;
  int64_t stride;
};

struct Descriptor {
  cublasComputeType_t compute;
  int32_t transposed[2];  // A, B
};

struct Preference {
  uint64_t workspace;
  uint32_t reduction, alignment[4];
};

// The mark of an algorithm that the heuristic has returned.
constexpr uint64_t kChosen = 0x6b6a6178;

bk::StandIn& State() {
  static auto* const state = new bk::StandIn();
  return *state;
}

Layout* Of(cublasLtMatrixLayout_t x) { return reinterpret_cast<Layout*>(x); }
Descriptor* Of(cublasLtMatmulDesc_t x) {
  return reinterpret_cast<Descriptor*>(x);
}
Preference* Of(cublasLtMatmulPreference_t x) {
  return reinterpret_cast<Preference*>(x);
}

// Copies an attribute of exactly this size.
template <class T>
cublasStatus_t Read(const void* from, size_t bytes, T* to) {
  if (bytes != sizeof(T)) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(to, from, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

double FromBits(uint32_t bits) {
  float x;
  std::memcpy(&x, &bits, sizeof(x));
  return x;
}

double HalfToDouble(uint16_t bits) {
  const double sign = (bits & 0x8000) != 0 ? -1 : 1;
  const int exponent = bits >> 10 & 31;
  const int mantissa = bits & 1023;
  if (exponent == 0) return sign * std::ldexp(mantissa, -24);
  if (exponent < 31) return sign * std::ldexp(mantissa + 1024, exponent - 25);
  return mantissa == 0 ? sign * HUGE_VAL : std::nan("");
}

// Element (row, column) of matrix number `batch`.
double Element(const void* data, const Layout& layout, int64_t batch,
               int64_t row, int64_t column, bool tf32) {
  const int64_t at = batch * layout.stride + column * layout.ld + row;
  if (layout.type == CUDA_R_16BF) {
    return FromBits(uint32_t{static_cast<const uint16_t*>(data)[at]} << 16);
  }
  if (layout.type == CUDA_R_16F) {
    return HalfToDouble(static_cast<const uint16_t*>(data)[at]);
  }
  uint32_t bits = static_cast<const uint32_t*>(data)[at];
  if (tf32) bits &= ~uint32_t{0x1fff};
  return FromBits(bits);
}

// A factor as it is multiplied: transposed or not.
struct Factor {
  const void* data;
  Layout layout;
  bool transposed, tf32;
  int64_t Rows() const { return transposed ? layout.columns : layout.rows; }
  int64_t Columns() const { return transposed ? layout.rows : layout.columns; }
  double At(int64_t batch, int64_t i, int64_t j) const {
    return Element(data, layout, batch, transposed ? j : i, transposed ? i : j,
                   tf32);
  }
};

struct Numbers {
  float alpha, beta;
};

bool Fit(const Factor& a, const Factor& b, const Layout& c, const Layout& d) {
  const bool same = a.layout.batch == d.batch && b.layout.batch == d.batch &&
                    c.batch == d.batch && c.rows == d.rows &&
                    c.columns == d.columns;
  return same && a.Rows() == d.rows && b.Columns() == d.columns &&
         a.Columns() == b.Rows() && d.type == CUDA_R_32F &&
         c.type == CUDA_R_32F && a.layout.type == b.layout.type;
}

void Multiply(const Factor& a, const Factor& b, Numbers numbers, const float* c,
              const Layout& c_layout, float* d, const Layout& d_layout) {
  for (int64_t batch = 0; batch < d_layout.batch; ++batch) {
    for (int64_t j = 0; j < d_layout.columns; ++j) {
      for (int64_t i = 0; i < d_layout.rows; ++i) {
        double sum = 0;
        for (int64_t k = 0; k < a.Columns(); ++k) {
          sum += a.At(batch, i, k) * b.At(batch, k, j);
        }
        sum *= static_cast<double>(numbers.alpha);
        if (numbers.beta != 0) {
          sum += static_cast<double>(numbers.beta) *
                 Element(c, c_layout, batch, i, j, false);
        }
        d[batch * d_layout.stride + j * d_layout.ld + i] =
            static_cast<float>(sum);
      }
    }
  }
}

bool IsAligned(const void* data) {
  const uint32_t bytes = State().alignment == 0 ? 1 : State().alignment;
  return reinterpret_cast<uintptr_t>(data) % bytes == 0;
}

}  // namespace

extern "C" {

bk::StandIn* BkStandIn() { return &State(); }

size_t cublasLtGetVersion() {
  return State().version != 0 ? State().version : CUBLAS_VERSION;
}

const char* cublasLtGetStatusString(cublasStatus_t status) {
  return status == CUBLAS_STATUS_EXECUTION_FAILED ? "execution failed"
                                                  : "another status";
}

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  ++State().handles;
  *handle = reinterpret_cast<cublasLtHandle_t>(&State());
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout,
                                          cudaDataType type, uint64_t rows,
                                          uint64_t cols, int64_t ld) {
  if (ld < static_cast<int64_t>(rows)) return CUBLAS_STATUS_INVALID_VALUE;
  *layout = reinterpret_cast<cublasLtMatrixLayout_t>(new Layout{
      type, static_cast<int64_t>(rows), static_cast<int64_t>(cols), ld, 1, 0});
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutSetAttribute(
    cublasLtMatrixLayout_t layout, cublasLtMatrixLayoutAttribute_t attribute,
    const void* from, size_t bytes) {
  if (attribute == CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT) {
    return Read(from, bytes, &Of(layout)->batch);
  }
  if (attribute == CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET) {
    return Read(from, bytes, &Of(layout)->stride);
  }
  return CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* descriptor,
                                        cublasComputeType_t compute,
                                        cudaDataType_t scale) {
  if (scale != CUDA_R_32F) return CUBLAS_STATUS_INVALID_VALUE;
  *descriptor = reinterpret_cast<cublasLtMatmulDesc_t>(
      new Descriptor{compute, {CUBLAS_OP_N, CUBLAS_OP_N}});
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(
    cublasLtMatmulDesc_t descriptor, cublasLtMatmulDescAttributes_t attribute,
    const void* from, size_t bytes) {
  if (attribute == CUBLASLT_MATMUL_DESC_TRANSA) {
    return Read(from, bytes, &Of(descriptor)->transposed[0]);
  }
  if (attribute == CUBLASLT_MATMUL_DESC_TRANSB) {
    return Read(from, bytes, &Of(descriptor)->transposed[1]);
  }
  return CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(
    cublasLtMatmulPreference_t* preference) {
  *preference = reinterpret_cast<cublasLtMatmulPreference_t>(
      new Preference{0, CUBLASLT_REDUCTION_SCHEME_MASK, {256, 256, 256, 256}});
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(
    cublasLtMatmulPreference_t preference) {
  delete Of(preference);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(
    cublasLtMatmulPreference_t preference,
    cublasLtMatmulPreferenceAttributes_t attribute, const void* from,
    size_t bytes) {
  Preference& own = *Of(preference);
  switch (attribute) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
      return Read(from, bytes, &own.workspace);
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
      return Read(from, bytes, &own.reduction);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
      return Read(from, bytes, &own.alignment[0]);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
      return Read(from, bytes, &own.alignment[1]);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
      return Read(from, bytes, &own.alignment[2]);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
      return Read(from, bytes, &own.alignment[3]);
    default:
      return CUBLAS_STATUS_INVALID_VALUE;
  }
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(
    cublasLtHandle_t /*handle*/, cublasLtMatmulDesc_t /*descriptor*/,
    cublasLtMatrixLayout_t /*a*/, cublasLtMatrixLayout_t /*b*/,
    cublasLtMatrixLayout_t /*c*/, cublasLtMatrixLayout_t /*d*/,
    cublasLtMatmulPreference_t preference, int requested,
    cublasLtMatmulHeuristicResult_t* results, int* found) {
  const Preference& wish = *Of(preference);
  bk::StandIn& state = State();
  ++state.heuristics;
  state.reduction_schemes = wish.reduction;
  const bool fits = wish.workspace >= state.needed_bytes;
  *found = requested > 0 && fits && !state.no_algorithm ? 1 : 0;
  if (*found == 0) return CUBLAS_STATUS_SUCCESS;
  results[0] = {};
  results[0].algo.data[0] = kChosen;
  results[0].algo.data[1] = wish.alignment[0];
  results[0].workspaceSize = state.needed_bytes;
  results[0].state = CUBLAS_STATUS_SUCCESS;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(
    cublasLtHandle_t /*handle*/, cublasLtMatmulDesc_t descriptor,
    const void* alpha, const void* a, cublasLtMatrixLayout_t a_layout,
    const void* b, cublasLtMatrixLayout_t b_layout, const void* beta,
    const void* c, cublasLtMatrixLayout_t c_layout, void* d,
    cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t* algorithm,
    void* workspace, size_t workspace_bytes, cudaStream_t /*stream*/) {
  bk::StandIn& state = State();
  if (state.failure != 0) return static_cast<cublasStatus_t>(state.failure);
  const Descriptor& product = *Of(descriptor);
  const bool tf32 = product.compute == CUBLAS_COMPUTE_32F_FAST_TF32;
  const Factor left = {a, *Of(a_layout), product.transposed[0] == CUBLAS_OP_T,
                       tf32};
  const Factor right = {b, *Of(b_layout), product.transposed[1] == CUBLAS_OP_T,
                        tf32};
  if (algorithm == nullptr || algorithm->data[0] != kChosen ||
      workspace_bytes < state.needed_bytes || !IsAligned(workspace)) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  state.alignment = static_cast<uint32_t>(algorithm->data[1]);
  if (!Fit(left, right, *Of(c_layout), *Of(d_layout)) || !IsAligned(a) ||
      !IsAligned(b) || !IsAligned(d)) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  Numbers numbers;
  std::memcpy(&numbers.alpha, alpha, sizeof(float));
  std::memcpy(&numbers.beta, beta, sizeof(float));
  std::memset(workspace, 0xff, workspace_bytes);  // NaN: nobody else's
  Multiply(left, right, numbers, static_cast<const float*>(c), *Of(c_layout),
           static_cast<float*>(d), *Of(d_layout));
  const Layout& out = *Of(d_layout);
  state.calls.push_back({out.rows,
                         out.columns,
                         left.Columns(),
                         out.batch,
                         {left.layout.stride, right.layout.stride, out.stride},
                         product.compute,
                         numbers.alpha,
                         numbers.beta,
                         workspace_bytes});
  return CUBLAS_STATUS_SUCCESS;
}

}  // extern "C"
