// Many arrays as one list of pieces, so that one loop over threads serves all.
#ifndef BK_JAX_CUSTOM_CALLS_CPU_PIECES_H_
#define BK_JAX_CUSTOM_CALLS_CPU_PIECES_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "custom_calls/cpu/tiling.h"

namespace bk {

// Elements [begin, end) of an array.
struct Piece {
  size_t array;
  int64_t begin, end;
};

// Pieces of at most `limit` elements, in the order of the arrays; an empty
// array has none. Takes memory for the arrays, not for the pieces.
class Pieces {
 public:
  template <class Array>
  Pieces(const std::vector<Array>& arrays, int64_t limit) : limit_(limit) {
    ends_.reserve(arrays.size());
    sizes_.reserve(arrays.size());
    for (const Array& array : arrays) {
      sizes_.push_back(array.size);
      ends_.push_back(Count() + CeilDiv(array.size, limit));
      elements_ += array.size;
    }
  }

  int64_t Count() const { return ends_.empty() ? 0 : ends_.back(); }

  // Of a piece, on average.
  double MeanSize() const {
    return static_cast<double>(elements_) /
           static_cast<double>(std::max<int64_t>(Count(), 1));
  }

  Piece operator[](int64_t item) const {
    const auto found = std::upper_bound(ends_.begin(), ends_.end(), item);
    const auto array = static_cast<size_t>(found - ends_.begin());
    const int64_t first = array == 0 ? 0 : ends_[array - 1];
    const int64_t begin = (item - first) * limit_;
    return {array, begin, std::min(begin + limit_, sizes_[array])};
  }

 private:
  const int64_t limit_;
  int64_t elements_ = 0;
  std::vector<int64_t> ends_;  // numbers of pieces up to each array
  std::vector<int64_t> sizes_;
};

}  // namespace bk

#endif  // BK_JAX_CUSTOM_CALLS_CPU_PIECES_H_
