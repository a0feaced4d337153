#include "custom_calls/reference/convert.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace bk::reference {
namespace {

// A binary format of 16 bits: sign, exponent, mantissa.
struct Format {
  int mantissa_bits;
  int min_exponent;  // of normal numbers; subnormals use it too
  int max_exponent;
};
constexpr Format kBFloat16 = {7, -126, 127};
constexpr Format kFloat16 = {10, -14, 15};

uint16_t Infinity(const Format& format) {
  const int exponent_field = format.max_exponent - format.min_exponent + 2;
  return static_cast<uint16_t>(exponent_field << format.mantissa_bits);
}

double Decode(uint16_t bits, const Format& format) {
  const double sign = (bits & 0x8000) != 0 ? -1 : 1;
  const int magnitude = bits & 0x7fff;
  const int field = magnitude >> format.mantissa_bits;
  const int mantissa = magnitude - (field << format.mantissa_bits);
  if (magnitude > Infinity(format)) return std::nan("");
  if (magnitude == Infinity(format)) return sign * HUGE_VAL;
  const int implicit = field == 0 ? 0 : 1 << format.mantissa_bits;
  const int exponent = std::max(field, 1) - 1 + format.min_exponent;
  return sign *
         std::ldexp(mantissa + implicit, exponent - format.mantissa_bits);
}

// Counts magnitudes from zero: consecutive bit patterns are consecutive
// numbers, also from one binade to the next and from subnormal to normal.
uint16_t Encode(double x, const Format& format) {
  const auto sign = static_cast<uint16_t>(std::signbit(x) ? 0x8000 : 0);
  const double magnitude = std::fabs(x);
  if (std::isnan(x)) return static_cast<uint16_t>(Infinity(format) + 1);
  if (std::isinf(x)) return static_cast<uint16_t>(sign | Infinity(format));
  // The exponent of 0 is a large negative number.
  const int exponent = std::clamp(std::ilogb(magnitude), format.min_exponent,
                                  format.max_exponent);
  const double steps =
      std::nearbyint(std::ldexp(magnitude, format.mantissa_bits - exponent));
  const double binade =
      std::ldexp(exponent - format.min_exponent, format.mantissa_bits);
  const double pattern = std::min<double>(binade + steps, Infinity(format));
  return static_cast<uint16_t>(sign | static_cast<uint16_t>(pattern));
}

}  // namespace

double ToDouble(BFloat16 x) { return Decode(x.bits, kBFloat16); }
double ToDouble(Float16 x) { return Decode(x.bits, kFloat16); }

template <>
double FromDouble(double x) {
  return x;
}
template <>
float FromDouble(double x) {
  return static_cast<float>(x);
}
template <>
BFloat16 FromDouble(double x) {
  return {Encode(x, kBFloat16)};
}
template <>
Float16 FromDouble(double x) {
  return {Encode(x, kFloat16)};
}

}  // namespace bk::reference
