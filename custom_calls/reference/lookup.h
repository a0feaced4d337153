// Definitions of the operations on lookups: form the gradient of the whole
// table.
#ifndef BK_JAX_CUSTOM_CALLS_REFERENCE_LOOKUP_H_
#define BK_JAX_CUSTOM_CALLS_REFERENCE_LOOKUP_H_

#include <cmath>
#include <cstdint>
#include <map>
#include <vector>

#include "custom_calls/element.h"
#include "custom_calls/reference/convert.h"
#include "custom_calls/shapes.h"

namespace bk::reference {

// Rows of one example's table gradient that are hit, by id: row ids[t] gets
// g[t]; negative ids get nothing.
template <class Real, class T>
std::map<int32_t, std::vector<Real>> TableRows(int64_t tokens, int64_t p,
                                               const int32_t* ids, const T* g) {
  std::map<int32_t, std::vector<Real>> rows;
  for (int64_t t = 0; t < tokens; ++t) {
    if (ids[t] < 0) continue;
    std::vector<Real>& row = rows[ids[t]];
    row.resize(p);
    for (int64_t k = 0; k < p; ++k) {
      row[k] += static_cast<Real>(ToDouble(g[t * p + k]));
    }
  }
  return rows;
}

// sq_norm[i] = |table gradient of example i|^2.
template <class Real, class T>
void EmbeddingNorm(const LookupShape& shape, const int32_t* ids, const T* g,
                   Real* sq_norm) {
  for (int64_t i = 0; i < shape.batch; ++i) {
    sq_norm[i] = 0;
    const auto rows =
        TableRows<Real>(shape.tokens, shape.p, ids + i * shape.tokens,
                        g + i * shape.tokens * shape.p);
    for (const auto& [id, row] : rows) {
      for (Real x : row) sq_norm[i] += x * x;
    }
  }
}

// sum += factor[i] * table gradient of example i; examples with the factor 0
// are not read. `scale`, if not null, gets the same sum of absolute values.
template <class T>
void ClippedScatter(const LookupShape& shape, const int32_t* ids,
                    const Accumulator<T>* factor, const T* g, double* sum,
                    double* scale = nullptr) {
  for (int64_t token = 0; token < shape.batch * shape.tokens; ++token) {
    const auto c = static_cast<double>(factor[token / shape.tokens]);
    const int64_t id = ids[token];
    if (c == 0 || id < 0 || id >= shape.rows) continue;
    for (int64_t k = 0; k < shape.p; ++k) {
      const double term = c * ToDouble(g[token * shape.p + k]);
      sum[id * shape.p + k] += term;
      if (scale != nullptr) scale[id * shape.p + k] += std::fabs(term);
    }
  }
}

// cross[i] = <left_i^T right_i, table gradient of the lookup>.
template <class Real, class T>
void TiedCross(const TiedCrossShape& shape, const T* left, const T* right,
               const int32_t* ids, const T* g, Real* cross) {
  for (int64_t i = 0; i < shape.batch; ++i) {
    cross[i] = 0;
    const auto rows =
        TableRows<Real>(shape.tokens, shape.p, ids + i * shape.tokens,
                        g + i * shape.tokens * shape.p);
    for (const auto& [id, row] : rows) {
      if (id >= shape.rows) continue;
      for (int64_t t = i * shape.positions; t < (i + 1) * shape.positions;
           ++t) {
        Real inner = 0;
        for (int64_t k = 0; k < shape.p; ++k) {
          inner += static_cast<Real>(ToDouble(right[t * shape.p + k])) * row[k];
        }
        cross[i] +=
            static_cast<Real>(ToDouble(left[t * shape.rows + id])) * inner;
      }
    }
  }
}

}  // namespace bk::reference

#endif  // BK_JAX_CUSTOM_CALLS_REFERENCE_LOOKUP_H_
