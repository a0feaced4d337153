// A block of an array as ranges of positions: what one task makes noise for.
#ifndef BK_JAX_CUSTOM_CALLS_CPU_NOISE_NOISE_RANGES_H_
#define BK_JAX_CUSTOM_CALLS_CPU_NOISE_NOISE_RANGES_H_

#include <algorithm>
#include <cstdint>

#include "custom_calls/noise.h"
#include "custom_calls/shapes.h"

namespace bk {

// Positions are cut at multiples of this, which is whole groups for every type,
// so that no two tasks make the same group.
inline constexpr int64_t kNoiseChunk = 64 * kGroupWords;

struct PositionRange {
  int64_t begin, end;
};

// Part `part` of positions [begin, begin + length); the last may be empty.
inline PositionRange PartOf(int64_t begin, int64_t length, int64_t part) {
  const int64_t cut = (begin / kNoiseChunk + part) * kNoiseChunk;
  const int64_t end = begin + length;
  return {std::min(std::max(begin, cut), end),
          std::min(cut + kNoiseChunk, end)};
}

inline int64_t Parts(int64_t length) {
  return length == 0 ? 0 : length / kNoiseChunk + 2;
}

// How many values a part has, about.
inline double PartSize(int64_t length) {
  return static_cast<double>(std::clamp(length / 2, kGroupWords, kNoiseChunk));
}

// `count` neighbours: they begin at `position` of the whole array and at
// `offset` of the block.
struct NoiseRange {
  uint64_t position;
  int64_t offset;
  int64_t count;
};

// A block is a set of rows: runs of neighbours in the whole array. Each is cut
// into parts.
class NoiseRanges {
 public:
  explicit NoiseRanges(const BlockShape& shape)
      : shape_(shape), axis_(shape.rank) {
    while (axis_ > 0) {
      --axis_;
      length_ *= shape.size[axis_];
      if (shape.size[axis_] != shape.whole[axis_]) break;
    }
    for (int64_t k = 0; k < axis_; ++k) rows_ *= shape.size[k];
  }

  int64_t Elements() const { return rows_ * length_; }
  int64_t Count() const { return rows_ * Parts(length_); }
  double MeanSize() const { return PartSize(length_); }

  NoiseRange operator[](int64_t item) const {
    const int64_t parts = std::max<int64_t>(Parts(length_), 1);
    const int64_t row = item / parts;
    const int64_t first = RowPosition(row);
    const PositionRange range = PartOf(first, length_, item % parts);
    return {static_cast<uint64_t>(range.begin),
            row * length_ + range.begin - first, range.end - range.begin};
  }

 private:
  // Where row `row` begins in the whole array.
  int64_t RowPosition(int64_t row) const {
    int64_t stride = 1;
    int64_t position = 0;
    for (int64_t k = shape_.rank - 1; k >= 0; --k) {
      int64_t index = shape_.start[k];
      if (k < axis_) {
        index += row % shape_.size[k];
        row /= shape_.size[k];
      }
      position += index * stride;
      stride *= shape_.whole[k];
    }
    return position;
  }

  const BlockShape shape_;
  int64_t axis_;  // dimensions before it number the rows
  int64_t rows_ = 1;
  int64_t length_ = 1;
};

}  // namespace bk

#endif  // BK_JAX_CUSTOM_CALLS_CPU_NOISE_NOISE_RANGES_H_
