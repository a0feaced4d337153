#include "custom_calls/reference/gaussian.h"

#include <cmath>

namespace bk::reference {
namespace {

uint32_t RotateLeft(uint32_t x, int bits) {
  return x << bits | x >> (32 - bits);
}

void QuarterRound(ChachaBlock& x, int a, int b, int c, int d) {
  x[a] += x[b];
  x[d] = RotateLeft(x[d] ^ x[a], 16);
  x[c] += x[d];
  x[b] = RotateLeft(x[b] ^ x[c], 12);
  x[a] += x[b];
  x[d] = RotateLeft(x[d] ^ x[a], 8);
  x[c] += x[d];
  x[b] = RotateLeft(x[b] ^ x[c], 7);
}

// Values come in runs of 16: radii, then their angles.
constexpr uint64_t kRun = 16;
bool IsAngle(uint64_t position) { return position / kRun % 2 == 1; }
uint64_t RadiusOf(uint64_t position) {
  return IsAngle(position) ? position - kRun : position;
}

uint64_t Word64(const NoiseStream& stream, uint64_t position) {
  return uint64_t{Word(stream, 2 * position)} |
         uint64_t{Word(stream, 2 * position + 1)} << 32;
}

// `distance` of u from 0 or from 1; `turn` in (-1/2, 1/2) is an angle in right
// angles.
long double BoxMuller(bool near_zero, long double distance, bool negative,
                      bool swap, long double turn, bool is_angle) {
  const long double log_u =
      near_zero ? std::log(distance) : std::log1p(-distance);
  const long double length = std::sqrt(-2 * log_u);
  const long double angle = turn * std::acos(0.0L);
  const long double value =
      is_angle == swap ? std::cos(angle) : std::sin(angle);
  return (negative ? -length : length) * value;
}

}  // namespace

ChachaBlock Chacha20(const uint32_t (&key)[kKeyWords], uint32_t counter,
                     const uint32_t (&nonce)[3]) {
  ChachaBlock start = {};
  for (int i = 0; i < 4; ++i) start[i] = kChachaConstants[i];
  for (int i = 0; i < kKeyWords; ++i) start[4 + i] = key[i];
  start[12] = counter;
  for (int i = 0; i < 3; ++i) start[13 + i] = nonce[i];
  ChachaBlock x = start;
  for (int round = 0; round < 10; ++round) {
    for (int i = 0; i < 4; ++i) QuarterRound(x, i, i + 4, i + 8, i + 12);
    for (int i = 0; i < 4; ++i) {
      QuarterRound(x, i, (i + 1) % 4 + 4, (i + 2) % 4 + 8, (i + 3) % 4 + 12);
    }
  }
  for (int i = 0; i < kBlockWords; ++i) x[i] += start[i];
  return x;
}

uint32_t Word(const NoiseStream& stream, uint64_t position) {
  const uint64_t block = 16 * (position / 256) + position % 16;
  const uint32_t nonce[3] = {static_cast<uint32_t>(block >> 32), stream.stream,
                             stream.domain};
  return Chacha20(stream.key, static_cast<uint32_t>(block),
                  nonce)[position / 16 % 16];
}

long double NormalOfFloat(const NoiseStream& stream, uint64_t position) {
  const uint32_t radius = Word(stream, RadiusOf(position));
  const uint32_t angle = Word(stream, RadiusOf(position) + kRun);
  const long double distance =
      std::ldexp(static_cast<long double>(radius & 0x7fffffff), -32) +
      std::ldexp((angle & 0xff) + 0.5L, -40);
  const uint32_t steps = (angle >> 7 & 0x7fffff) | 1;  // of 2^-23, odd
  const long double turn = std::ldexp(static_cast<long double>(steps), -23);
  return BoxMuller(radius >> 31 != 0, distance, angle >> 31 != 0,
                   (angle >> 30 & 1) != 0, turn - 0.5L, IsAngle(position));
}

long double NormalOfDouble(const NoiseStream& stream, uint64_t position) {
  const uint64_t radius = Word64(stream, RadiusOf(position));
  const uint64_t angle = Word64(stream, RadiusOf(position) + kRun);
  const long double distance = std::ldexp(
      static_cast<long double>(radius & 0x7fffffffffffffff) + 0.5L, -64);
  const uint64_t steps = (angle >> 10 & 0xfffffffffffff) | 1;  // of 2^-52, odd
  const long double turn = std::ldexp(static_cast<long double>(steps), -52);
  return BoxMuller(radius >> 63 != 0, distance, angle >> 63 != 0,
                   (angle >> 62 & 1) != 0, turn - 0.5L, IsAngle(position));
}

}  // namespace bk::reference
